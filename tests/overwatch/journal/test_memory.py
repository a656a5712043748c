"""The in-memory journal: order, stamps, cursors, budget."""

import threading
from itertools import count, pairwise

import pytest

from overwatch.journal import JournalFullError, Lag, MemoryJournal, Signal


def test_stamps_rise_even_when_the_clock_stands_still_or_falls() -> None:
    """Two batches never share a stamp and never swap."""
    times = iter([100, 100, 50])
    journal = MemoryJournal(lambda: next(times))
    cursor = journal.cursor("a")
    for body in (b"1", b"2", b"3"):
        journal.append(Signal.LOGS, body)

    batches = cursor.wait(0)

    assert [batch.stamp for batch in batches] == [100, 101, 102]
    assert [batch.sequence for batch in batches] == [1, 2, 3]


def test_a_sealed_tick_gets_no_later_batch() -> None:
    """After a tick is sealed, a batch whose clock reads earlier is stamped after the tick."""
    times = iter([10, 20, 15])
    journal = MemoryJournal(lambda: next(times))
    cursor = journal.cursor("a")
    journal.append(Signal.LOGS, b"1")

    assert [batch.body for batch in cursor.seal(100)] == [b"1"]
    assert journal.append(Signal.LOGS, b"2").stamp == 101
    assert cursor.seal(100) == []
    assert [batch.body for batch in cursor.seal(200)] == [b"2"]


def test_a_batch_is_held_until_every_cursor_has_passed_it() -> None:
    """The slow reader still finds what the fast one has read; then the memory is free."""
    journal = MemoryJournal(count(1).__next__)
    fast, slow = journal.cursor("fast"), journal.cursor("slow")
    journal.append(Signal.LOGS, b"12345")

    assert len(fast.wait(0)) == 1
    assert journal.held_bytes == 5
    assert [batch.body for batch in slow.wait(0)] == [b"12345"]
    assert journal.held_bytes == 0


def test_a_full_journal_refuses_and_keeps_what_it_accepted() -> None:
    """Beyond the budget `append` raises; nothing accepted is lost and reading makes room."""
    journal = MemoryJournal(count(1).__next__, budget_bytes=10)
    cursor = journal.cursor("a")
    journal.append(Signal.LOGS, b"12345678")

    with pytest.raises(JournalFullError, match="a body of 3 bytes does not fit"):
        journal.append(Signal.LOGS, b"123")

    assert [batch.body for batch in cursor.wait(0)] == [b"12345678"]
    assert journal.append(Signal.LOGS, b"123").sequence == 2


def test_many_writers_get_gapless_numbers() -> None:
    """Eight threads append at once; every number is there once and stamps follow numbers."""
    journal = MemoryJournal(count(1).__next__)
    cursor = journal.cursor("a")

    def write() -> None:
        for _ in range(200):
            journal.append(Signal.METRICS, b"x")

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batches = cursor.wait(0)

    assert [batch.sequence for batch in batches] == list(range(1, 1601))
    assert all(a.stamp < b.stamp for a, b in pairwise(batches))


def test_a_reader_presses_alone() -> None:
    """The share of the room is that of the reader's own batches."""
    journal = MemoryJournal(count(1).__next__, budget_bytes=10)
    fast, slow = journal.cursor("fast"), journal.cursor("slow")
    for _ in range(2):
        journal.append(Signal.LOGS, b"123")
        fast.wait(0)

    assert journal.lag("fast") == Lag()
    assert journal.lag("slow") == Lag(batches=2, unread=0.6)
    assert journal.backlog == {"fast": 0, "slow": 6}
    assert journal.lag("nobody") == Lag()
    slow.wait(0)
    assert journal.lag("slow") == Lag()
