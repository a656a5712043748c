"""Checkpoints of the fold: kept in turn, loaded again, and passed over when they cannot be used."""

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from overwatch import __version__
from overwatch.aggregator import Checkpoint
from overwatch.collector.checkpoints import (
    BYTES_A_SECOND,
    EVERY_NS,
    IDLE_NS,
    MOST_BYTES,
    NAMES,
    VERSION,
    Checkpoints,
)
from overwatch.collector.health import Health
from overwatch.fold import FAST_NS, Fold
from overwatch.journal import Batch, Durability, DurableJournal, Folder, JournalLimits, Signal
from tests.overwatch.collector.running import reported, update
from tests.overwatch.journal.faults import Fault, FaultyFiles

HEAD = struct.Struct("<4sBI")


def folded(run_id: str) -> bytes:
    """A fold that knows one run."""
    fold = Fold()
    batch = Batch(sequence=1, stamp=FAST_NS, signal=Signal.LOGS, body=reported(run_id, [update(0.01)]))
    fold.advance(FAST_NS, [batch], ())
    return fold.dump()


def taken(position: int) -> Checkpoint:
    """A checkpoint at a position, which knows a run of that name."""
    fold = folded(f"run-{position}")
    return Checkpoint(tick=position * FAST_NS, position=position, batches=1, ticks=1, fold=fold)


def write(path: Path, *positions: int) -> None:
    """One life that keeps checkpoints at these positions, each knowing a run of that name."""
    folder = Folder(path)
    checkpoints = Checkpoints(folder, Health())
    checkpoints.load()
    checkpoints.start()
    for position in positions:
        checkpoints._write(taken(position))
    checkpoints.stop()
    folder.close()


def read(path: Path) -> tuple[str | None, int, int] | None:
    """The newest run, the tick and the position of what a next life goes on from."""
    folder = Folder(path)
    found = Checkpoints(folder, Health()).load()
    folder.close()
    return None if found is None else (found[0].fold.newest, found[0].tick, found[1])


def test_the_newest_one_is_gone_on_from(tmp_path: Path) -> None:
    """Whichever of the two files it lies in, over several lives."""
    assert read(tmp_path / "j") is None
    write(tmp_path / "j", 5)
    assert read(tmp_path / "j") == ("run-5", 5 * FAST_NS, 5)
    write(tmp_path / "j", 7, 9)
    assert read(tmp_path / "j") == ("run-9", 9 * FAST_NS, 9)
    write(tmp_path / "j", 11)
    assert read(tmp_path / "j") == ("run-11", 11 * FAST_NS, 11)


def test_of_two_at_one_position_the_later_tick_is_gone_on_from(tmp_path: Path) -> None:
    """Nothing came between them, and the ticks between are folded all the same, whichever file has which."""
    for ticks in ((5, 9), (5, 6, 9)):
        folder = Folder(tmp_path / f"{len(ticks)}")
        checkpoints = Checkpoints(folder, Health())
        for tick in ticks:
            checkpoints._write(replace(taken(5), tick=tick * FAST_NS))
        folder.close()
        assert read(tmp_path / f"{len(ticks)}") == ("run-5", 9 * FAST_NS, 5)


@pytest.mark.parametrize("harm", ["empty", "cut", "flip", "layout", "version", "fold", "link"])
def test_one_that_cannot_be_used_leaves_the_one_before(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage, another layout, another version: each is reported, and the older one is used."""
    write(tmp_path / "j", 5, 7)
    newest = tmp_path / "j" / NAMES[1]
    data = newest.read_bytes()
    kept = msgspec.msgpack.decode(data[HEAD.size :])
    other = {**kept, "version": "0.0.1"} if harm == "version" else {**kept, "fold": b"\x93\x01"}
    body = msgspec.msgpack.encode(other)
    harmed = {
        "empty": b"",
        "cut": data[:-1],
        "flip": data[:100] + bytes([data[100] ^ 1]) + data[101:],
        "layout": HEAD.pack(data[:4], 2, 0) + b"whatever comes",
        "version": HEAD.pack(data[:4], VERSION, zlib.crc32(body)) + body,
        "fold": HEAD.pack(data[:4], VERSION, zlib.crc32(body)) + body,
    }
    newest.unlink()
    if harm == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        newest.symlink_to(tmp_path / "elsewhere")
    else:
        newest.write_bytes(harmed[harm])

    assert read(tmp_path / "j") == ("run-5", 5 * FAST_NS, 5)
    assert NAMES[1] in caplog.text
    assert kept["version"] == __version__


def test_a_disk_that_refuses_leaves_both_as_they_were(tmp_path: Path) -> None:
    """Each call on the way may fail, and the next life still finds a whole checkpoint."""
    write(tmp_path / "j", 5, 7)
    for call in range(1, 8):
        fault = Fault(fail_at=call, forever=True)
        folder = Folder(tmp_path / "j", lambda fd, fault=fault: FaultyFiles(fd, fault))  # type: ignore[misc]
        health = Health()
        checkpoints = Checkpoints(folder, health)
        checkpoints.load()
        checkpoints._write(taken(9))
        folder.close()
        found = read(tmp_path / "j")
        assert found is not None
        assert found[2] in (7, 9)
        assert ("checkpoints" in health.degraded) or found[2] == 9


def test_one_that_is_too_large_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A sparse file of any size costs a start nothing; the older one is used."""
    write(tmp_path / "j", 5, 7)
    with (tmp_path / "j" / NAMES[1]).open("r+b") as file:
        file.truncate(1 << 43)

    assert read(tmp_path / "j") == ("run-5", 5 * FAST_NS, 5)
    assert "larger than any checkpoint" in caplog.text


def test_the_next_one_comes_by_what_one_costs_and_by_what_changed(tmp_path: Path) -> None:
    """Half a minute apart where they are small; later where they are large or slow, or nothing comes."""
    folder = Folder(tmp_path / "j")
    checkpoints = Checkpoints(folder, Health())
    journal = DurableJournal(folder, lambda: FAST_NS, JournalLimits())
    body = bytes(MOST_BYTES // 4)
    checkpoints.attach(journal, journal.cursor("aggregator"))
    tick, small, second = 100 * EVERY_NS, taken(5), EVERY_NS // 30

    def first_due(checkpoint: Checkpoint, *come: bytes) -> int:
        checkpoints.keep(replace(checkpoint, tick=tick))
        for one in come:
            journal.append(Signal.LOGS, one)
        return next(at for at in range(0, 400 * EVERY_NS, second) if checkpoints.due(tick + at))

    assert first_due(small, b"body") == EVERY_NS
    assert first_due(small) == IDLE_NS
    large = replace(small, fold=bytes(120 * BYTES_A_SECOND))
    assert first_due(large, b"body") == 120 * second
    assert first_due(replace(small, took_s=4.0), b"body") == 200 * second
    assert first_due(large, *[body] * 5) == 120 * second
    assert first_due(small, *[body] * 5) == 0
    journal.close()
    folder.close()


@pytest.mark.parametrize("fold_bytes", [1 << 10, 1 << 20, 8 << 20])
@pytest.mark.parametrize("disk_mib", [4, 16])
def test_a_journal_is_never_full_for_want_of_one(tmp_path: Path, disk_mib: int, fold_bytes: int) -> None:
    """However small its room and large the fold: what came since the last but one does not fill it."""
    folder = Folder(tmp_path / "j")
    disk = disk_mib << 20
    limits = JournalLimits(durability=Durability.FAST, disk_bytes=disk, segment_bytes=disk // 16)
    journal = DurableJournal(folder, lambda: FAST_NS, limits)
    cursor = journal.cursor("aggregator", 1)
    checkpoints = Checkpoints(folder, Health())
    checkpoints.attach(journal, cursor)
    body, most = bytes(disk // 64), 0
    for _ in range(64 * 4):
        journal.append(Signal.LOGS, body)
        cursor.wait(1.0)
        most = max(most, journal.disk_bytes)
        if checkpoints.due(FAST_NS):
            checkpoint = replace(taken(cursor.position), tick=FAST_NS, fold=bytes(fold_bytes))
            checkpoints.keep(checkpoint)
            checkpoints._write(checkpoint)
    journal.close()
    folder.close()

    assert disk // 4 < most < disk
