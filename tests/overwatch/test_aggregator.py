"""The aggregator thread: frames come, a failing sink harms nobody, the end is complete."""

import itertools
import threading
import time
from pathlib import Path

import pytest

from overwatch.aggregator import MAX_VIEWS, Aggregator, Frame, Resumed
from overwatch.fold import FAST_NS, Fold
from overwatch.journal import Batch, DurableJournal, Folder, MemoryJournal, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.snapshot import View
from overwatch.snapshot.history import HistoryQuery
from tests import fakes
from tests.fakes import ORIGIN
from tests.overwatch.collector.running import eventually
from tests.overwatch.journal.faults import Fault, FaultyFiles


class Keeper:
    """Keeps every frame and rings when a run is in one."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.seen = threading.Event()

    def publish(self, frame: Frame) -> None:
        """Keep the frame."""
        self.frames.append(frame)
        if frame.snapshots:
            self.seen.set()

    def close(self) -> None:
        """Nothing is open."""


class Broken:
    """Fails at every frame."""

    def publish(self, frame: Frame) -> None:
        """Fail."""
        raise OSError(f"no room for tick {frame.tick}")

    def close(self) -> None:
        """Nothing is open."""


def _body(index: int) -> bytes:
    at = time.time_ns()
    return request(
        fakes.records([fakes.policy(at, index=index, entropy=0.5)], first_seq=index),
        origin_attributes(ORIGIN),
    )


def test_frames_are_consecutive_ticks_and_carry_what_was_appended() -> None:
    """Every multiple of 100 ms is taken once, in order; a run appears within its tick."""
    journal, keeper = MemoryJournal(time.time_ns), Keeper()
    aggregator = Aggregator(journal.cursor("aggregator"), time.time_ns, [keeper])
    aggregator.start()
    journal.append(Signal.LOGS, _body(1))
    assert keeper.seen.wait(10)
    last = aggregator.stop(10)

    ticks = [frame.tick for frame in keeper.frames]
    assert ticks == list(range(ticks[0], last + FAST_NS, FAST_NS))
    assert aggregator.frame is keeper.frames[-1]


def test_the_past_is_answered_by_the_thread_of_the_fold() -> None:
    """From any thread: of the run that is meant, of none, and of one whose answer fails."""
    journal, keeper = MemoryJournal(time.time_ns), Keeper()
    aggregator = Aggregator(journal.cursor("aggregator"), time.time_ns, [keeper])
    aggregator.start()
    journal.append(Signal.LOGS, _body(1))
    assert keeper.seen.wait(10)
    found = aggregator.history(None, HistoryQuery()).result(10)
    other = aggregator.history("other", HistoryQuery()).result(10)
    wrong = aggregator.history(None, HistoryQuery(names=(7,)))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        wrong.result(10)
    assert aggregator.history(None, HistoryQuery()).result(10) is not None
    aggregator.stop(10)

    assert found is not None
    assert "entropy" in found.names
    assert other is None


def test_the_past_is_answered_while_the_disk_of_the_journal_does_not(tmp_path: Path) -> None:
    """What is being written holds up the next tick, not who looks at what was folded before."""
    fault, keeper = Fault(), Keeper()
    folder = Folder(tmp_path / "j", lambda fd: FaultyFiles(fd, fault))
    journal = DurableJournal(folder, time.time_ns)
    aggregator = Aggregator(journal.cursor("aggregator"), time.time_ns, [keeper])
    aggregator.start()
    journal.append(Signal.LOGS, _body(1))
    assert keeper.seen.wait(10)
    fault.stalled = {"sync"}
    coming = journal.submit(Signal.LOGS, _body(2))
    try:
        # Ticks up to that of what is being written come as always; from then on none does.
        eventually(lambda: aggregator.behind_s() > 1)
        found = aggregator.history(None, HistoryQuery()).result(10)
    finally:
        fault.answers.set()
    coming.result(10)
    aggregator.stop(10)
    journal.close()
    folder.close()

    assert found is not None
    assert "entropy" in found.names


def test_a_failing_sink_is_counted_and_the_others_go_on() -> None:
    """One dead exporter never takes the frame from another."""
    journal, keeper = MemoryJournal(time.time_ns), Keeper()
    aggregator = Aggregator(journal.cursor("aggregator"), time.time_ns, [Broken(), keeper])
    aggregator.start()
    journal.append(Signal.LOGS, _body(1))
    assert keeper.seen.wait(10)
    aggregator.stop(10)

    assert aggregator.sink_errors == len(keeper.frames)


class Poisoned(Fold):
    """A fold that does not outlive one batch."""

    def _apply(self, batch: Batch) -> None:
        if batch.body == b"poison":
            raise ZeroDivisionError("this very batch")
        super()._apply(batch)


def test_an_error_of_ours_takes_one_tick(caplog: pytest.LogCaptureFixture) -> None:
    """Frames go on with the next, and what comes then is in them; it is logged with its trace."""
    journal, keeper = MemoryJournal(time.time_ns), Keeper()
    aggregator = Aggregator(journal.cursor("aggregator"), time.time_ns, [keeper], Resumed(fold=Poisoned()))
    journal.append(Signal.LOGS, b"poison")
    aggregator.start()
    while aggregator.faults == 0 and aggregator.is_running:
        time.sleep(0.01)
    journal.append(Signal.LOGS, _body(1))
    assert keeper.seen.wait(10)
    aggregator.stop(10)

    assert aggregator.faults == 1
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_an_error_of_ours_in_an_earlier_life_does_not_end_this_one(tmp_path: Path) -> None:
    """What the journal holds is folded again, all but its tick, at each start."""
    folder = Folder(tmp_path)
    for life in range(2):
        journal, keeper = DurableJournal(folder, time.time_ns), Keeper()
        resumed = Resumed(fold=Poisoned())
        cursor = journal.cursor("aggregator", journal.first_sequence)
        aggregator = Aggregator(cursor, time.time_ns, [keeper], resumed)
        if life == 0:
            for body in (_body(1), b"poison"):
                journal.append(Signal.LOGS, body)
        aggregator.start()
        assert keeper.seen.wait(10)
        aggregator.stop(10)
        journal.close()
        assert aggregator.faults == 1
    folder.close()


def test_what_is_left_out_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """The first time with its reason, and when it has become twice as often; not each time."""
    began = time.time_ns() - 30 * FAST_NS
    stamps = itertools.count(began, FAST_NS)
    journal, keeper = MemoryJournal(lambda: next(stamps)), Keeper()
    aggregator = Aggregator(journal.cursor("aggregator"), time.time_ns, [keeper])
    for _ in range(20):
        journal.append(Signal.LOGS, b"\xff\xff garbage")
    aggregator.start(began)
    aggregator.stop(10)

    assert keeper.frames[-1].tower.problems == 20
    stated = [record.getMessage() for record in caplog.records]
    assert [text.split(" so far")[0] for text in stated] == [
        f"the fold left out {n}" for n in (1, 2, 4, 8, 16)
    ]
    assert str(keeper.frames[-1].tower.last_problem) in stated[0]


def test_what_was_appended_before_the_stop_is_in_the_last_frame() -> None:
    """Stopping folds everything that was accepted, and ends on a slow tick that logs it."""
    journal, keeper = MemoryJournal(time.time_ns), Keeper()
    aggregator = Aggregator(journal.cursor("aggregator"), time.time_ns, [keeper])
    aggregator.start()
    for index in range(1, 51):
        journal.append(Signal.LOGS, _body(index))
    aggregator.stop(10)

    assert keeper.frames[-1].snapshots["run-1", View()].run.update == 50
    assert [frame.recorded[-1].run.update for frame in keeper.frames if frame.recorded][-1] == 50


def test_views_are_bounded_and_given_back() -> None:
    """The thirty-third different view is refused; the same one may be watched again."""
    aggregator = Aggregator(MemoryJournal(time.time_ns).cursor("a"), time.time_ns)
    for rows in range(1, MAX_VIEWS + 1):
        aggregator.watch(None, View(rows=rows))
    aggregator.watch(None, View(rows=1))
    with pytest.raises(ValueError, match="32 different views"):
        aggregator.watch(None, View(rows=999))
    aggregator.unwatch(None, View(rows=2))

    aggregator.watch(None, View(rows=999))


def test_how_far_the_frames_are_behind_the_clock_is_known() -> None:
    """By the tick of the latest one; nothing is behind before there is any."""
    now = fakes.START_NS
    aggregator = Aggregator(MemoryJournal(lambda: now).cursor("aggregator"), lambda: now)
    before, now = aggregator.behind_s(), now + 280 * 10**9
    aggregator.frame = Fold().advance(fakes.START_NS, [], ())

    assert (before, aggregator.behind_s()) == (0.0, 280.0)
