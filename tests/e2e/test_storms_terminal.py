"""Storms in a real terminal: tmux shows the offender unasked, and Enter opens its slots and events."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import SIZES, StormMaker
from tests.e2e.test_storms import ONE_LANE, SHOWN

IN_CI = {("crash-storm", "2x32x6"), ("thermal-throttle", "2x32x6"), ("nan", "1x4x3")}
CASES = [
    pytest.param(fault, size, marks=() if (fault, size) in IN_CI else pytest.mark.long)
    for fault in SHOWN
    for size in SIZES
    if not (fault in ONE_LANE and size.startswith("1x"))
]

SEED_EVENT = r"seeds +\d\d:\d\d:\d\d +(r\d+c\d+ +[A-Z]+>[A-Z]+ |CRASHED)"
HAPPENED = {
    "crash-storm": r"\d\d:\d\d:\d\d +CRASHED +at step [\d,]+: ",
    "cull-storm": r"\d\d:\d\d:\d\d r\d+c\d+ [A-Z]+>PRUNED +G\d:? ([a-z ]+ )?[\d.]+ < [\d.]+",
}
"""What the drawer of the first offender shows of it, by fault."""


class Screen:
    """One tmux session of its own server."""

    def __init__(self, name: str, command: list[str], size: tuple[int, int]) -> None:
        self._name = name
        width, height = map(str, size)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, *command)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self._name, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def until(self, pattern: str, patience_s: float = 30) -> str:
        """The screen once it matches."""
        deadline = time.monotonic() + patience_s
        while not re.search(pattern, shown := self.shown()):
            assert time.monotonic() < deadline, f"{pattern} is not on\n{shown}"
            time.sleep(0.05)
        return shown

    def shown(self) -> str:
        """The screen as it is now."""
        return self._tmux("capture-pane", "-p")

    @property
    def pid(self) -> int:
        """Of the process in it."""
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def press(self, key: str) -> None:
        """One key."""
        self._tmux("send-keys", key)

    def end(self) -> None:
        """Leave no server behind."""
        subprocess.run(["tmux", "-L", self._name, "kill-server"], check=False, capture_output=True)


@contextmanager
def _replaying(folder: Path, at_s: int) -> Iterator[Screen]:
    if shutil.which("tmux") is None:
        if os.environ.get("OVERWATCH_REQUIRE_REAL"):
            pytest.fail("tmux is required here and not installed: apt-get install tmux")
        pytest.skip("tmux is not installed: apt-get install tmux")
    command = [sys.executable, "-m", "overwatch.cli", "tui", "--replay", str(folder), "--at", str(at_s)]
    screen = Screen(
        f"ow-{os.getpid()}-{folder.name}",
        ["env", "-u", "COLUMNS", "-u", "LINES", "LANG=C.UTF-8", *command],
        (120, 40),
    )
    try:
        yield screen
    finally:
        screen.end()


@pytest.mark.parametrize(("fault", "size"), CASES)
def test_the_terminal_shows_the_offender_and_enter_opens_it(storm: StormMaker, fault: str, size: str) -> None:
    """First the cause on the first screen, then the drawer with why, slots and what became of its seeds."""
    wait, reads = SHOWN[fault]
    with _replaying(*storm(fault, size, wait)) as screen:
        screen.until("REPLAY paused")
        screen.until(reads)
        screen.press("Enter")
        drawer = screen.until(r"acts +[\d,]+ ")

        assert re.search(r"┌ env \d+", drawer)
        assert re.search(r"slots +slot +stage", drawer)
        assert re.search(r"r\d+c\d+ . [A-Z]+", drawer)
        assert re.search(SEED_EVENT, drawer)
        if fault in HAPPENED:
            screen.until(HAPPENED[fault])
        screen.press("q")
