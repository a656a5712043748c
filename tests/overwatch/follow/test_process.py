"""How a process ended that is no child of whoever asks."""

import signal
import subprocess
import sys
import time

import pytest

from overwatch import platform
from overwatch.follow.process import Process

WAIT_S = 30.0


def gone(found: Process) -> Process:
    """Once it has ended."""
    until = time.monotonic() + WAIT_S
    while found.lives() and time.monotonic() < until:
        time.sleep(0.01)
    assert not found.lives()
    return found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", ("completed", None)),
        ("raise SystemExit(3)", ("failed", "exit status 3")),
        ("import os; os.kill(os.getpid(), 2)", ("interrupted", "ended by signal 2 (SIGINT)")),
        ("import os; os.kill(os.getpid(), 15)", ("interrupted", "ended by signal 15 (SIGTERM)")),
        ("import os; os.kill(os.getpid(), 9)", ("lost", "trainer killed by signal 9 (SIGKILL)")),
    ],
)
def test_a_process_ends_as_its_exit_status_shows(code: str, expected: tuple[str, str | None]) -> None:
    """Before its parent has read the status, which any system shows."""
    with subprocess.Popen([sys.executable, "-c", f"input()\n{code}"], stdin=subprocess.PIPE) as program:
        found = Process(program.pid)
        assert found.lives()
        assert program.stdin is not None
        program.stdin.write(b"\n")
        program.stdin.flush()
        outcome, reason = gone(found).ending()

    assert outcome == expected[0]
    assert (reason or "").endswith(expected[1] or "")


def test_a_process_whose_status_nobody_shows_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent has read it, and the system keeps none: it may have done all it should, or not."""
    monkeypatch.setattr(platform, "handle_of", lambda _: None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        found = Process(program.pid)
        program.send_signal(signal.SIGKILL)
        program.wait(WAIT_S)

    assert gone(found).ending() == (
        "ended",
        f"process {program.pid} ended; its exit status is not known here",
    )


def test_an_id_of_no_process_is_named() -> None:
    """With how to find the right one."""
    with pytest.raises(ValueError, match="1073741824 is no process; its id is what `pgrep"):
        Process(1 << 30)
