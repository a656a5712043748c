"""A run that cannot be judged or shown, for a fault of ours, is named; one that rests costs next to none."""

from typing import Any

import msgspec
import pytest

from overwatch import runs
from overwatch.events import Origin
from overwatch.fold import FAST_NS, SLOW_NS, Fold
from overwatch.runs import REST_NS, TIRED_NS, Room
from overwatch.snapshot import View
from overwatch.state import RunState
from tests import fakes
from tests.fakes import START_NS
from tests.overwatch.test_fold import OTHER, _batch


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the faults, `assess` and `project_views`, that run-1 has for as long as they are in there."""
    faults: list[str] = []

    def around(name: str) -> None:
        real = getattr(runs, name)

        def failing(state: RunState, *rest: Any) -> Any:
            if name in faults and state.origin.run_id == "run-1":
                raise ZeroDivisionError("division by zero")
            return real(state, *rest)

        monkeypatch.setattr(runs, name, failing)

    around("assess")
    around("project_views")
    return faults


def _two_runs(room: Room | None = None) -> tuple[Fold, int]:
    fold, tick = Fold(room=room), START_NS // SLOW_NS * SLOW_NS + SLOW_NS
    reported = [fakes.policy(START_NS, index=1, entropy=0.5)]
    fold.advance(tick, [_batch(tick - 2, reported), _batch(tick - 1, reported, OTHER)], ())
    return fold, tick


@pytest.mark.parametrize(("fault", "words"), [("assess", "judged"), ("project_views", "shown")])
def test_a_run_with_a_fault_takes_no_other_with_it(faulty: list[str], fault: str, words: str) -> None:
    """It is left out and counted with its name and the place; once the fault is over it is back."""
    fold, tick = _two_runs()
    faulty.append(fault)
    frame = fold.advance(tick + SLOW_NS, [], ())

    assert {run for run, _ in frame.snapshots} == {"run-2"}
    assert [snapshot.run.run_id for snapshot in frame.recorded] == ["run-2"]
    assert frame.tower.unjudged == 1
    stated = f"run run-1 cannot be {words}: ZeroDivisionError: division by zero (test_runs.py:"
    assert str(frame.tower.last_problem).startswith(stated)
    assert set(fold.look([("run-1", View()), ("run-2", View())])) == {("run-2", View())}

    faulty.clear()
    frame = fold.advance(tick + 2 * SLOW_NS, [], ())
    assert {run for run, _ in frame.snapshots} == {"run-1", "run-2"}
    assert frame.tower.unjudged == 1


def test_a_replay_leaves_out_what_was_left_out(faulty: list[str]) -> None:
    """A tick without a frame records the same runs as one with a frame."""
    faulty.append("assess")
    fold, tick = _two_runs()
    skipped, _ = _two_runs()

    frame = fold.advance(tick + SLOW_NS, [], ())
    assert frame.recorded == skipped.skip(tick + SLOW_NS, [])
    assert fold.dump() == skipped.dump()


def test_a_run_with_a_fault_gives_its_place_to_another(faulty: list[str]) -> None:
    """It will never be over, so it would keep its place among the most runs for good."""
    faulty.append("assess")
    fold, tick = _two_runs(Room(runs=2))
    third = Origin(run_id="run-3", epoch="e3", ours=True)
    reported = [fakes.policy(START_NS, index=1, entropy=0.5)]
    frame = fold.advance(tick + FAST_NS, [_batch(tick + 1, reported, third)], ())

    assert {run for run, _ in frame.snapshots} == {"run-2", "run-3"}
    assert frame.tower.refused_runs == 0


def test_a_run_that_is_over_gives_its_place_to_another_at_once_after_a_checkpoint() -> None:
    """A fold that was loaded and has judged nothing yet takes the same runs as the one that was dumped."""
    fold, tick = _two_runs(Room(runs=2))
    fold.take(tick + FAST_NS, [_batch(tick + 1, [fakes.finished(tick)], first_seq=2)])
    loaded = Fold.load(fold.dump())
    third = Origin(run_id="run-3", epoch="e3", ours=True)
    batch = _batch(tick + FAST_NS + 1, [fakes.policy(tick, index=1, entropy=0.5)], third)
    frames = [one.advance(tick + 2 * FAST_NS, [batch], ()) for one in (fold, loaded)]

    assert [{run for run, _ in frame.snapshots} for frame in frames] == [{"run-2", "run-3"}] * 2
    assert frames[1].tower.refused_runs == 0


def test_a_run_that_nobody_watches_is_shown_once_a_second() -> None:
    """The newest and those that are watched are shown at every tick; the others are there all the same."""
    fold, tick = _two_runs()
    seen: dict[str, list[float]] = {"run-1": [], "run-2": []}
    for tenth in range(1, 21):
        watched = [("run-1", View(rows=1))] if tenth > 10 else []
        for (run_id, view), snapshot in fold.advance(tick + tenth * FAST_NS, [], watched).snapshots.items():
            if view == View():
                seen[run_id].append(snapshot.time)

    every = [(tick + tenth * FAST_NS) / 1e9 for tenth in range(1, 21)]
    assert seen["run-2"] == every
    assert seen["run-1"] == [tick / 1e9] * 9 + every[9:]


def _over(fold: Fold, tick: int) -> int:
    """One run ends, the other is lost; the first tick of a time in which both rest."""
    fold.take(tick + FAST_NS, [_batch(tick + 1, [fakes.finished(tick)], first_seq=2)])
    rest = (tick + TIRED_NS) // REST_NS * REST_NS + 2 * REST_NS
    for second in range(tick + SLOW_NS, rest, SLOW_NS):
        fold.take(second, [])
    return rest


def test_runs_that_have_been_over_for_long_are_judged_once_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However they ended; what one of them sends is judged at once."""
    fold, tick = _two_runs()
    rest = _over(fold, tick)
    judged: list[tuple[str, int]] = []
    real = runs.assess

    def noted(state: RunState, before: Any, at: int, *more: Any) -> Any:
        judged.append((state.origin.run_id, at))
        return real(state, before, at, *more)

    monkeypatch.setattr(runs, "assess", noted)
    for at in range(rest, rest + 2 * REST_NS, FAST_NS):
        fold.take(at, [])
    assert judged == [(run, at) for at in (rest, rest + REST_NS) for run in ("run-1", "run-2")]

    judged.clear()
    again = rest + 2 * REST_NS + FAST_NS
    reported = [fakes.policy(again, index=2, entropy=0.5)]
    frame = fold.advance(again, [_batch(again - 1, reported, OTHER, first_seq=2)], ())
    assert ("run-2", again) in judged
    assert frame.snapshots["run-2", View()].link.state == "live"


def test_a_look_at_a_run_that_rests_is_of_now_and_leaves_no_trace() -> None:
    """Who watches sees its age grow; what is remembered is the same without, and after a restart."""
    plain, tick = _two_runs()
    rest = _over(plain, tick)
    watched, resumed = Fold.load(plain.dump()), Fold.load(plain.dump())
    for at in range(rest, rest + 2 * REST_NS + SLOW_NS, 3 * FAST_NS):
        plain.take(at, [])
        resumed = Fold.load(resumed.dump())
        resumed.take(at, [])
        frame = watched.advance(at, [], [("run-2", View(rows=1))])

        assert plain.dump() == watched.dump() == resumed.dump()
        assert {snapshot.time for snapshot in frame.snapshots.values()} == {at / 1e9}
        looked = plain.look([("run-2", View(rows=1))])
        assert looked == {("run-2", View(rows=1)): frame.snapshots["run-2", View(rows=1)]}


def test_a_silent_run_of_a_producer_without_an_end_costs_what_an_ended_one_does() -> None:
    """It may have ended: it is recorded once more, rests, and makes room for another run."""
    fold, tick = Fold(), START_NS // SLOW_NS * SLOW_NS + SLOW_NS
    reported = [fakes.policy(START_NS, index=1, entropy=0.5)]
    fold.advance(tick, [_batch(tick - 1, reported, Origin(run_id="run-2", epoch="f"))], ())
    recorded = [len(fold.advance(tick + n * SLOW_NS, [], ()).recorded) for n in range(1, 300)]

    assert recorded[:170] == [1] * 170
    assert recorded[185:] == [0] * len(recorded[185:])
    (run,) = fold._runs.values()
    assert run.is_over
    late = (tick + 2 * TIRED_NS) // REST_NS * REST_NS
    fold.advance(late, [], ())
    assert run.rests(late + SLOW_NS)


def test_a_checkpoint_of_before_there_was_heat_is_loaded() -> None:
    """Envs over time begin where it ends; all else is as it was."""
    fold, tick = _two_runs()
    fold.take(tick + SLOW_NS, [_batch(tick + 1, [fakes.envs(tick, [1, 2], reward=[1.0, 1.0])], first_seq=2)])
    run = fold.tracked("run-1")
    assert run is not None
    saved = msgspec.msgpack.decode(run.dump())
    assert len(saved.pop("heat")) > 0
    old = runs.Tracked.load(msgspec.msgpack.encode(saved))

    assert old.past.dump() == run.past.dump()
    assert old.heat.ids.size == 0
    assert runs.Tracked.load(run.dump()).heat.ids.tolist() == [1, 2]
