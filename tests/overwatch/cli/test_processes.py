"""A program beside the screen: its console, its end, and Ctrl-C."""

import os
import signal
import sys
from pathlib import Path

import pytest

from overwatch.cli.processes import Program, ProgramError


def program(code: str, console: Path | None = None) -> Program:
    """A Python program."""
    return Program([sys.executable, "-u", "-c", code], dict(os.environ), console)


@pytest.mark.parametrize(
    ("code", "status", "how"),
    [
        ("", 0, "ended with status 0"),
        ("raise SystemExit(3)", 3, "ended with status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by signal 9 (SIGKILL)"),
    ],
)
def test_its_status_is_as_a_shell_has_it(code: str, status: int, how: str) -> None:
    """The exit status, or 128 and the signal."""
    one = program(code)
    assert one.wait() == status
    assert one.ended == f"{Path(sys.executable).name} {how}"


def test_it_is_called_by_its_script(tmp_path: Path) -> None:
    """A person knows it by that name."""
    script = tmp_path / "train.py"
    script.write_text("")
    one = Program([sys.executable, str(script), "--lr", "1"], dict(os.environ))
    assert one.wait() == 0
    assert one.shown == "train.py"


def test_ctrl_c_reaches_it_and_what_it_started_once(tmp_path: Path) -> None:
    """A second one is left to the person to send."""
    console = tmp_path / "console"
    one = program(
        """
import signal, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"])
caught = []
signal.signal(signal.SIGINT, lambda *_: caught.append(1))
print("trainer", flush=True)
print("worker", worker.wait(), len(caught), flush=True)
""",
        console,
    )
    while len(one.tail(9)) < 2:
        assert one.status is None
    first, second = one.interrupt(), one.interrupt()
    assert one.wait() == 0
    assert one.tail(1) == [f"worker {-signal.SIGINT} 1"]
    assert first.startswith("SIGINT sent to ")
    assert "already" in second


def test_its_console_is_a_file_with_its_errors(tmp_path: Path) -> None:
    """Bytes that are no text are shown as such."""
    console = tmp_path / "console"
    one = program(
        "import os, sys; print('out'); sys.stderr.write('err\\n'); os.write(1, b'\\xff\\n'); exit(1)", console
    )
    assert one.wait() == 1
    assert one.tail(9) == ["out", "err", "�"]
    assert one.tail(1) == ["�"]


def test_what_it_prints_is_read_once_by_whole_lines(tmp_path: Path) -> None:
    """A line that is not whole yet waits; of very much the newest is read."""
    console = tmp_path / "console"
    one = program("print('first', flush=True); print('sec', end='', flush=True); input()", console)
    assert one.wait() == 1  # there is no input
    console.write_bytes(b"first\nsec")
    assert one.new_lines() == ["first"]
    assert one.new_lines() == []
    with console.open("ab") as file:
        file.write(b"ond\n\n")
    assert one.new_lines() == ["second", ""]
    with console.open("ab") as file:
        file.write(b"x" * (1 << 17) + b"\nlast\n")
    assert one.new_lines()[-1] == "last"
    assert one.new_lines() == []


def test_without_a_console_of_its_own_nothing_is_read() -> None:
    """Its output goes where ours goes."""
    one = program("")
    assert one.wait() == 0
    assert (one.new_lines(), one.tail(1)) == ([], [])


@pytest.mark.parametrize("command", ["/no/such/program", "/"])
def test_a_program_that_cannot_be_started_is_named(command: str) -> None:
    """With the reason."""
    with pytest.raises(ProgramError, match=f"{command} x cannot be started: "):
        Program([command, "x"], {})
