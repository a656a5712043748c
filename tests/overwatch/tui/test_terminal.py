"""On a real pseudo-terminal, against a collector in another process: seen, quit, cut off, ended."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEADLINE_S = 20.0
RUN = "import sys; from overwatch.tui import run_tui; sys.exit(run_tui(sys.argv[1], None))"
ALT_ON, ALT_OFF, CURSOR_ON = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


class Collector:
    """A view API that can be ended and started again on its port."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Listen."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.overwatch.tui.serve_storm", str(self.port)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def end(self) -> None:
        """Stop listening."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class Terminal:
    """The master side of a pty in which the TUI runs."""

    def __init__(self, port: int, env: dict[str, str]) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.written = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, f"ws://127.0.0.1:{port}"],
            cwd=ROOT, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
        )  # fmt: skip

    def read(self, wait_s: float = 0.1) -> None:
        """Take what was written."""
        if select.select([self.master], [], [], wait_s)[0]:
            with contextlib.suppress(OSError):
                self.written += os.read(self.master, 1 << 16)

    def until(self, *words: str, since: int = 0) -> int:
        """Read until all words were written after `since`; returns where the output ends now."""
        deadline = time.monotonic() + DEADLINE_S
        while not all(word in self.text(since) for word in words):
            assert time.monotonic() < deadline, f"{words} not in {self.text(since)[-3000:]!r}"
            self.read()
        return len(self.written)

    def text(self, since: int = 0) -> str:
        """What was written, without the terminal's own sequences."""
        shown = re.sub(rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>]", b"", self.written[since:])
        return shown.decode("utf-8", "replace")

    def exit_code(self) -> int:
        """Wait for the end, reading on."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "still running"
            self.read()
        for _ in range(3):
            self.read(0.05)
        return self.process.returncode

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for end in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(end)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector."""
    one = Collector()
    one.start()
    yield one
    one.end()


@contextlib.contextmanager
def _terminal(port: int, **env: str) -> Iterator[Terminal]:
    terminal = Terminal(port, env)
    try:
        yield terminal
    finally:
        terminal.close()


def _in_order(terminal: Terminal) -> bool:
    """Whether the terminal is as it was: main screen, cursor, echo, line mode."""
    shown = terminal.written
    screens = shown.rfind(ALT_OFF) > shown.rfind(ALT_ON) >= 0
    return screens and CURSOR_ON in shown and termios.tcgetattr(terminal.slave) == terminal.before


def test_it_starts_shows_the_run_and_quits_with_the_terminal_restored(collector: Collector) -> None:
    """Start, read the screen, press q: exit code 0 and the terminal as it was."""
    with _terminal(collector.port) as terminal:
        terminal.until("OVERWATCH", "digits-0712", "LIVE", "FLIGHT BOARD", "crashed at step 88,214")
        os.write(terminal.master, b"q")

        assert terminal.exit_code() == 0
        assert _in_order(terminal)
        assert "Traceback" not in terminal.text()


def test_a_collector_that_goes_away_leaves_the_screen_and_is_found_again(collector: Collector) -> None:
    """The screen stays, marked STALE with its age, and is live again when the collector is back."""
    with _terminal(collector.port) as terminal:
        shown = terminal.until("LIVE", "FLIGHT BOARD")
        collector.end()
        stale = terminal.until("STALE", "reconnecting", since=shown)
        collector.start()
        terminal.until("LIVE", since=stale)
        os.write(terminal.master, b"q")

        assert terminal.exit_code() == 0
        assert _in_order(terminal)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_terminal_restored(collector: Collector, number: signal.Signals) -> None:
    """Ended from outside, the exit code names the signal and the terminal is usable."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD")
        terminal.process.send_signal(number)

        assert terminal.exit_code() == 128 + number
        assert _in_order(terminal)


def test_a_terminal_that_is_gone_ends_it(collector: Collector) -> None:
    """Without a hang-up signal too: nothing is left running that nobody can see."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD")
        os.close(terminal.slave)
        os.close(terminal.master)

        assert terminal.process.wait(DEADLINE_S) != 0


def test_without_colour_no_colour_is_written(collector: Collector) -> None:
    """NO_COLOR: bold, dim and reverse remain."""
    with _terminal(collector.port, NO_COLOR="1") as terminal:
        terminal.until("FLIGHT BOARD", "LIVE")
        os.write(terminal.master, b"q")
        terminal.exit_code()

        codes = {
            int(code)
            for found in re.findall(rb"\x1b\[([0-9;]+)m", terminal.written)
            for code in found.split(b";")
        }
        assert codes & (set(range(30, 38)) | set(range(90, 98)) | {38, 48}) == set()


def test_where_there_is_no_terminal_it_says_what_to_do() -> None:
    """A pipe gets a sentence and not a screen."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, "ws://127.0.0.1:1"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )

    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
