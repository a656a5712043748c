"""Gaps: where neither a batch was stamped nor a tick sealed for long, in memory and on disk alike."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from overwatch.journal import Batch, DurableJournal, Folder, Gap, MemoryJournal, Signal
from overwatch.journal.stamps import AWAY_NS
from tests.overwatch.journal.faults import Fault, FaultyFiles

Opened: TypeAlias = MemoryJournal | DurableJournal
HOUR_NS = 3_600_000_000_000


class Clock:
    """Stands until it is set."""

    def __init__(self) -> None:
        self.now = 1_000 * AWAY_NS

    def __call__(self) -> int:
        """The time."""
        return self.now


@contextmanager
def durable(path: Path, clock: Callable[[], int], fault: Fault | None = None) -> Iterator[DurableJournal]:
    """A journal in a folder."""
    folder = Folder(path, lambda fd: FaultyFiles(fd, fault or Fault()))
    journal = DurableJournal(folder, clock)
    try:
        yield journal
    finally:
        journal.close()
        folder.close()


@pytest.fixture(params=["memory", "disk"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Opened, Clock]]:
    """A journal that notes gaps, and its clock."""
    clock = Clock()
    with ExitStack() as stack:
        journal: Opened = MemoryJournal(clock)
        if request.param == "disk":
            journal = stack.enter_context(durable(tmp_path / "j", clock))
        journal.append(Signal.START, b"first")
        journal.note_gaps(lambda before: b"after %d" % before)
        yield journal, clock


def shown(batches: list[Batch]) -> list[tuple[int, Signal, bytes]]:
    """Numbers, signals and bodies."""
    return [(batch.sequence, batch.signal, batch.body) for batch in batches]


def test_a_start_stands_before_what_comes_first_after_a_gap(opened: tuple[Opened, Clock]) -> None:
    """Its body knows the newest stamp before the gap, and every reader sees it in its place."""
    journal, clock = opened
    cursor, other = journal.cursor("a"), journal.cursor("b")
    before = journal.append(Signal.LOGS, b"1").stamp
    clock.now += HOUR_NS
    journal.append(Signal.LOGS, b"2")
    read = cursor.wait(0)

    assert shown(read) == [
        (2, Signal.LOGS, b"1"),
        (3, Signal.START, b"after %d" % before),
        (4, Signal.LOGS, b"2"),
    ]
    assert [batch.stamp for batch in read[1:]] == [clock.now, clock.now + 1]
    assert other.wait(0) == read


def test_a_tick_in_a_gap_is_not_sealed(opened: tuple[Opened, Clock]) -> None:
    """The reader of ticks is the first to come back: it gets the gap, and the start at the tick after it."""
    journal, clock = opened
    cursor = journal.cursor("a")
    sealed = clock.now + 100
    assert cursor.reach(sealed) is None
    clock.now += HOUR_NS

    gap = Gap(before=sealed, stamp=clock.now)
    assert cursor.reach(sealed + 100) == gap
    assert cursor.reach(sealed + 200) == gap
    assert cursor.reach(clock.now + 1) is None
    assert shown(cursor.seal(clock.now + 1)) == [(2, Signal.START, b"after %d" % sealed)]
    assert journal.append(Signal.LOGS, b"1").stamp == clock.now + 2


def test_two_gaps_are_passed_one_after_the_other(opened: tuple[Opened, Clock]) -> None:
    """A reader of ticks that is behind both takes what lies between them."""
    journal, clock = opened
    cursor = journal.cursor("a")
    gaps = []
    for body in (b"1", b"2"):
        before = clock.now + (body == b"2")
        clock.now += HOUR_NS
        journal.append(Signal.LOGS, body)
        gaps.append(Gap(before=before, stamp=clock.now))
    first, second = gaps

    assert cursor.reach(first.before + 1) == first
    assert cursor.reach(first.stamp + 1) is None
    assert [batch.body for batch in cursor.seal(first.stamp + 1)] == [b"after %d" % first.before, b"1"]
    assert cursor.reach(second.before + 1) == second
    assert cursor.reach(second.stamp) is None


def test_a_slow_reader_or_an_idle_door_is_no_gap(opened: tuple[Opened, Clock]) -> None:
    """Batches that come, or ticks that are sealed, show that the process runs."""
    journal, clock = opened
    cursor, began = journal.cursor("a"), clock.now
    for _ in range(10):
        clock.now += AWAY_NS
        journal.append(Signal.LOGS, b"1")
    assert cursor.reach(began + 1) is None
    for _ in range(10):
        clock.now += AWAY_NS
        assert cursor.reach(clock.now) is None
    journal.append(Signal.LOGS, b"2")

    assert {batch.signal for batch in cursor.wait(0)} == {Signal.LOGS}


def test_a_gap_is_noted_though_the_disk_refuses(tmp_path: Path) -> None:
    """Readers see the start at once; it is on disk before the first batch for which there is room again."""
    clock, fault = Clock(), Fault()
    with durable(tmp_path / "j", clock, fault) as journal:
        journal.append(Signal.START, b"first")
        journal.note_gaps(lambda before: b"after %d" % before)
        cursor, before = journal.cursor("a"), clock.now
        fault.refused.add("write")
        clock.now += HOUR_NS
        assert cursor.reach(before + 1) == Gap(before=before, stamp=clock.now)
        start = cursor.seal(clock.now)
        fault.refused.clear()
        journal.append(Signal.LOGS, b"1")
        written = shown(journal.cursor("all", 1).wait(0))

    expected = (2, Signal.START, b"after %d" % before)
    assert shown(start) == [expected]
    assert written == [(1, Signal.START, b"first"), expected, (3, Signal.LOGS, b"1")]


def test_a_writer_that_is_stuck_does_not_hold_the_reader_of_ticks_for_ever(tmp_path: Path) -> None:
    """A disk that answers late: a tick is taken late, and the gap is noted once the writer is back."""
    clock = Clock()
    with durable(tmp_path / "j", clock) as journal:
        journal.append(Signal.START, b"first")
        journal.note_gaps(lambda before: b"after %d" % before)
        cursor, before = journal.cursor("a"), clock.now
        with journal._commit.files:
            journal.submit(Signal.LOGS, b"1")
            while journal._commit.waiting:
                time.sleep(0.001)
            clock.now += HOUR_NS
            assert cursor.reach(before + 1) is None
        assert cursor.reach(before + 2) == Gap(before=before + 1, stamp=clock.now)
        assert [batch.body for batch in cursor.seal(clock.now + 1)] == [b"after %d" % (before + 1), b"1"]
