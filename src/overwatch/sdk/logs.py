"""Lines of the trainer's own logging, told as lines of the run: standard library and structlog.

Rules: a line that this package itself logs is never told again; a line that cannot be told costs nothing
but its count; trace and span are those of the current OpenTelemetry span, where one is open. Loads neither
structlog nor OpenTelemetry.
"""

import logging
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from overwatch.sdk.run import Run

_OWN: Final = ("overwatch", "opentelemetry")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OTEL: Final = ("otelTraceID", "otelSpanID", "otelServiceName", "otelTraceSampled")
_NO_TRACE: Final = "0"


class RunHandler(logging.Handler):
    """Tells log records as lines: `logging.getLogger().addHandler(RunHandler(run))`."""

    def __init__(self, run: Run, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._run = run
        self._telling = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one record."""
        if record.name.partition(".")[0] in _OWN or getattr(self._telling, "now", False):
            return
        self._telling.now = True
        try:
            self._tell(record)
        except Exception:  # noqa: BLE001 the border of user formatting: logging's own rule for handlers
            self.handleError(record)
        finally:
            self._telling.now = False

    def _tell(self, record: logging.LogRecord) -> None:
        fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        trace_id, span_id = (str(fields.pop(key, _NO_TRACE)) for key in _OTEL[:2])
        for key in _OTEL[2:]:
            fields.pop(key, None)
        if trace_id == _NO_TRACE:
            trace_id, span_id = current_span()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fields["exception"] = f"{type(error).__name__}: {error}"
        self._run.log(
            record.getMessage(),
            severity=record.levelname,
            subsystem=record.name,
            trace_id=trace_id or None,
            span_id=span_id or None,
            **_without_own_names(fields),
        )


def structlog_processor(
    run: Run,
) -> Callable[[object, str, MutableMapping[str, object]], MutableMapping[str, object]]:
    """A structlog processor that tells each event and passes it on unchanged; put it before the renderer."""

    def tell(_: object, method: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
        fields = {str(key): value for key, value in event.items()}
        said = fields.pop("event", "")
        trace_id, span_id = current_span()
        subsystem = fields.pop("logger", None)
        run.log(
            said if isinstance(said, str) else repr(said),
            severity=str(fields.pop("level", method)),
            subsystem=subsystem if isinstance(subsystem, str) else "structlog",
            trace_id=trace_id or None,
            span_id=span_id or None,
            **_without_own_names(fields),
        )
        return event

    return tell


def current_span() -> tuple[str, str]:
    """Trace and span id of the open OpenTelemetry span as hex; empty when there is none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return "", ""
    context = trace.get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else ("", "")


def _without_own_names(fields: Mapping[str, object]) -> dict[str, Any]:
    """Fields named like parameters of `Run.log` keep their value under another name, but for a fit env id."""
    return {
        f"{key}_" if key in _TAKEN or _is_odd(key, value) else key: value for key, value in fields.items()
    }


_TAKEN: Final = frozenset({"severity", "subsystem", "trace_id", "span_id"})


def _is_odd(key: str, value: object) -> bool:
    if key == "env_id":
        return not isinstance(value, int)
    return key in ("slot", "seed_id") and not isinstance(value, str)
