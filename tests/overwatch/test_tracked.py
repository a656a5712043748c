"""A run that cannot be judged or shown, for a fault of ours: its neighbours are, and it is said."""

from typing import Any

import pytest

from overwatch import fold as folding
from overwatch import tracked
from overwatch.events import Origin
from overwatch.fold import FAST_NS, SLOW_NS, Fold
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
        real = getattr(tracked, name)

        def failing(state: RunState, *rest: Any) -> Any:
            if name in faults and state.origin.run_id == "run-1":
                raise ZeroDivisionError("division by zero")
            return real(state, *rest)

        monkeypatch.setattr(tracked, name, failing)

    around("assess")
    around("project_views")
    return faults


def _two_runs() -> tuple[Fold, int]:
    fold, tick = Fold(), START_NS // SLOW_NS * SLOW_NS + SLOW_NS
    told = [fakes.policy(START_NS, index=1, entropy=0.5)]
    fold.advance(tick, [_batch(tick - 2, told), _batch(tick - 1, told, OTHER)], ())
    return fold, tick


@pytest.mark.parametrize(("fault", "says"), [("assess", "judged"), ("project_views", "shown")])
def test_a_run_with_a_fault_takes_no_other_with_it(faulty: list[str], fault: str, says: str) -> None:
    """It is left out and counted with its name and the place; once the fault is over it is back."""
    fold, tick = _two_runs()
    faulty.append(fault)
    frame = fold.advance(tick + SLOW_NS, [], ())

    assert {run for run, _ in frame.snapshots} == {"run-2"}
    assert [snapshot.run.run_id for snapshot in frame.recorded] == ["run-2"]
    assert frame.tower.unjudged == 1
    said = f"run run-1 cannot be {says}: ZeroDivisionError: division by zero (test_tracked.py:"
    assert str(frame.tower.last_problem).startswith(said)
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


def test_a_run_with_a_fault_gives_its_place_to_another(
    faulty: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It will never be over, so it would keep its place among the most runs for good."""
    monkeypatch.setattr(folding, "MAX_RUNS", 2)
    faulty.append("assess")
    fold, tick = _two_runs()
    third = Origin(run_id="run-3", epoch="e3", ours=True)
    told = [fakes.policy(START_NS, index=1, entropy=0.5)]
    frame = fold.advance(tick + FAST_NS, [_batch(tick + 1, told, third)], ())

    assert {run for run, _ in frame.snapshots} == {"run-2", "run-3"}
    assert frame.tower.refused_runs == 0
