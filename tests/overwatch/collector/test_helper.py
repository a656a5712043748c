"""A process that is asked about bodies: whatever becomes of it, who asks can do without."""

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

from overwatch.collector.helper import COMMAND, Helper
from overwatch.journal import Signal
from overwatch.otlp.__main__ import REQUEST, Asked
from overwatch.otlp.jsonl import to_json
from tests.overwatch.collector.running import eventually
from tests.overwatch.collector.test_lines import ENOUGH, body


def line(helper: Helper, data: bytes) -> bytes | None:
    """What it answers, if it does."""
    return helper.ask(Asked.LINE, Signal.LOGS, data)


@pytest.fixture
def helper() -> Iterator[Helper]:
    """One whose process answers."""
    made = Helper("tests")
    eventually(lambda: line(made, body(ENOUGH)))
    yield made
    made.stop()


def child(helper: Helper) -> psutil.Process:
    """The process."""
    assert helper.pid is not None
    return psutil.Process(helper.pid)


def test_few_bytes_start_no_process() -> None:
    """A quiet run costs no memory for one, unless somebody finds it worth it."""
    made = Helper("tests")
    assert line(made, body(100)) is None
    assert made.pid is None
    data = body(100, 1)
    ask = lambda: made.ask(Asked.LINE, Signal.LOGS, data, is_worth_it=True)  # noqa: E731 asked again and again
    assert eventually(ask) == to_json(Signal.LOGS, data)
    made.stop()


def test_a_process_takes_the_core_from_nobody(helper: Helper) -> None:
    """Of a lower priority, and it waits for its turn when it gets something to do."""
    assert line(helper, body(100))
    assert child(helper).nice() > psutil.Process().nice()
    assert os.sched_getscheduler(child(helper).pid) == os.SCHED_BATCH


def test_a_process_gives_way_before_it_is_ready() -> None:
    """What it takes to begin is taken from nobody either."""
    made = Helper("tests", (sys.executable, "-c", "import time; time.sleep(60)"))
    try:
        assert line(made, body(ENOUGH)) is None
        assert os.sched_getscheduler(child(made).pid) == os.SCHED_BATCH
        assert child(made).nice() > psutil.Process().nice()
    finally:
        made.stop()


def test_a_process_that_is_killed_is_given_up(helper: Helper) -> None:
    """There is no answer, until another process may be tried."""
    child(helper).kill()
    assert [line(helper, body(100, number)) for number in range(3)] == [None, None, None]
    assert helper.failures == 1


def test_a_process_that_is_silent_is_given_up() -> None:
    """One that was stopped, too: it does not even take a large body."""
    made = Helper("tests", silent_s=3.0)
    eventually(lambda: line(made, body(ENOUGH)))
    child(made).send_signal(signal.SIGSTOP)
    assert line(made, body(2 << 20)) is None
    assert made.failures == 1
    made.stop()


SAYS = "import socket, sys, time; s = socket.socket(fileno=0); s.sendall({}); time.sleep(60)"


@pytest.mark.parametrize(
    "command",
    [
        ("/nowhere/python",),
        (sys.executable, "-c", ""),
        (sys.executable, "-c", SAYS.format(r"b'\4\0\0\0none'")),
    ],
    ids=["missing", "mute", "another version"],
)
def test_a_process_that_cannot_be_used_is_not_asked(command: tuple[str, ...]) -> None:
    """It is not there, ends at once, or is of another version than who asks: installed meanwhile."""
    made = Helper("tests", command=command)
    eventually(lambda: line(made, body(ENOUGH)) is None and made.failures)
    assert line(made, body(ENOUGH)) is None
    assert (made.answered, made.failures) == (0, 1)
    made.stop()


def test_a_process_that_does_not_get_ready_is_given_up() -> None:
    """Who asks waits a moment for it once, and then no more."""
    made = Helper("tests", command=(sys.executable, "-c", "import time; time.sleep(60)"), boot_s=2.0)
    began = time.monotonic()
    eventually(lambda: line(made, body(ENOUGH)) is None and made.failures)
    assert time.monotonic() - began >= 2.0
    made.stop()


def test_a_process_whose_asker_is_gone_says_nothing() -> None:
    """Whether it waits for a body, or has a line that nobody reads: a collector's log has no traceback."""
    whole = body(4 << 20)
    head = REQUEST.pack(Asked.LINE, 0, 0, len(whole))
    for asked in (b"", head[:3], REQUEST.pack(Asked.LINE, 0, 0, 100), head + whole):
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
        "from tests.overwatch.collector.test_helper import *\n"
        "made = Helper('tests'); eventually(lambda: line(made, body(ENOUGH)))\n"
        "print(made.pid, flush=True); threading.Event().wait(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as asker:
        assert asker.stdout is not None
        pid = int(asker.stdout.readline())
        asker.kill()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
