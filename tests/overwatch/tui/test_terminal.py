"""On a real pseudo-terminal, against a collector in another process: seen, quit, cut off, ended."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.overwatch.tui.ptys import DEADLINE_S, ROOT, Terminal, in_order, running

RUN = "import sys; from overwatch.tui import run_tui; sys.exit(run_tui(sys.argv[1:], None))"


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


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector."""
    one = Collector()
    one.start()
    yield one
    one.end()


def _terminal(port: int, **env: str) -> contextlib.AbstractContextManager[Terminal]:
    return running([sys.executable, "-c", RUN, f"ws://127.0.0.1:{port}"], **env)


def test_it_starts_shows_the_run_and_quits_with_the_terminal_restored(collector: Collector) -> None:
    """Start, read the screen, press q: exit code 0 and the terminal as it was."""
    with _terminal(collector.port) as terminal:
        terminal.until("OVERWATCH", "digits-0712", "LIVE", "FLIGHT BOARD", "crashed at step 88,214")
        os.write(terminal.master, b"q")

        assert terminal.exit_code() == 0
        assert in_order(terminal)
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
        assert in_order(terminal)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_terminal_restored(collector: Collector, number: signal.Signals) -> None:
    """Ended from outside, the exit code names the signal and the terminal is usable."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD")
        terminal.process.send_signal(number)

        assert terminal.exit_code() == 128 + number
        assert in_order(terminal)


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


def test_where_there_is_no_terminal_it_prints_what_to_do() -> None:
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
