"""Lives that end for want of memory: the next one folds less of the past, and none repeats the one before."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch.collector.health import Health
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.lives import LASTS_S, OF_LIMIT, Lives
from overwatch.journal import Folder
from tests.overwatch.journal.faults import Fault, FaultyFiles

MIB = 1 << 20
LIMITS = LimitsConfig(limit_mib=1000, spike_limit_mib=0)
"""Requests are refused from 1000 MiB on."""


class Machine:
    """The memory and the time that a life sees."""

    def __init__(self, mib: int = 100) -> None:
        self.mib = mib
        self.seconds = 0.0
        self.oom_kills = 3
        self.health = Health()

    @contextmanager
    def life(self, path: Path) -> Iterator[Lives]:
        """A life; it is killed at the end of the block unless it stops before."""
        folder = Folder(path)
        try:
            yield Lives(
                folder,
                self.health,
                LIMITS,
                resident=lambda: self.mib * MIB,
                now=lambda: self.seconds,
                oom_kills=lambda: self.oom_kills,
            )
        finally:
            folder.close()


@pytest.mark.parametrize(
    ("mib", "stage", "counts"),
    [
        (100, "loading", True), (100, "folding", False), (600, "folding", True),
        (600, "running", False), (1100, "running", True), (1100, "stopped", False),
    ],
)  # fmt: skip
def test_a_kill_counts_where_memory_may_be_why(tmp_path: Path, mib: int, stage: str, *, counts: bool) -> None:
    """While the past is loaded, folded with much memory in use, or requests are refused; at no other time."""
    machine = Machine(mib)
    with machine.life(tmp_path / "j") as lives:
        if stage != "loading":
            lives.has_room()
        if stage in ("running", "stopped"):
            lives.done(0)
        if stage == "stopped":
            lives.stop()
    with machine.life(tmp_path / "j") as lives:
        assert lives.killed == counts
        assert not machine.health.degraded


def test_a_kill_that_the_kernel_counts_is_one_for_want_of_memory(tmp_path: Path) -> None:
    """Whatever the life took its memory to be; what others in the group suffered before is none."""
    machine = Machine(100)
    for oom_kills, killed in ((3, 0), (4, 1), (6, 2), (6, 0)):
        machine.oom_kills = oom_kills
        with machine.life(tmp_path / "j") as lives:
            assert lives.killed == killed
            lives.done(0)


def test_each_killed_life_leaves_less_to_the_next(tmp_path: Path) -> None:
    """First a smaller part of memory, then nothing of the past; a clean end begins anew."""
    machine = Machine()
    for killed, part in enumerate(OF_LIMIT):
        machine.mib = round(1000 * part)
        with machine.life(tmp_path / "j") as lives:
            assert (lives.killed, lives.folds_nothing, lives.has_room()) == (killed, False, True)
            machine.mib += 1
            assert not lives.has_room()
    for _ in range(2):
        machine.mib = 1
        with machine.life(tmp_path / "j") as lives:
            assert lives.folds_nothing
            assert not lives.has_room()
    with machine.life(tmp_path / "j") as lives:
        lives.stop()
    with machine.life(tmp_path / "j") as lives:
        assert lives.killed == 0


def test_a_life_that_lasts_ends_the_row(tmp_path: Path) -> None:
    """What it left out is no condition any more, and a kill after it is the first again."""
    machine = Machine(100)
    for _ in OF_LIMIT:
        with machine.life(tmp_path / "j"):
            pass
    with machine.life(tmp_path / "j") as lives:
        lives.leave_out("all of it")
        lives.done(7)
        assert "all of it, the last 7 batches" in machine.health.degraded["resume"]
        machine.seconds = LASTS_S - 1
        lives.look()
        assert machine.health.degraded
        machine.seconds = LASTS_S
        lives.look()
        assert not machine.health.degraded
    with machine.life(tmp_path / "j") as lives:
        assert lives.killed == 0


def test_where_memory_comes_back_the_past_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nothing uses is given back first; where that gives next to nothing no more is tried."""
    machine, given = Machine(1000), [200, 10, 0]

    def reclaim() -> None:
        machine.mib -= given.pop(0)

    monkeypatch.setattr("overwatch.collector.lives.reclaim", reclaim)
    with machine.life(tmp_path / "j") as lives:
        assert lives.has_room()
        machine.mib = 905
        assert not lives.has_room()
        machine.mib = 1
        assert not lives.has_room()
    assert given == [0]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"stage":"dancing"}', b"[]"])
def test_a_note_that_cannot_be_read_is_no_kill(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is passed over with a message, and written anew."""
    machine = Machine()
    with machine.life(tmp_path / "j"):
        (note,) = (tmp_path / "j").glob("lives*")
        note.write_bytes(damage)
    with machine.life(tmp_path / "j") as lives:
        assert lives.killed == 0
    assert "cannot be read" in caplog.text
    with machine.life(tmp_path / "j") as lives:
        assert lives.killed == 1


def test_a_disk_that_refuses_the_note_keeps_nobody_from_starting(tmp_path: Path) -> None:
    """Whichever call fails: the next start is only less careful."""
    for call in range(1, 8):
        fault = Fault(fail_at=call, forever=True)
        folder = Folder(tmp_path / f"{call}", lambda fd, fault=fault: FaultyFiles(fd, fault))  # type: ignore[misc]
        lives = Lives(folder, Health(), LIMITS, resident=lambda: MIB)
        assert lives.has_room()
        lives.stop()
        folder.close()
