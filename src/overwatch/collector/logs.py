"""The collector's own log: one line an event on stderr, for a person or for a program, by structlog.

Rules: no line shows a secret, wherever it came from, tracebacks among them; what came over the wire cannot
start a line of its own, and a sender's mistake makes none at all. Must not know who logs.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

import msgspec
import structlog
from aiohttp.http import HttpProcessingError
from structlog.typing import EventDict, Processor

from overwatch.collector.setting_types import redact

_THEIRS: Final[dict[str, tuple[type[Exception], ...]]] = {
    "aiohttp.server": (HttpProcessingError,),
    "grpc._cython.cygrpc": (UnicodeDecodeError,),
}
"""By logger: what it logs of a sender's mistake."""
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


class LogsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`service.telemetry.logs`, with otelcol's keys."""

    level: Literal["debug", "info", "warn", "error"] = "info"
    """The least severe line that is written."""
    encoding: Literal["console", "json"] = "console"
    """For a person, or one JSON object a line."""


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Renders by structlog, then takes out what must not show."""

    def __init__(self, last: list[Processor], known: Callable[[], frozenset[str]]) -> None:
        chain: list[Processor] = [
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _one_line,
        ]
        meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
        super().__init__(processors=[meta, *last], foreign_pre_chain=chain)
        self._known = known

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record), self._known())


def formatter(
    encoding: str, known: Callable[[], frozenset[str]], *, colors: bool = False
) -> logging.Formatter:
    """Renders log records; `known` returns the texts that are secrets at the moment."""
    if encoding == "json":
        exceptions: Processor = structlog.processors.format_exc_info
        return _Formatter([exceptions, structlog.processors.JSONRenderer()], known)
    plain = structlog.dev.plain_traceback
    return _Formatter([structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)], known)


@contextmanager
def on_stderr(config: LogsConfig, known: Callable[[], frozenset[str]]) -> Iterator[None]:
    """Write this process's log to stderr for as long as the context lasts."""
    root = logging.getLogger()
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_is_ours)
    handler.setFormatter(formatter(config.encoding, known, colors=sys.stderr.isatty()))
    before = root.level
    root.addHandler(handler)
    root.setLevel(config.level.upper() if config.level != "warn" else logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _one_line(_: object, __: str, event: EventDict) -> EventDict:
    event["event"] = str(event["event"]).translate(_CONTROLS)
    return event


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a line is not about bytes that are no HTTP: their sender got an answer, and may be many."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, _THEIRS.get(record.name, ()))
