"""The trainer's own logging becomes lines of the run."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

import overwatch.sdk
from overwatch.events import LogLine, Severity
from overwatch.sdk.logs import RunHandler, structlog_processor
from tests.overwatch.sdk.sink import Sink, http_sink


@pytest.fixture
def reported() -> Iterator[tuple[Sink, overwatch.sdk.Run]]:
    """A collector and a run that speaks to it."""
    with http_sink() as sink:
        run = overwatch.sdk.start(task="t", endpoint=sink.endpoint, sample=False)
        yield sink, run
        run.close()


@pytest.fixture
def logger(reported: tuple[Sink, overwatch.sdk.Run]) -> Iterator[logging.Logger]:
    """A logger of a trainer, sent to the run."""
    logger = logging.getLogger("trainer.loop")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler = RunHandler(reported[1])
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)


def _lines(sink: Sink, count: int) -> list[LogLine]:
    sink.wait(lambda sink: len(sink.events(LogLine)) >= count)
    return sink.events(LogLine)


def test_a_log_record_is_a_line_with_its_fields(
    reported: tuple[Sink, overwatch.sdk.Run], logger: logging.Logger
) -> None:
    """Message, level, logger, extras and the exception; what is below the level is not reported."""
    logger.debug("quiet")
    logger.warning("lost %d of %d", 3, 4, extra={"env_id": 7, "slot": 5, "shard": "a"})
    logger.error("failed", exc_info=ValueError("boom"))
    first, second = _lines(reported[0], 2)
    assert (first.message, first.severity, first.subsystem) == (
        "lost 3 of 4",
        Severity.WARNING,
        "trainer.loop",
    )
    assert (first.env_id, first.fields) == (7, {"slot_": "5", "shard": "a"})
    assert (second.severity, second.fields) == (Severity.CRITICAL, {"exception": "ValueError: boom"})
    assert first.trace_id is None


def test_a_line_names_the_span_it_was_written_in(
    reported: tuple[Sink, overwatch.sdk.Run], logger: logging.Logger
) -> None:
    """Trace and span of the current OpenTelemetry span travel in OTLP's own fields."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("t")
    with tracer.start_as_current_span("update") as span:
        logger.info("inside")
    context = span.get_span_context()
    (line,) = _lines(reported[0], 1)
    assert (line.trace_id, line.span_id) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")


def test_a_line_that_cannot_be_formatted_stops_nothing(
    reported: tuple[Sink, overwatch.sdk.Run], logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logging's own rule: the error goes nowhere, the next line is reported."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger.info("%d", "no number")
    logger.info("next")
    assert [line.message for line in _lines(reported[0], 1)] == ["next"]


def test_what_is_logged_while_reporting_is_not_sent_again(reported: tuple[Sink, overwatch.sdk.Run]) -> None:
    """No recursion, neither through a field that logs nor through the SDK's own logger."""
    handler = RunHandler(reported[1])

    class Chatty:
        def __str__(self) -> str:
            handler.handle(_record("trainer", "and another"))
            return "chatty"

    handler.handle(_record("overwatch.sdk", "own line"))
    for _ in range(100):
        handler.handle(_record("trainer", Chatty()))
    assert {line.message for line in _lines(reported[0], 100)} == {"chatty"}


def _record(name: str, stated: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": name, "msg": "%s", "args": (stated,), "levelname": "INFO", "levelno": 20}
    )


def test_a_structlog_event_is_a_line_and_goes_on_unchanged(reported: tuple[Sink, overwatch.sdk.Run]) -> None:
    """Event, level and bound values; the chain behind it sees what it would have seen."""
    kept: list[dict[str, object]] = []

    def keep(_: object, __: str, event: dict[str, object]) -> dict[str, object]:
        kept.append(dict(event))
        raise structlog.DropEvent

    log = structlog.wrap_logger(
        logging.getLogger("unused"), processors=[structlog_processor(reported[1]), keep]
    )
    log.bind(logger="loop", update=3).error("diverged", severity="odd")
    (line,) = _lines(reported[0], 1)
    assert (line.message, line.severity, line.subsystem) == ("diverged", Severity.CRITICAL, "loop")
    assert line.fields == {"update": "3", "severity_": "odd"}
    assert kept == [{"event": "diverged", "logger": "loop", "update": 3, "severity": "odd"}]
