"""How long the fold will take for what waits."""

import time

from overwatch.collector.fold_cursor import FOLD, FoldCursor
from overwatch.collector.tally import Tally
from overwatch.journal import MemoryJournal, Signal

MIB = 1 << 20


def test_the_fold_estimates_how_long_what_waits_will_take() -> None:
    """From the CPU that the last ticks took for their bytes; little that waits is no matter."""
    journal = MemoryJournal(time.time_ns, 1 << 30)
    pace = FoldCursor(journal.cursor(FOLD), journal, Tally(), frozenset())
    journal.append(Signal.LOGS, bytes(MIB))
    assert pace._estimate(time.monotonic()) == 0
    assert len(pace.seal(time.time_ns())) == 1
    spent = time.thread_time()
    while time.thread_time() - spent < 0.2:
        pass
    assert pace.seal(time.time_ns()) == []
    assert pace._estimate(time.monotonic()) == 0
    for _ in range(20):
        journal.append(Signal.LOGS, bytes(MIB))
    assert 2 <= pace._estimate(time.monotonic()) <= 8


def test_a_fold_that_is_at_one_tick_for_long_is_behind() -> None:
    """Even where nothing was learnt yet, and nothing waits besides."""
    journal = MemoryJournal(time.time_ns, 1 << 30)
    pace = FoldCursor(journal.cursor(FOLD), journal, Tally(), frozenset())
    journal.append(Signal.LOGS, bytes(2 * MIB))
    pace.seal(time.time_ns())
    pace._taken_at -= 60
    assert pace._estimate(time.monotonic()) >= 60


def test_an_estimate_counts_for_a_moment() -> None:
    """Asking for each request costs nothing."""
    journal = MemoryJournal(time.time_ns, 1 << 30)
    pace = FoldCursor(journal.cursor(FOLD), journal, Tally(), frozenset())
    journal.append(Signal.LOGS, bytes(2 * MIB))
    pace.seal(time.time_ns())
    pace._taken_at -= 60
    assert len({pace.behind_s() for _ in range(100)}) < 100
