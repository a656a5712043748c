"""Tables of sequences on disk: restarts, chunks that lie on disk alone, damage, the cap."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from overwatch.journal import Folder, Log
from overwatch_rl.replay import fold
from overwatch_rl.replay.base import Durability, Refused, Taken, Wait
from overwatch_rl.replay.sequences import Sequences
from tests.overwatch_rl.replay.sequencing import Driven, Player, check, chunk_of, number_of, numbers, on_disk


@pytest.mark.parametrize("memory_bytes", [None, 0, 2_000])
def test_the_next_life_begins_where_the_last_one_ended(tmp_path: Path, memory_bytes: int | None) -> None:
    """Over many files and five lives of random calls, with all chunks in memory, some, or none."""
    config = on_disk(tmp_path / "t", items=80, memory_bytes=memory_bytes)
    life = Driven(config)
    player = Player(life, Random(3))  # noqa: S311 a test's own chance
    files = set()
    for _ in range(5):
        player.play(300)
        check(life.table.state)
        files |= {path.name for path in (tmp_path / "t").glob("replay-*")}
        before = fold.snapshot(life.table.state, 0)
        life.close()
        player.life = life = Driven(config)
        assert life.table.store.recovery.damaged == 0
        assert life.table.store.recovery.lost == ()
        assert fold.snapshot(life.table.state, 0) == before
        check(life.table.state)
    life.close()

    assert player.unflagged == []
    assert player.life.table.state.account.acknowledged.items > 20
    assert len(files) > 5


def test_chunks_beyond_the_memory_lie_on_disk_alone(tmp_path: Path) -> None:
    """They are read back when they are leased, again when they come again, and in the next life."""
    config = on_disk(tmp_path / "t", memory_bytes=5_000)
    life = Driven(config)
    life.fill(200, steps=10)
    life.wait()
    life.fill(1, steps=10)
    size = life.table.store.held_bytes // 201

    assert sum(map(len, life.table.store.payloads.values())) <= 5_000 + 2 * size
    assert life.table.stats().spilled_bytes == life.table.store.held_bytes - sum(
        map(len, life.table.store.payloads.values())
    )
    assert numbers(life.lease(1_000)) == list(range(100))
    life.table.resume("l", 0, life.now)
    assert numbers(life.lease(1_500, 1)) == list(range(150))
    life.close()
    life = Driven(config)
    assert sum(map(len, life.table.store.payloads.values())) <= 5_000
    assert numbers(life.lease(510, 2, learner="m")) == list(range(150, 201))
    life.close()


def test_what_lives_in_nearly_dead_files_is_copied_forward(tmp_path: Path) -> None:
    """One old chunk does not keep its file: it is read back from the copy, in this life and the next."""
    config = on_disk(tmp_path / "t", memory_bytes=0)
    life = Driven(config)
    life.fill(1)
    life.wait()
    held = life.lease(2, learner="slow")
    assert held is not None
    first = next((tmp_path / "t").glob("replay-*")).name
    after = 0
    for _ in range(60):
        life.fill(10, steps=10)
        lease = life.lease(100, after)
        assert lease is not None
        after = lease.number
        life.table.acknowledge("l", after, life.now)
        life.wait()

    names = sorted(path.name for path in (tmp_path / "t").glob("replay-*"))
    assert first not in names
    assert len(names) < 8
    life.table.resume("slow", 0, life.now)
    assert numbers(life.lease(2, 1, learner="slow")) == [0]
    life.close()
    life = Driven(config)
    life.table.resume("slow", 0, life.now)
    assert numbers(life.lease(2, 2, learner="slow")) == [0]
    life.close()


def test_a_full_disk_cap_refuses_new_chunks_and_keeps_the_old(tmp_path: Path) -> None:
    """What was answered is leased; room comes back with what is used."""
    config = on_disk(tmp_path / "t", bytes=100_000, disk_bytes=270_000)
    life = Driven(config)
    sent, answer, after = 0, life.send(chunk_of(0, 50)), 0
    while isinstance(answer, Taken):
        life.wait()
        sent += 1
        answer = life.send(chunk_of(sent, 50))
    assert answer == Wait(reason="full")
    assert life.table.store.disk_bytes <= 270_000
    served: list[int] = []
    for _ in range(200):
        lease = life.lease(50, after)
        if lease is not None:
            after = lease.number
            served += numbers(lease)
            life.table.acknowledge("l", after, life.now)
        if isinstance(life.send(chunk_of(sent, 50)), Taken):
            sent += 1
        life.wait()
    life.close()

    assert sent > 150
    assert served == list(range(len(served)))
    assert len(served) > 150


def places(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """File, place and size of each record's payload."""
    log = Log(opened := Folder(folder), "replay")
    for record, offset in log.placed():
        part = [part for part in log.parts if part.first <= record.sequence][-1]
        yield folder / part.name, offset, len(record.payload)
    log.close()
    opened.close()


def flip(file: Path, at: int) -> None:
    """Damage one byte."""
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


def test_whatever_record_is_damaged_the_table_goes_on(tmp_path: Path) -> None:
    """Encoding, chunks, leases, acknowledgements, snapshots: each record in turn; the sums hold."""
    life = Driven(on_disk(tmp_path / "t", items=60))
    player = Player(life, Random(8))  # noqa: S311 a test's own chance
    player.play(120)
    live = set(life.table.state.items)
    life.close()
    damaged = 0
    for file, at, size in list(places(tmp_path / "t")):
        shutil.copytree(tmp_path / "t", tmp_path / "d")
        flip(tmp_path / "d" / file.name, at + size // 2 + 40)
        found = Driven(on_disk(tmp_path / "d", items=60))
        check(found.table.state)
        recovery = found.table.store.recovery
        assert (
            recovery.damaged or recovery.lost or recovery.torn_bytes or live == set(found.table.state.items)
        )
        lost = live - set(found.table.state.items)
        assert len(lost) <= 3
        damaged += bool(lost)
        again = Player(found, Random(1))  # noqa: S311 a test's own chance
        again.got = {name: learner.next_number - 1 for name, learner in found.table.state.learners.items()}
        again.got = {"l": 0, "m": 0} | again.got
        again.cursor = dict(again.got)
        again.play(20)
        check(found.table.state)
        found.close()
        shutil.rmtree(tmp_path / "d")
    assert damaged > 3


def test_a_chunk_that_cannot_be_read_back_is_lost_by_name(tmp_path: Path) -> None:
    """Damage to what lies on disk alone costs its own chunk: the others are leased, and the sums hold."""
    life = Driven(on_disk(tmp_path / "t", memory_bytes=0))
    life.fill(6)
    life.wait()
    life.fill(1)
    life.wait()
    life.fill(1)
    records = list(places_of(life))
    file, at, size = records[3]
    flip(file, at + size)

    first = life.lease(4)
    assert numbers(first) == [0, 1]
    lease = life.lease(6, 1)
    assert lease is not None
    assert [number_of(item.chunk) for item in lease.items] == [3, 4, 5]
    assert life.table.stats().removed == {"lost": 1}
    check(life.table.state)
    life.close()


def places_of(life: Driven) -> Iterator[tuple[Path, int, int]]:
    """The records of a table that is open."""
    log = life.table.store._log
    for record, offset in log.placed():
        part = [part for part in log.parts if part.first <= record.sequence][-1]
        yield log.folder.path / part.name, offset, len(record.payload)


def test_a_disk_that_refuses_is_an_answer(tmp_path: Path) -> None:
    """The folder is taken away: new chunks are refused with the reason, what was taken stays."""
    life = Driven(on_disk(tmp_path / "t", Durability.FSYNC))
    life.fill(3)
    life.wait()
    (tmp_path / "t").rename(tmp_path / "away")
    life.send(chunk_of(3))
    answer = None
    for _ in range(2_000):
        answer = life.send(chunk_of(4))
        if isinstance(answer, Refused):
            break
        life.now += 1
    assert isinstance(answer, Refused)
    assert answer.reason == "disk"
    assert "table 't' cannot write" in answer.message
    life.close()
    found = Driven(replace(on_disk(tmp_path / "away"), durability=Durability.FSYNC))
    assert numbers(found.lease(6)) == [0, 1, 2]
    found.close()


def test_a_folder_without_an_encoding_has_nothing(tmp_path: Path) -> None:
    """A table that was opened and never declared."""
    table = Sequences(on_disk(tmp_path / "t"))
    with pytest.raises(ValueError, match="table 't' has no encoding: declare it first"):
        table.append([chunk_of(0)], None, 1)
    table.close()
