"""Lines of a recording by another process: the same bytes, whoever made them."""

import sys
import time

import pytest

from overwatch.collector.exporters.otlp_file.lines import Lines
from overwatch.collector.helper import Helper
from overwatch.events import LogLine, Severity
from overwatch.journal import Signal
from overwatch.otlp.jsonl import to_json
from tests.overwatch.collector.running import eventually, told
from tests.overwatch.collector.test_otlp_conformance import span, two_bad_points

ENOUGH = 600 << 10
"""Bytes that are worth a process."""


def body(size: int, number: int = 0) -> bytes:
    """A request with a line of so many letters."""
    line = LogLine(at=time.time_ns(), severity=Severity.INFO, message=f"{number}" + "é" * (size // 2))
    return told("run-a", [line])


@pytest.mark.parametrize(
    ("of", "data"),
    [
        (Signal.LOGS, body(3 << 20)),
        (Signal.LOGS, b""),
        (Signal.METRICS, two_bad_points()),
        (Signal.TRACES, span()),
    ],
    ids=["large", "empty", "metrics", "traces"],
)
def test_a_process_makes_the_same_line(of: Signal, data: bytes) -> None:
    """Of any signal and size."""
    helper = Helper("tests")
    lines = Lines(helper=helper)
    eventually(lambda: lines.to_json(Signal.LOGS, body(ENOUGH)) and helper.answered)
    before = helper.answered
    assert lines.to_json(of, data) == to_json(of, data)
    assert helper.answered == before + 1
    lines.stop()


def test_without_a_process_lines_are_made_here() -> None:
    """Nothing is lost where none can be started."""
    helper = Helper("tests", command=(sys.executable, "-c", ""))
    lines = Lines(helper=helper)
    for data in (body(ENOUGH), body(ENOUGH, 1)):
        assert lines.to_json(Signal.LOGS, data) == to_json(Signal.LOGS, data)
    assert (helper.answered, helper.failures) == (0, 1)
    lines.stop()


def test_where_much_waits_lines_are_made_here() -> None:
    """A process of lower priority may not get its turn; it is asked again once less waits."""
    waits = [True]
    helper = Helper("tests")
    lines = Lines(lambda: waits[0], helper)
    for number in range(3):
        lines.to_json(Signal.LOGS, body(ENOUGH, number))
    assert helper.answered == 0
    waits[0] = False
    eventually(lambda: lines.to_json(Signal.LOGS, body(ENOUGH)) and helper.answered)
    lines.stop()
