"""Where many runs live each is judged once a second, by a rule that a replay and the next life follow too."""

from typing import Any

import pytest

from overwatch import fold as folding
from overwatch import runs
from overwatch.events import Event, Origin
from overwatch.fold import FAST_NS, SLOW_NS, Fold
from overwatch.journal import Batch
from overwatch.snapshot import View
from overwatch.state import RunState
from tests import fakes
from tests.fakes import START_NS
from tests.overwatch.test_fold import _batch

BEGIN = START_NS // SLOW_NS * SLOW_NS + SLOW_NS
BROKEN_AT = 14
"""The tick, within a second, at which run-1 emits what is not finite."""
ENDED_AT = 33


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Each judgement's run and tick, where more than two runs are many."""
    found: list[tuple[str, int]] = []
    real = runs.assess

    def noting(state: RunState, previous: Any, tick: int, *rest: Any) -> Any:
        found.append((state.origin.run_id, (tick - BEGIN) // FAST_NS))
        return real(state, previous, tick, *rest)

    monkeypatch.setattr(runs, "assess", noting)
    monkeypatch.setattr(folding, "MANY", 2)
    return found


def _ticks(count: int, n_runs: int = 3) -> list[tuple[int, list[Batch]]]:
    """Some ticks of runs that report an update at each; run-1 breaks once, run-2 ends."""
    found: list[tuple[int, list[Batch]]] = []
    for number in range(count):
        tick = BEGIN + number * FAST_NS
        batches: list[Batch] = []
        for run in range(1, n_runs + 1):
            is_broken = run == 1 and number == BROKEN_AT
            kl = float("nan") if is_broken else 0.01
            events: list[Event] = [fakes.policy(tick - 1, index=number + 1, entropy=0.5, kl_divergence=kl)]
            if run == 2 and number == ENDED_AT:
                events.append(fakes.finished(tick - 1))
            if run != 2 or number <= ENDED_AT:
                origin = Origin(run_id=f"run-{run}", epoch=f"epoch-{run}", ours=True)
                batches.append(_batch(tick - 10 + run, events, origin, 2 * number + 1))
        found.append((tick, batches))
    return found


def test_few_runs_are_judged_at_every_tick(judged: list[tuple[str, int]]) -> None:
    """What breaks is seen a tenth of a second later."""
    fold = Fold()
    for tick, batches in _ticks(30, n_runs=2):
        fold.take(tick, batches)

    assert set(judged) == {(f"run-{run}", number) for number in range(30) for run in (1, 2)}


def test_many_runs_are_judged_at_whole_seconds(judged: list[tuple[str, int]]) -> None:
    """A tenth of the judgements; one that is new is judged at once."""
    fold = Fold()
    late = _ticks(30)
    for number, (tick, batches) in enumerate(late):
        fold.take(tick, batches[:2] if number < 5 else batches)

    few = {(f"run-{run}", number) for run in (1, 2) for number in range(6)}
    seconds = [(f"run-{run}", number) for number in (10, 20) for run in (1, 2, 3)]
    assert set(judged) == {*few, ("run-3", 5), *seconds}
    assert judged[-len(seconds) :] == seconds


def test_a_view_of_one_of_many_is_of_its_tick(judged: list[tuple[str, int]]) -> None:
    """Who looks at a run sees what it emitted last, judged; the others are shown as of their second."""
    fold = Fold()
    for tick, batches in _ticks(BROKEN_AT + 1):
        frame = fold.advance(tick, batches, [("run-1", View())])

    assert ("run-1", BROKEN_AT) in judged
    assert ("run-2", BROKEN_AT) not in judged
    seen = frame.snapshots["run-1", View()]
    assert seen.time == frame.tick / 1e9
    assert "non-finite" in {finding.code for finding in seen.findings}
    assert frame.snapshots["run-2", View()].time == (BEGIN + SLOW_NS) / 1e9


def test_views_of_many_runs_leave_no_trace(judged: list[tuple[str, int]]) -> None:
    """With viewers, without, and gone on from a checkpoint at any tick: the same memory, the same log."""
    watched, alone, resumed = Fold(), Fold(), Fold()
    for number, (tick, batches) in enumerate(_ticks(50)):
        frame = watched.advance(tick, batches, [("run-1", View()), ("run-2", View(rows=1))])
        watched.look([("run-3", View())])
        logged = alone.skip(tick, batches)
        resumed.take(tick, batches)

        assert frame.recorded == logged, number
        assert watched.dump() == alone.dump() == resumed.dump(), number
        resumed = Fold.load(resumed.dump())
    assert {number for _, number in judged} == set(range(50))
