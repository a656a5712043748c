"""Going on after a restart: the aggregator's fold is the one that never stopped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.aggregator import Aggregator, Checkpoint, Resumed
from overwatch.events import Event, Origin, Record, RunFinished
from overwatch.fold import FAST_NS, Fold
from overwatch.journal import Batch, DurableJournal, Folder, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.runs import Room
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS


class Checkpoints:
    """Keeps every checkpoint; one is due at every `every`th tick."""

    def __init__(self, every: int = 0) -> None:
        self.every = every
        self.kept: list[Checkpoint] = []

    def due(self, tick: int) -> bool:
        """Whether it is time."""
        return bool(self.every) and tick // FAST_NS % self.every == 0

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keep it."""
        self.kept.append(checkpoint)


def reported(index: int) -> bytes:
    """One update of a run."""
    at = START_NS + index * SECOND
    update = fakes.policy(at, index=index, entropy=0.5)
    return request(fakes.records([update], first_seq=index), origin_attributes(ORIGIN))


def lives(path: Path, *spans: tuple[int, int]) -> None:
    """Lives of a collector that each end at once, emitting one update a second."""
    for number, (first, last) in enumerate(spans):
        folder = Folder(path)
        times = iter(START_NS + n * SECOND + 7 for n in range(first - 1, last))
        journal = DurableJournal(folder, times.__next__)
        body = b"{}" if number == 0 else b'{"after": 0}'
        journal.append(
            Signal.START, b'{"version":"1","pid":1,"config_digest":"0",' + body[1:] if len(body) > 2 else body
        )
        for index in range(first, last):
            journal.append(Signal.LOGS, reported(index))
        journal.close()
        folder.close()


def caught_up(
    path: Path, sink: Checkpoints, resumed: Resumed | None = None, start: int = 1
) -> Iterator[bytes]:
    """The fold after folding what lies in a folder."""
    folder = Folder(path)
    journal = DurableJournal(folder, lambda: START_NS)
    aggregator = Aggregator(journal.cursor("a", start), lambda: START_NS, (), resumed, sink)
    aggregator._catch_up()
    yield aggregator._fold.dump()
    journal.close()
    folder.close()


def test_the_past_folded_from_any_checkpoint_is_the_same(tmp_path: Path) -> None:
    """Three lives with gaps between them give one fold, wherever on the way it is taken up."""
    lives(tmp_path / "j", (1, 8), (40, 52), (90, 94))
    checkpoints = Checkpoints(every=7)
    (whole,) = caught_up(tmp_path / "j", checkpoints)

    assert len(checkpoints.kept) >= 3
    assert checkpoints.kept[-1].fold == whole
    for checkpoint in checkpoints.kept:
        resumed = Resumed(fold=Fold.load(checkpoint.fold), tick=checkpoint.tick)
        (again,) = caught_up(tmp_path / "j", Checkpoints(), resumed, checkpoint.position)
        assert again == whole


def test_short_lives_do_not_make_the_next_start_longer(tmp_path: Path) -> None:
    """What a start had to fold again is in a checkpoint before it goes live."""
    lives(tmp_path / "j", (1, 8))
    checkpoints = Checkpoints()
    list(caught_up(tmp_path / "j", checkpoints))

    assert [checkpoint.position for checkpoint in checkpoints.kept] == [9]


def test_a_run_that_is_over_makes_room_for_a_new_one() -> None:
    """A tower that goes on for ever shows new runs, in place of the one that has been over for longest."""
    fold = Fold(room=Room(runs=2))
    ended = RunFinished(at=START_NS, outcome="completed")
    for number, (run_id, event) in enumerate((("a", ended), ("b", fakes.started(START_NS)))):
        fold.advance(START_NS + number * FAST_NS, [batch_of(run_id, event, number)], ())
    frame = fold.advance(
        START_NS + 2 * FAST_NS, [batch_of("c", fakes.started(START_NS), 2), batch_of("d", ended, 3)], ()
    )

    assert {run_id for run_id, _ in frame.snapshots} == {"b", "c"}
    assert frame.tower.refused_runs == 1


def batch_of(run_id: str, event: Event, number: int) -> Batch:
    """One event of a run."""
    record = Record(origin=Origin(run_id=run_id, epoch="1", ours=True), event=event, seq=1)
    stamp = START_NS + number * FAST_NS
    return Batch(sequence=number + 1, stamp=stamp, signal=Signal.LOGS, body=request([record], {}))


class Narrow:
    """Room for so many ticks of the past."""

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks
        self.left_out: int | None = None

    def has_room(self) -> bool:
        """Whether there is one more."""
        self.ticks -= 1
        return self.ticks >= 0

    def done(self, left_out: int) -> None:
        """Keep how many were left out."""
        self.left_out = left_out


@pytest.mark.parametrize("room", [0, 1, 5, 13, 100])
def test_what_finds_no_room_is_passed_over_and_counted(tmp_path: Path, room: int) -> None:
    """The past up to there is as it was, the next life begins after all of it."""
    lives(tmp_path / "j", (1, 8), (40, 52))
    past, checkpoints = Narrow(room), Checkpoints()
    resumed = Resumed(past=past)
    (fold,) = caught_up(tmp_path / "j", checkpoints, resumed)
    batches = 2 + 7 + 12

    assert past.left_out == max(0, batches - resumed.fold.tower.batches)
    assert (past.left_out == 0) == (room == 100)
    assert resumed.fold.tower.batches >= min(room, batches)
    assert checkpoints.kept[-1].position == batches + 1
    assert checkpoints.kept[-1].fold == fold
