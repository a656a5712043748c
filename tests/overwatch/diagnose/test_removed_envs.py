"""Judgement knows only envs that are there: no rank, no finding and no usual value outlives an env."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.catalog import Stage
from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.assess import Lives, Ranked, carried, dump, load
from overwatch.events import Column, EnvsRemoved, Event, SeedStageChanged
from overwatch.state import RunState, apply
from tests import fakes
from tests.fakes import SECOND, START_NS


def removed(at: int, *ids: int) -> EnvsRemoved:
    """Envs that ended."""
    return EnvsRemoved(at=at, env_id=Column.of(ids))


def _report(state: RunState, *events: Event) -> None:
    for event in events:
        apply(state, fakes.Record(origin=fakes.ORIGIN, event=event), event.at)


def _steps(at: int, ids: list[int]) -> Event:
    return fakes.envs(at, ids, step_time=[0.01 + i % 3 / 1000 for i in range(len(ids))])


def _codes(judged: Judged) -> set[str]:
    return set(judged.assessment.findings)


def test_a_finding_about_an_env_ends_with_it_at_the_next_tick() -> None:
    """No lingering, no cooling down; the other env's finding stays."""
    state = fakes.folded(
        [_steps(START_NS, [1, 2, 3]), fakes.crashed(START_NS, 1), fakes.crashed(START_NS, 2)]
    )
    before = assess(state, Assessment(), START_NS + SECOND)
    _report(state, removed(START_NS + SECOND, 1))
    after = assess(state, before.assessment, START_NS + SECOND + 1)

    assert _codes(before) == {"env-crashed:env:1", "env-crashed:env:2"}
    assert _codes(after) == {"env-crashed:env:2"}


def test_an_env_of_the_same_id_begins_without_the_others_memory() -> None:
    """Removed and back between two ticks: neither its finding nor its rank is the earlier env's."""
    ids = list(range(8))
    state = fakes.folded([_steps(START_NS, ids), fakes.crashed(START_NS, 5)])
    before = assess(state, Assessment(), START_NS + SECOND)
    at = START_NS + SECOND
    _report(state, removed(at, 5), _steps(at + 1, ids))
    after = assess(state, before.assessment, at + 2)

    assert _codes(before) == {"env-crashed:env:5"}
    assert _codes(after) == set()
    assert after.assessment.ranks.held[state.envs.find(5)] == 0.0


def test_a_silent_env_that_is_removed_stalls_nobody() -> None:
    """What was mute is gone at the next tick, and is not waited for."""
    ids = list(range(8))
    state = fakes.folded([_steps(START_NS, ids)])
    judged = assess(state, Assessment(), START_NS)
    for i in range(1, 400):
        at = START_NS + i * SECOND // 10
        _report(state, _steps(at, ids[:-1]))
        judged = assess(state, judged.assessment, at)
    assert _codes(judged) == {"env-stalled:env:7"}

    _report(state, removed(state.last_at, 7))
    judged = assess(state, judged.assessment, state.last_stamp)

    assert _codes(judged) == set()
    assert judged.anomalies.codes.tolist() == [0] * 7


def test_the_usual_step_is_that_of_the_envs_that_are_there() -> None:
    """Slow envs that left pull no median."""
    slow = fakes.envs(START_NS, range(10), step_time=[1.0] * 5 + [0.1, 0.2, 0.1, 0.2, 0.1])
    state = fakes.folded([slow, removed(START_NS + 1, *range(5))])

    assert assess(state, Assessment(), START_NS + SECOND).fleet.usual.pace.median == 0.1


def test_new_envs_on_a_lane_make_no_storm_of_the_usual_culls() -> None:
    """A fleet that was replaced whole culls as before: the usual rate is not that of the run's whole time."""
    ids = list(range(8))

    def culls(at: int) -> list[Event]:
        return [
            SeedStageChanged(
                at=at + env, env_id=env, slot=f"s{at % 89}", seed_id="s", before=Stage.TRAINING,
                after=Stage.PRUNED,
            )
            for env in ids[:2]
        ]  # fmt: skip

    state = fakes.folded([_steps(START_NS, ids)])
    judged = assess(state, Assessment(), START_NS)
    seen: set[str] = set()
    for second in range(1, 300):
        at = START_NS + second * SECOND
        if second == 150:
            _report(state, removed(at, *ids))
        _report(state, _steps(at, ids), *(culls(at) if second % 3 == 0 else []))
        judged = assess(state, judged.assessment, at)
        seen |= {problem.partition(":")[0] for problem in _codes(judged)}

    assert "cull-storm" not in seen


@settings(deadline=None)
@given(st.data())
def test_memory_follows_each_life_wherever_its_row_went(data: st.DataObject) -> None:
    """Scores go with their life, the order of those who stay is kept, new ones come last by birth."""
    before = data.draw(st.lists(st.integers(0, 30), unique=True, max_size=12))
    now = data.draw(st.lists(st.integers(0, 30), unique=True, max_size=12))
    order = np.array(data.draw(st.permutations(range(len(before)))), dtype=np.int64)
    held = np.array(before, dtype=np.float64) / 2
    then = Lives(numbers=np.array(before, dtype=np.int64), env_ids=np.array(before, dtype=np.int64) + 100)
    numbers = np.array(now, dtype=np.int64)
    before_it = Ranked(order=order, held=held, lower_at=order + 1, peak=held + 1)
    found, lost = carried(before_it, then, Lives(numbers=numbers, env_ids=numbers + 100))

    known = [life for life in (before[row] for row in order.tolist()) if life in now]
    assert numbers[found.order].tolist() == [*known, *sorted(set(now) - set(before))]
    scores = zip(now, found.held.tolist(), strict=True)
    assert {life: score for life, score in scores if not math.isnan(score)} == {
        life: life / 2 for life in known
    }
    assert {life: peak for life, peak in zip(now, found.peak.tolist(), strict=True) if life in known} == {
        life: life / 2 + 1 for life in known
    }
    assert lost == {life + 100 for life in set(before) - set(now)}


def test_memory_of_lives_survives_a_checkpoint() -> None:
    """The loaded assessment knows who was lost."""
    state = fakes.folded([_steps(START_NS, [1, 2]), fakes.crashed(START_NS, 1)])
    before = load(dump(assess(state, Assessment(), START_NS).assessment))
    _report(state, removed(START_NS + 1, 1))

    assert _codes(assess(state, before, START_NS + SECOND)) == set()
