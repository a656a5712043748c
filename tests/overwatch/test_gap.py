"""A collector that does not run for a while: its own absence is no silence of trainers, live and replayed."""

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.aggregator import Aggregator, Checkpoint, Frame, Resumed
from overwatch.events import Event, Record
from overwatch.feeds.recording import Recording
from overwatch.feeds.sources import Segments
from overwatch.fold import SLOW_NS, Fold, LifeStarted
from overwatch.journal import DurableJournal, Folder, Signal
from overwatch.journal.stamps import AWAY_NS
from overwatch.otlp.encode import origin_attributes, request
from overwatch.snapshot import View
from overwatch.state.sources import STALE_S
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS

LIFE = LifeStarted(version="1", pid=1)
HOUR_S = 3600
SILENCE = {"telemetry-stale", "run-lost", "run-silent", "producer-gone", "training-stalled"}


class Collector:
    """A journal and its fold under a clock that the test holds, one run, and every frame that was live."""

    def __init__(self, journal: DurableJournal) -> None:
        self.now = START_NS
        self.frames: list[Frame] = []
        self.kept: list[Checkpoint] = []
        self.journal = journal
        self.sent = 0

    def begin(self) -> None:
        """A life of a collector, as the service begins it."""
        self.journal.append(Signal.START, LIFE.going_on(0))
        self.journal.note_gaps(LIFE.going_on)
        cursor = self.journal.cursor("aggregator", 1)
        self.aggregator = Aggregator(cursor, self.clock, [self], Resumed(), self)
        self.send(fakes.started(self.now))

    def clock(self) -> int:
        """The time."""
        return self.now

    def publish(self, frame: Frame) -> None:
        """Keep it."""
        self.frames.append(frame)

    def close(self) -> None:
        """Nothing is open."""

    def due(self, tick: int) -> bool:
        """Every five seconds."""
        return tick % (5 * SLOW_NS) == 0

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keep it."""
        self.kept.append(checkpoint)

    def send(self, event: Event) -> None:
        """One record of the run comes in."""
        self.sent += 1
        body = request([Record(origin=ORIGIN, event=event, seq=self.sent)], origin_attributes(ORIGIN))
        self.journal.append(Signal.LOGS, body)

    def run(self, seconds: int, *, is_alive: bool = True) -> None:
        """The fold takes its ticks, and a trainer that lives sends an update a second."""
        for _ in range(seconds):
            self.now += SECOND
            if is_alive:
                self.send(fakes.policy(self.now, index=self.sent, entropy=0.5))
            self.fold()

    def fold(self) -> None:
        """Take whatever ticks are due."""
        while self.aggregator._tick <= self.now:
            self.aggregator._take_tick()

    def sleep(self, seconds: float) -> None:
        """Nothing here runs."""
        self.now += int(seconds * SECOND)

    def opened(self, since: int = 0) -> set[str]:
        """The findings about silence that were open at some tick after `since`."""
        shown = (one for frame in self.frames if frame.tick > since for one in frame.snapshots.values())
        return {finding.code for snapshot in shown for finding in snapshot.findings} & SILENCE


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    """One with a journal in `j`."""
    folder = Folder(tmp_path / "j")
    made: list[Collector] = []
    journal = DurableJournal(folder, lambda: made[0].now)
    made.append(Collector(journal))
    made[0].begin()
    yield made[0]
    journal.close()
    folder.close()


def digest(frames: list[Frame]) -> list[tuple[int, list[bytes]]]:
    """Ticks, and all that was shown at each."""
    return [(frame.tick, [codec.encode(shown) for shown in frame.snapshots.values()]) for frame in frames]


def gone_on(path: Path, resumed: Resumed, position: int) -> bytes:
    """The fold of the next life of a collector, with all of the journal in it."""
    folder = Folder(path)
    journal = DurableJournal(folder, lambda: START_NS)
    aggregator = Aggregator(journal.cursor("aggregator", position), lambda: START_NS, (), resumed)
    aggregator._catch_up()
    dump = aggregator._fold.dump()
    journal.close()
    folder.close()
    return dump


def test_an_hour_without_the_collector_is_no_silence_of_a_trainer(collector: Collector) -> None:
    """It lives before and after: nothing is found, and of the hour almost no tick is taken."""
    collector.run(20)
    before = len(collector.frames)
    collector.sleep(HOUR_S)
    collector.fold()
    collector.run(20)

    assert collector.opened() == set()
    assert len(collector.frames) - before < 20 * 10 + 5


def test_a_gap_too_short_to_be_one_is_no_finding_either(collector: Collector) -> None:
    """Its ticks are taken late; a trainer may have been silent for a moment before."""
    assert AWAY_NS / 1e9 <= STALE_S / 2
    for _ in range(5):
        collector.run(3)
        collector.sleep(AWAY_NS / 1e9 - 1.5)
        collector.fold()
        collector.sleep(1.4)
        collector.fold()

    assert collector.opened() == set()


@pytest.mark.parametrize("first", ["the fold", "the door"])
def test_a_replay_of_a_gap_shows_what_was_live(collector: Collector, tmp_path: Path, first: str) -> None:
    """Whoever notices it first: every frame is the same; so is a fold that goes on from any checkpoint."""
    for seconds in (1.23, 7.0, HOUR_S, 2.49, 2.51, 30.05):
        collector.run(4)
        collector.sleep(seconds)
        if first == "the fold":
            collector.fold()
        collector.send(fakes.policy(collector.now, index=collector.sent, entropy=0.5))
        collector.fold()
    collector.run(3)
    collector.sleep(0.1)
    collector.fold()
    replayed = list(Recording(tmp_path / "j", Segments(tmp_path / "j")).frames())

    assert digest(replayed) == digest(collector.frames)
    assert any(one.tick - other.tick > (HOUR_S - 1) * SECOND for other, one in pairwise(collector.frames))
    assert len(collector.kept) > 4
    shutil.copytree(tmp_path / "j", tmp_path / "next", ignore=shutil.ignore_patterns("lock"))
    whole = gone_on(tmp_path / "next", Resumed(), 1)
    for kept in collector.kept:
        resumed = Resumed(fold=Fold.load(kept.fold), tick=kept.tick)
        assert gone_on(tmp_path / "next", resumed, kept.position) == whole


def test_a_trainer_that_dies_while_the_collector_is_away_is_found(collector: Collector) -> None:
    """Its silence counts from the return: stale after seconds, then lost."""
    collector.run(20)
    collector.sleep(HOUR_S)
    returned = collector.now
    collector.run(int(STALE_S) - 1, is_alive=False)
    assert collector.opened() == set()
    collector.run(70, is_alive=False)

    assert collector.opened(returned) == {"telemetry-stale", "run-lost"}


def test_what_was_lost_before_stays_lost(collector: Collector) -> None:
    """A gap excuses who was silent through it, not who was gone before."""
    collector.run(20)
    collector.run(70, is_alive=False)
    for _ in range(5):
        collector.sleep(60)
        returned = collector.now
        collector.run(3, is_alive=False)
        states = [frame.snapshots[ORIGIN.run_id, View()].link.state for frame in collector.frames[-25:]]
        assert set(states) == {"lost"}
        assert collector.opened(returned) == {"run-lost"}


def test_a_collector_that_stops_over_and_over_still_finds_a_dead_trainer(collector: Collector) -> None:
    """What it is awake between the gaps adds up, as long as nothing comes."""
    collector.run(20)
    for _ in range(10):
        collector.sleep(8)
        collector.run(2, is_alive=False)

    assert "telemetry-stale" in collector.opened()
