"""What terminals do to programs: suspend them, resize them, stop reading them, know no colours or letters."""

import contextlib
import fcntl
import os
import re
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.overwatch.tui.ptys import DEADLINE_S, Terminal, in_order, running
from tests.overwatch.tui.test_terminal import RUN, Collector

_SEQUENCES = re.compile(rb"\x1b\[[0-9;:?<>=$]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]|\x1b\][^\x07]*\x07")


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector."""
    one = Collector()
    one.start()
    yield one
    one.end()


def _terminal(port: int, **env: str) -> contextlib.AbstractContextManager[Terminal]:
    return running([sys.executable, "-c", RUN, f"ws://127.0.0.1:{port}"], **env)


def _wait(reached: "object", terminal: Terminal) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not reached():  # type: ignore[operator]  # a callable of the test
        assert time.monotonic() < deadline
        terminal.read()


def test_it_is_suspended_and_comes_back_with_the_terminal_in_order_meanwhile(collector: Collector) -> None:
    """Ctrl+Z gives the shell its terminal; SIGCONT draws the screen again; q leaves."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD")
        terminal.press("\x1a")
        process = psutil.Process(terminal.process.pid)
        _wait(lambda: process.status() == psutil.STATUS_STOPPED, terminal)
        assert in_order(terminal)
        here = len(terminal.written)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until("FLIGHT BOARD", since=here)
        terminal.press("q")
        assert terminal.exit_code() == 0
        assert in_order(terminal)


def _resized(terminal: Terminal, times: int) -> None:
    sizes = ((120, 40), (80, 24), (1, 1), (0, 0), (300, 100), (79, 23), (200, 60), (40, 10))
    for number in range(times):
        columns, rows = sizes[number % len(sizes)]
        fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.read(0.005)
        assert terminal.process.poll() is None
    fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    terminal.process.send_signal(signal.SIGWINCH)
    here = len(terminal.written)
    terminal.until("FLIGHT BOARD", since=here)
    terminal.press("q")
    assert terminal.exit_code() == 0
    assert "Traceback" not in terminal.text()


def test_a_storm_of_sizes_is_survived(collector: Collector) -> None:
    """Down to nothing and up again; the last size is drawn whole."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD")
        _resized(terminal, 200)


def test_a_size_without_a_signal_is_drawn_all_the_same(collector: Collector) -> None:
    """In a storm the signal of the last size may arrive before that of an earlier one."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD")
        fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
        terminal.until("80x24 needed, 40x10 here")


@pytest.mark.long
def test_ten_thousand_sizes_are_survived(collector: Collector) -> None:
    """The same, long."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD")
        _resized(terminal, 10_000)


def _unread(collector: Collector, seconds: float) -> None:
    """Nobody reads the terminal for a while: memory stays, and reading shows a live screen again."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD", "LIVE")
        process = psutil.Process(terminal.process.pid)
        before = process.memory_info().rss
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert terminal.process.poll() is None
            time.sleep(0.1)
        assert process.memory_info().rss - before < 30 << 20
        here = len(terminal.written)
        _wait(lambda: len(terminal.written) > here, terminal)
        terminal.press("?")
        terminal.until("KEYS", since=here)
        terminal.press("q")
        assert terminal.exit_code() == 0


def test_a_terminal_that_nobody_reads_costs_no_memory(collector: Collector) -> None:
    """For three seconds."""
    _unread(collector, 3.0)


@pytest.mark.long
def test_a_terminal_that_nobody_reads_for_a_minute_costs_no_memory(collector: Collector) -> None:
    """As under Ctrl+S, or a stopped ssh."""
    _unread(collector, 60.0)


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_terminal_without_letters_gets_ascii(collector: Collector, env: dict[str, str]) -> None:
    """Besides the terminal's own sequences only what every terminal can draw."""
    with _terminal(collector.port, **env) as terminal:
        terminal.until("FLIGHT BOARD", "crashed at step 88,214")
        terminal.press("q")
        assert terminal.exit_code() == 0
        rest = _SEQUENCES.sub(b"", terminal.written)
        assert not [
            byte for byte in rest if not 0x20 <= byte <= 0x7E and byte not in b"\r\n\x0f\x0e\x1b\\P=?;"
        ]


def test_nothing_is_left_behind_when_it_ends(collector: Collector, tmp_path: Path) -> None:
    """No process, no file."""
    with _terminal(collector.port, HOME=str(tmp_path)) as terminal:
        terminal.until("FLIGHT BOARD")
        children = psutil.Process(terminal.process.pid).children(recursive=True)
        os.write(terminal.master, b"q")
        assert terminal.exit_code() == 0
        assert not [child for child in children if child.is_running()]
        assert list(tmp_path.iterdir()) == []
