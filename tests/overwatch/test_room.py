"""The room for runs: who is evicted when it is used up, who is refused, and that a replay does the same."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest
import zstandard

from overwatch import codec
from overwatch.events import Event, Origin, Record
from overwatch.fold import FAST_NS, SLOW_NS, Fold, Frame, LifeStarted
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.runs import ENV_BYTES, RUN_BYTES, SILENT_NS, Room, cost
from overwatch.snapshot import View
from tests import fakes
from tests.fakes import START_NS

ROOM = Room(runs=40, bytes=40 * RUN_BYTES + 2000 * ENV_BYTES)
"""For some 2,000 envs."""


def batch(run_id: str, stamp: int, events: Sequence[Event], seq: int = 1, epoch: str = "epoch") -> Batch:
    """Events of one run as they are accepted."""
    origin = Origin(run_id=run_id, epoch=f"{epoch}-{run_id}", ours=True)
    records = [Record(origin=origin, event=event, seq=seq + i) for i, event in enumerate(events)]
    return Batch(sequence=stamp, stamp=stamp, signal=Signal.LOGS, body=request(records, {}))


def life(stamp: int, room: Room) -> Batch:
    """A collector with this room begins."""
    body = msgspec.json.encode(LifeStarted(version="1", pid=1, config_digest="", after=None, room=room))
    return Batch(sequence=stamp, stamp=stamp, signal=Signal.START, body=body)


def step(at: int, ids: Sequence[int], index: int) -> Event:
    """One step of these envs."""
    return fakes.envs(at, ids, index, reward=[1.0] * len(ids), step_time=[0.1] * len(ids))


def one_after_another(runs: int, n_envs: int) -> Iterator[tuple[int, list[Batch]]]:
    """Ticks at which each run begins, steps twice and ends before the next begins."""
    tick = START_NS
    for number in range(runs):
        run_id, ids = f"run-{number:03}", list(range(n_envs))
        events = [fakes.started(tick, n_envs=n_envs)], [step(tick, ids, 1)], [step(tick + 1, ids, 2)]
        for place, some in enumerate((*events, [fakes.finished(tick + 2)])):
            tick += FAST_NS
            yield tick, [batch(run_id, tick - 9, some, seq=1 + place)]
        tick += SLOW_NS - tick % SLOW_NS
        yield tick, []


def envs_of(frame: Frame, run_id: str) -> int:
    """How many envs the board counts."""
    snapshot = frame.snapshots.get((run_id, View()))
    return 0 if snapshot is None else sum(snapshot.board.counts.values())


def held(fold: Fold) -> int:
    """What all runs cost."""
    return sum(cost(run) for run in fold._runs.values())


def test_runs_that_ended_make_room_for_those_that_live() -> None:
    """However many came before, a living run has all of its envs, and what is held stays within the room."""
    fold, newest = Fold(room=ROOM), "run-000"
    for tick, batches in one_after_another(60, 700):
        frame = fold.advance(tick, batches, ())
        newest = frame.newest or newest
        assert held(fold) <= ROOM.bytes
        assert envs_of(frame, newest) in (0, 700)
        assert "too-many-names" not in {f.code for s in frame.snapshots.values() for f in s.findings}
    assert frame.tower.evicted_runs >= 55
    assert frame.tower.refused_runs == frame.tower.overflowed == 0


def test_each_run_that_is_evicted_is_handed_out_once() -> None:
    """Whole, for those that keep it on disk."""
    fold, out, evicted = Fold(room=ROOM), list[str](), 0
    for tick, batches in one_after_another(20, 700):
        frame = fold.advance(tick, batches, ())
        out += [run.state.origin.run_id for run in fold.evicted]
        evicted = frame.tower.evicted_runs
        assert all(run.state.envs.n == 700 and run.state.finished for run in fold.evicted)
    assert out == [f"run-{number:03}" for number in range(evicted)]


def test_a_replay_of_the_same_batches_evicts_the_same_runs() -> None:
    """The room is in the start record; a fold that goes on from a checkpoint does the same too."""
    live, other = Fold(room=Room()), Fold()
    for place, (tick, batches) in enumerate(one_after_another(30, 500)):
        begun = [life(tick - 10, ROOM), *batches] if place == 0 else batches
        frames = [fold.advance(tick, begun, ()) for fold in (live, other)]
        looks = [fold.look((run_id, View()) for run_id in fold._runs) for fold in (live, other)]
        shown = [{key: codec.encode(snapshot) for key, snapshot in look.items()} for look in looks]
        assert shown[0] == shown[1]
        assert frames[0].tower == frames[1].tower
        other = Fold.load(other.dump()) if place % 7 == 0 else other
    assert live.dump() == other.dump()
    assert frames[0].tower.evicted_runs > 20


def test_a_run_that_numbers_envs_by_episode_takes_no_other_runs_room() -> None:
    """It is capped and states it; a run that comes later is whole."""
    fold, tick = Fold(room=ROOM), START_NS
    fold.advance(tick, [batch("hog", tick - 9, [fakes.started(tick)])], ())
    for number in range(40):
        tick += FAST_NS
        ids = list(range(number * 100, number * 100 + 100))
        frame = fold.advance(tick, [batch("hog", tick - 9, [step(tick, ids, number)], 2 + number)], ())
        assert held(fold) <= ROOM.bytes
    capped = envs_of(frame, "hog")
    assert 900 <= capped < 2000
    found = {finding.code: finding for finding in frame.snapshots["hog", View()].findings}
    assert "env" in found["too-many-names"].message
    assert "episode" in str(found["too-many-names"].hint)

    tick += FAST_NS
    ids = list(range(400))
    frame = fold.advance(
        tick, [batch("late", tick - 9, [fakes.started(tick, n_envs=400), step(tick, ids, 1)])], ()
    )
    assert envs_of(frame, "late") == 400


def test_envs_that_are_long_silent_make_room_in_a_run_that_is_full() -> None:
    """They are counted as evicted, and the run's newest envs are shown."""
    fold, tick, seq = Fold(room=ROOM), START_NS, 1
    for number in range(60):
        tick += SILENT_NS // 10
        ids = list(range(number * 100, number * 100 + 100))
        frame = fold.advance(tick, [batch("hog", tick - 9, [step(tick, ids, number)], seq)], ())
        seq += 1
        assert held(fold) <= ROOM.bytes
    assert frame.tower.evicted_envs > 0
    assert frame.tower.overflowed == 0
    assert "silent env" in frame.capped["hog"].counts
    envs = fold._runs["hog"].state.envs
    assert set(range(5900, 6000)) <= set(envs.ids[: envs.n].tolist())


def test_what_comes_after_the_end_of_an_evicted_run_does_not_begin_it_again() -> None:
    """It is counted; a new attempt begins it, and so does another life without a start record."""
    fold = Fold(room=Room(runs=1))
    first = [fakes.started(START_NS), fakes.finished(START_NS)]
    fold.advance(START_NS, [batch("a", START_NS - 9, first)], ())
    fold.advance(START_NS + FAST_NS, [batch("b", START_NS + 9, [fakes.started(START_NS)])], ())
    fold = Fold.load(fold.dump())
    late = batch("a", START_NS + FAST_NS + 9, [fakes.policy(START_NS, 1, entropy=0.5)], seq=3)
    ended = batch("b", START_NS + FAST_NS + 9, [fakes.finished(START_NS)], seq=2)
    frame = fold.advance(START_NS + 2 * FAST_NS, [late, ended], ())
    assert (frame.tower.after_end, frame.tower.refused_runs) == (1, 0)
    assert {run_id for run_id, _ in frame.snapshots} == {"b"}

    for epoch, event in (
        ("epoch", fakes.started(START_NS)),
        ("other", fakes.policy(START_NS, 1, entropy=0.5)),
    ):
        other = Fold.load(fold.dump())
        again = batch("a", START_NS + 2 * FAST_NS + 9, [event], 4, epoch)
        frame = other.advance(START_NS + 3 * FAST_NS, [again], ())
        assert {run_id for run_id, _ in frame.snapshots} == {"a"}


def test_a_run_that_ended_long_ago_is_evicted_though_there_is_room() -> None:
    """So that a tower of a few small runs does not keep each for ever."""
    fold = Fold(room=Room(ended_ns=5 * SLOW_NS))
    ended = [fakes.started(START_NS), fakes.finished(START_NS)]
    fold.advance(START_NS, [batch("a", START_NS - 9, ended), batch("b", START_NS - 9, ended[:1])], ())
    counts = list[int]()
    for second in range(1, 8):
        frame = fold.advance(START_NS + second * SLOW_NS, [], ())
        counts.append(len(fold.evicted))
    assert counts == [0, 0, 0, 0, 1, 0, 0]
    assert {run_id for run_id, _ in frame.snapshots} == {"b"}


@pytest.mark.parametrize(("n_envs", "slots"), [(1, 0), (64, 0), (64, 6), (2048, 0), (1024, 6)])
def test_what_a_run_costs_is_what_it_takes_of_memory(n_envs: int, slots: int) -> None:
    """Within a factor of two of what Python and NumPy allocate for it."""
    fold, tick, runs = Fold(), START_NS, 4
    names = [f"r{slot}" for slot in range(slots)]

    def pass_by(run_id: str) -> None:
        nonlocal tick
        ids = list(range(n_envs))
        events = [fakes.started(tick, n_envs=n_envs), step(tick, ids, 1)]
        if slots:
            places = [env for env in ids for _ in names]
            events.append(fakes.slots(tick, places, names * n_envs, ["TRAINING"] * len(places)))
        for place, event in enumerate(events):
            tick += SLOW_NS
            fold.advance(tick // SLOW_NS * SLOW_NS, [batch(run_id, tick - SLOW_NS, [event], 1 + place)], ())

    pass_by("first")
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(runs):
            pass_by(f"run-{number}")
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = held(fold) / (runs + 1) * runs
    assert counted / 2 < taken < counted * 2


def test_writing_and_reading_a_checkpoint_takes_no_second_copy_of_all_runs() -> None:
    """Beside what it makes, a dump takes what one run takes, however many there are; so does a load."""
    fold = Fold()
    for tick, batches in one_after_another(24, 1000):
        fold.advance(tick, batches, ())
    everything = sum(cost(run) for run in fold._runs.values())

    def peak(work: Callable[[], object]) -> tuple[int, object]:
        gc.collect()
        tracemalloc.start()
        try:
            made = work()
            kept, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return most - kept, made

    beside, data = peak(fold.dump)
    assert beside < everything / 4
    assert isinstance(data, bytes)
    assert len(data) < everything / 4
    beside, again = peak(lambda: Fold.load(data))
    assert beside < everything / 4
    assert isinstance(again, Fold)
    assert again.dump() == data


@pytest.mark.parametrize("harm", ["empty", "cut", "flipped", "other", "long"])
def test_what_is_no_dump_is_an_error(harm: str) -> None:
    """Never a fold of something else."""
    fold = Fold()
    for tick, batches in one_after_another(3, 10):
        fold.advance(tick, batches, ())
    data = fold.dump()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    harmed = {"empty": b"", "cut": data[:middle], "flipped": flipped, "other": b"\x93\x01"}
    harmed["long"] = zstandard.compress(b"\xff\xff\xff\xff" + bytes(64))
    with pytest.raises((ValueError, zstandard.ZstdError)):
        Fold.load(harmed[harm])


def test_a_smaller_room_cuts_the_largest_run_down_so_that_another_fits() -> None:
    """As after a restart with less memory: its envs that reported last stay."""
    fold, tick = Fold(room=ROOM), START_NS
    fold.advance(tick, [batch("hog", tick - 9, [fakes.started(tick), step(tick, range(1400), 1)])], ())
    fold.advance(tick + FAST_NS, [batch("hog", tick + 9, [step(tick + 9, range(900, 1400), 2)], 3)], ())
    less = Room(runs=40, bytes=ROOM.bytes * 2 // 5)
    tick += 2 * FAST_NS
    fold.advance(tick, [life(tick - 9, less)], ())
    tick += SLOW_NS - tick % SLOW_NS
    fold.advance(tick, [], ())
    events = [fakes.started(tick, n_envs=200), step(tick, range(200), 1)]
    frame = fold.advance(tick + FAST_NS, [batch("late", tick + 9, events)], ())

    assert held(fold) <= less.bytes
    assert envs_of(frame, "late") == 200
    ids = fold._runs["hog"].state.envs.ids[: envs_of(frame, "hog")].tolist()
    assert set(range(900, 1400)) <= set(ids)


def test_a_producer_whose_clock_is_ahead_evicts_nobody() -> None:
    """What is silent is so by the collector's clock."""
    fold, tick = Fold(room=ROOM), START_NS
    for number in range(12):
        tick += FAST_NS
        ids = range(number * 100, number * 100 + 100)
        frame = fold.advance(tick, [batch("hog", tick - 9, [step(tick, ids, number)], 1 + number)], ())
    before = envs_of(frame, "hog")
    tick += FAST_NS
    ahead = step(tick + 100 * SILENT_NS, range(5000, 5400), 20)
    frame = fold.advance(tick, [batch("hog", tick - 9, [ahead], 20)], ())
    assert frame.tower.evicted_envs == 0
    assert envs_of(frame, "hog") >= before


def test_small_runs_have_all_of_their_envs_until_the_room_is_used_up() -> None:
    """However many came before them, beside a run that has all it may have."""
    fold, tick = Fold(room=ROOM), START_NS
    fold.advance(tick, [batch("hog", tick - 9, [step(tick, range(5000), 1)])], ())
    for number in range(8):
        tick += SLOW_NS
        events = [fakes.started(tick, n_envs=100), step(tick, range(100), 1)]
        frame = fold.advance(tick, [batch(f"run-{number}", tick - 9, events)], ())
    fold.advance(tick + SLOW_NS, [], ())
    assert [envs_of(frame, f"run-{number}") for number in range(8)] == [100] * 8


def test_what_a_run_remembers_beside_its_envs_costs_too() -> None:
    """Lines about envs are counted: a run of few envs with many of them takes more room."""
    fold, tick = Fold(), START_NS
    for number in range(40):
        tick += FAST_NS
        events = [fakes.crashed(tick, env, "x" * 40) for env in range(64)]
        fold.advance(tick, [batch("run", tick - 9, events, 1 + 64 * number)], ())
    run = fold._runs["run"]
    assert run.state.facts.total == 40 * 64
    assert cost(run) > 40 * 64 * 500


@pytest.mark.parametrize("batches", [1, 12])
def test_a_run_that_goes_on_is_not_evicted_as_the_one_that_was_over(batches: int) -> None:
    """It was judged as over at the tick before, and its new life and a new run come within one tick."""
    fold, tick = Fold(room=Room(runs=2)), START_NS
    tick += FAST_NS
    fold.advance(tick, [batch("a", tick - 9, [fakes.started(tick), fakes.finished(tick)])], ())
    tick += FAST_NS
    fold.advance(tick, [batch("b", tick - 9, [fakes.started(tick)])], ())
    tick += 2 * FAST_NS
    life_two = Origin(run_id="a", epoch="second", ours=True)
    reported = [fakes.started(tick), *(fakes.policy(tick, index=i, entropy=0.5) for i in range(batches))]
    bodies = [request([Record(origin=life_two, event=one, seq=i + 1)], {}) for i, one in enumerate(reported)]
    again = [
        Batch(sequence=tick + i, stamp=tick - 99 + i, signal=Signal.LOGS, body=body)
        for i, body in enumerate(bodies)
    ]
    frame = fold.advance(tick, [again[0], batch("c", tick - 99, [fakes.started(tick)]), *again[1:]], ())

    assert fold.evicted == []
    assert frame.tower.refused_runs == 1
    assert frame.snapshots["a", View()].run.update is not None
