"""A collector with the shipped settings in a small control group is never killed for its memory."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.collecting import until
from tests.e2e.quarter import STEPS, Flown, Measures, Quarter

MANY = 66_000
"""Envs of a run that has far more than there is room for."""


class Group:
    """A control group of its own below that of the tests, version 1 or 2."""

    def __init__(self, folder: Path, limit: Path) -> None:
        self.folder = folder
        self.limit = limit

    @property
    def kills(self) -> int:
        """Processes that the system killed for want of memory."""
        events = self.folder / ("memory.events" if self.limit.name == "memory.max" else "memory.oom_control")
        table = dict(line.split() for line in events.read_text().splitlines())
        return int(table["oom_kill"])


@contextmanager
def group(mib: int) -> Iterator[Group]:
    """A group with a limit; the test is skipped where none can be made."""
    place, limit = Path("/sys/fs/cgroup"), "memory.max"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            place, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
            place = place / path.lstrip("/")
            break
        if not controllers:
            place = Path("/sys/fs/cgroup") / path.lstrip("/")
    made = place / f"overwatch-test-{mib}"
    try:
        made.mkdir(exist_ok=True)
        (made / limit).write_text(str(mib << 20))
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    try:
        yield Group(made, made / limit)
    finally:
        until(lambda: not (made / "cgroup.procs").read_text().split(), "the group to be empty")
        made.rmdir()


def live_within(folder: Path, mib: int) -> None:
    """A run with far too many envs, kills, and runs that fit."""
    with group(mib) as own:
        quarter = Quarter(folder, sizes=(64, 256, 1024))
        command = quarter.collector._command
        enter = f'echo $$ > {own.folder}/cgroup.procs; exec "$@"'
        quarter.collector._command = ["sh", "-c", enter, "sh", *command]
        try:
            quarter.collector.start()
            hog, seen = Flown("hog", MANY), Measures()
            for _ in range(STEPS):
                quarter.emit(hog, seen)
            shown = until(lambda: quarter.shown(hog), "the run with too many envs")
            assert 0 < sum(shown.board.counts.values()) < MANY
            assert "too-many-names" in {finding.code for finding in shown.findings}
            for _ in range(3):
                quarter.collector.kill()
                quarter.collector.start()
                began = time.monotonic()
                until(lambda: quarter.shown(hog), "the run after a kill")
                until(lambda began=began: time.monotonic() - began > 2, "a loop to show")  # type: ignore[misc]
                quarter.check_alive()
            most = quarter.pass_by(8, 1, 0)
            assert not most.refusals
            quarter.check_alive()
            assert own.kills == 0
            quarter.collector.stop()
        finally:
            quarter.collector.kill()


def test_256_mib_are_enough(tmp_path: Path) -> None:
    """A run of 66,000 envs is capped and says so, restarts go on, and other runs are whole."""
    live_within(tmp_path, 256)


@pytest.mark.long
@pytest.mark.parametrize("mib", [300, 512])
def test_more_is_enough_too(tmp_path: Path, mib: int) -> None:
    """The same in larger groups."""
    live_within(tmp_path, mib)
