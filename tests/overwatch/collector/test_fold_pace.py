"""How long the fold will take for what waits."""

import time

from overwatch.collector.fold_pace import FoldPace
from overwatch.journal import MemoryJournal, Signal

MIB = 1 << 20


def test_the_fold_tells_how_long_what_waits_will_take() -> None:
    """From the CPU that the last ticks took for their bytes; little that waits is no matter."""
    journal = MemoryJournal(time.time_ns, 1 << 30)
    pace = FoldPace(journal.cursor("fold"), lambda: journal.backlog["fold"])
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
    pace = FoldPace(journal.cursor("fold"), lambda: journal.backlog["fold"])
    journal.append(Signal.LOGS, bytes(2 * MIB))
    pace.seal(time.time_ns())
    pace._taken_at -= 60
    assert pace._estimate(time.monotonic()) >= 60


def test_an_estimate_counts_for_a_moment() -> None:
    """Asking for each request costs nothing."""
    asked: list[None] = []
    pace = FoldPace(MemoryJournal(time.time_ns).cursor("fold"), lambda: asked.append(None) or 0)  # type: ignore[func-returns-value] # it counts
    assert {pace.behind_s() for _ in range(100)} == {0.0}
    assert 1 <= len(asked) < 100
