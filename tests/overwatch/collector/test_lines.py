"""Lines of a recording by another process: the same bytes, whatever becomes of that process."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from overwatch.collector.exporters.otlp_file.lines import COMMAND, Lines
from overwatch.events import LogLine, Severity
from overwatch.journal import Signal
from overwatch.otlp.__main__ import REQUEST
from overwatch.otlp.jsonl import to_json
from tests.overwatch.collector.running import told
from tests.overwatch.collector.test_otlp_conformance import span, two_bad_points

ENOUGH = 600 << 10
"""Bytes that are worth a process."""


def body(size: int, number: int = 0) -> bytes:
    """A request with a line of so many letters."""
    line = LogLine(at=time.time_ns(), severity=Severity.INFO, message=f"{number}" + "é" * (size // 2))
    return told("run-a", [line])


@pytest.fixture
def lines() -> Iterator[Lines]:
    """A maker of lines that is busy already."""
    made = Lines()
    made.to_json(Signal.LOGS, body(ENOUGH))
    yield made
    made.stop()


def child() -> psutil.Process:
    """The process that makes lines."""
    (found,) = [
        process
        for process in psutil.Process().children()
        if process.cmdline()[1:] == ["-m", "overwatch.otlp"]
    ]
    return found


def test_few_bytes_start_no_process() -> None:
    """A quiet run costs no memory for a process."""
    made = Lines()
    told_once = body(100)
    assert made.to_json(Signal.LOGS, told_once) == to_json(Signal.LOGS, told_once)
    assert made.answered == 0
    made.stop()


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
def test_a_process_makes_the_same_line(lines: Lines, of: Signal, data: bytes) -> None:
    """Of any signal and size."""
    before = lines.answered
    assert lines.to_json(of, data) == to_json(of, data)
    assert lines.answered == before + 1


def test_a_process_takes_the_core_from_nobody(lines: Lines) -> None:
    """Of a lower priority, and it waits for its turn when it gets something to do."""
    lines.to_json(Signal.LOGS, body(100))
    assert child().nice() > psutil.Process().nice()
    assert os.sched_getscheduler(child().pid) == os.SCHED_BATCH


def test_a_process_that_is_killed_costs_no_line(lines: Lines) -> None:
    """The line is made here, and the next ones too, until another process may be tried."""
    child().kill()
    for number in range(3):
        data = body(100, number)
        assert lines.to_json(Signal.LOGS, data) == to_json(Signal.LOGS, data)
    assert lines.failures == 1


def test_a_process_that_is_silent_is_given_up() -> None:
    """One that was stopped, too: it does not even take a large body."""
    made = Lines(silent_s=3.0)
    made.to_json(Signal.LOGS, body(ENOUGH))
    child().send_signal(signal.SIGSTOP)
    data = body(2 << 20)
    assert made.to_json(Signal.LOGS, data) == to_json(Signal.LOGS, data)
    assert made.failures == 1
    made.stop()


def test_without_a_process_lines_are_made_here() -> None:
    """Where none can be started, and where it says nothing."""
    for command in (("/nowhere/python",), (sys.executable, "-c", "")):
        made = Lines(command=command)
        for data in (body(ENOUGH), body(ENOUGH, 1)):
            assert made.to_json(Signal.LOGS, data) == to_json(Signal.LOGS, data)
        assert (made.answered, made.failures) == (0, 1)
        made.stop()


def test_where_much_waits_lines_are_made_here() -> None:
    """A process of lower priority may not get its turn; it is asked again once less waits."""
    waits = [True]
    made = Lines(lambda: waits[0])
    for is_late in (True, False):
        waits[0] = is_late
        made._second = 0.0
        made.to_json(Signal.LOGS, body(ENOUGH))
        assert made.answered == (not is_late)
    made.stop()


def test_a_process_whose_asker_is_gone_says_nothing() -> None:
    """Whether it waits for a body, or has a line that nobody reads: a collector's log has no traceback."""
    whole = body(4 << 20)
    for asked in (
        b"",
        REQUEST.pack(0, len(whole))[:3],
        REQUEST.pack(0, 100),
        REQUEST.pack(0, len(whole)) + whole,
    ):
        ours, theirs = socket.socketpair()
        with subprocess.Popen(COMMAND, stdin=theirs.fileno(), stderr=subprocess.PIPE) as process:
            theirs.close()
            ours.sendall(asked)
            ours.close()
            _, complained = process.communicate(timeout=60)
        assert (process.returncode, complained) == (0, b"")


def test_the_process_ends_with_who_asks() -> None:
    """Killed or stopped: nobody is left behind."""
    code = (
        "from tests.overwatch.collector.test_lines import *\n"
        "made = Lines(); made.to_json(Signal.LOGS, body(ENOUGH)); print(child().pid, flush=True)\n"
        "threading.Event().wait(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as asker:
        assert asker.stdout is not None
        pid = int(asker.stdout.readline())
        asker.kill()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
