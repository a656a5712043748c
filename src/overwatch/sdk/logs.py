"""Lines of the trainer's own logging as lines of the run: standard library and structlog.

Rules: a line that this package itself logs is never sent again; a line that cannot be sent costs nothing
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
_TRACE, _SPAN = "otelTraceID", "otelSpanID"
_OTEL: Final = frozenset({_TRACE, _SPAN, "otelServiceName", "otelTraceSampled"})
_TAKEN: Final = frozenset({"severity", "subsystem", "trace_id", "span_id"})
_NO_TRACE: Final = "0"


class RunHandler(logging.Handler):
    """Sends log records as lines: `logging.getLogger().addHandler(RunHandler(run))`."""

    def __init__(self, run: Run, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._run = run
        self._emitting = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        if record.name.partition(".")[0] in _OWN or getattr(self._emitting, "now", False):
            return
        self._emitting.now = True
        try:
            fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
            span = str(fields.get(_TRACE, _NO_TRACE)), str(fields.get(_SPAN, _NO_TRACE))
            if record.exc_info and record.exc_info[1] is not None:
                error = record.exc_info[1]
                fields["exception"] = f"{type(error).__name__}: {error}"
            fields = {key: value for key, value in fields.items() if key not in _OTEL}
            where = current_span() if span[0] == _NO_TRACE else span
            _log(self._run, record.getMessage(), record.levelname, record.name, fields, span=where)
        except Exception:  # noqa: BLE001 the border of user formatting: logging's own rule for handlers
            self.handleError(record)
        finally:
            self._emitting.now = False


def structlog_processor(
    run: Run,
) -> Callable[[object, str, MutableMapping[str, object]], MutableMapping[str, object]]:
    """A structlog processor that sends each event and passes it on unchanged; put it before the renderer."""

    def process(_: object, method: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
        fields = {str(key): value for key, value in event.items()}
        found, logger = fields.pop("event", ""), fields.pop("logger", None)
        message = found if isinstance(found, str) else repr(found)
        subsystem = logger if isinstance(logger, str) else "structlog"
        _log(run, message, str(fields.pop("level", method)), subsystem, fields, span=current_span())
        return event

    return process


def _log(
    run: Run, message: str, severity: str, subsystem: str, fields: Mapping[str, Any], *, span: tuple[str, str]
) -> None:
    """Send a line; fields named like parameters of `Run.log` keep their value under another name."""
    kept = {f"{key}_" if _is_taken(key, value) else key: value for key, value in fields.items()}
    trace_id, span_id = (one or None for one in span)
    run.log(message, severity=severity, subsystem=subsystem, trace_id=trace_id, span_id=span_id, **kept)


def _is_taken(key: str, value: object) -> bool:
    """Whether a field is no value of the parameter that has its name."""
    if key == "env_id":
        return not isinstance(value, int)
    return key in _TAKEN or (key in ("slot", "seed_id") and not isinstance(value, str))


def current_span() -> tuple[str, str]:
    """Trace and span id of the open OpenTelemetry span as hex; empty when there is none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return "", ""
    context = trace.get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else ("", "")
