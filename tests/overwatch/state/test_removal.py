"""Removed envs leave nothing behind, and nobody else loses anything."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.catalog import Scope, Stage, find
from overwatch.events import (
    Column,
    EnvsRemoved,
    Event,
    GateEvaluated,
    NonFiniteSeen,
    Record,
    SeedStageChanged,
)
from overwatch.state import RunState, apply, dump, load
from overwatch.state.envs import MAX_GONE, Envs
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS

SLOTS = ("r0c0", "r0c1")
KINDS = ("numbers", "episode", "action", "crash", "cull", "gate", "nan", "slot", "gauge", "remove")


def removed(at: int, ids: list[int], *metrics: str) -> EnvsRemoved:
    """Envs that ended, or values of them by short name."""
    rows = [find(short, Scope.ENV) for short in metrics]
    return EnvsRemoved(at=at, env_id=Column.of(ids), metrics=tuple(row.name for row in rows if row))


def _event(kind: str, at: int, env: int) -> Event:
    if kind in ("cull", "gate"):
        common = {"at": at, "env_id": env, "slot": SLOTS[env % 2], "seed_id": "s"}
        if kind == "gate":
            return GateEvaluated(gate="G2", passed=False, checks_failed=("health",), **common)  # type: ignore[arg-type]  # the fields' own types
        return SeedStageChanged(before=Stage.TRAINING, after=Stage.PRUNED, **common)  # type: ignore[arg-type]  # as above
    some = float(at % 977)
    made: dict[str, Event] = {
        "numbers": fakes.envs(at, [env], reward=[some], rent=[some / 2], lane=["gpu0"]),  # type: ignore[list-item]  # lanes are words
        "episode": fakes.ended(at, [env], [some]),
        "action": fakes.acted(at, [env], ["wait"]),
        "crash": fakes.crashed(at, env, f"boom {at}"),
        "nan": NonFiniteSeen(at=at, scope=Scope.ENV, metric="reward", kind="nan", env_ids=(env,)),
        "slot": fakes.slots(at, [env], [SLOTS[0]], ["training"]),
        "gauge": fakes.envs(at, [env], **{"return": [some]}),
        "remove": removed(at, [env]),
    }
    return made[kind]


def _folded(events: list[tuple[int, Event]]) -> RunState:
    return fakes.folded([fakes.started(START_NS, slots=SLOTS, devices=("gpu0",)), *(e for _, e in events)])


def _reported(state: RunState, env: int) -> dict[str, object]:
    """Everything that is kept of one env, comparable; its silences are by a clock that all envs share."""
    envs, row = state.envs, state.envs.find(env)
    assert row is not None
    apart = (envs.lives, envs.silences.last_ns, envs.silences.mean_s, envs.silences.longest_s)
    reported: dict[str, object] = {
        str(place): array[row].tolist()
        for place, (array, _) in enumerate(envs.arrays())
        if not any(array is one for one in apart)
        and not any(array is tally.counts for tally in _tallies(envs))
    }
    for place, tally in enumerate(_tallies(envs)):
        reported[f"recent {place}"] = int(tally.recent(envs.n, state.last_at)[row])
    reported["words"] = [stated.get(env) for stated in _words(envs)]
    return {name: repr(value) for name, value in reported.items()}


def _words(envs: Envs) -> list[dict[int, object]]:
    """All tables by env id."""
    others = {"values", "times", "gone"}
    reported = [getattr(envs, name) for name in Envs.__struct_fields__ if name not in others]
    return [stated for stated in reported if isinstance(stated, dict)]


def _tallies(envs: Envs) -> tuple[object, ...]:
    return envs.culls, envs.gate_fails, envs.crash_tally


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), max_size=60))
def test_survivors_are_as_if_the_removed_had_never_been(steps: list[tuple[str, int]]) -> None:
    """Each env has exactly what it was sent since it last began; a removed one has no row and no word."""
    events = [
        (env, _event(kind, START_NS + (i + 1) * SECOND // 3, env)) for i, (kind, env) in enumerate(steps)
    ]
    state = _folded(events)
    since: dict[int, list[tuple[int, Event]]] = {}
    for env, event in events:
        since.setdefault(env, []).append((env, event))
        if isinstance(event, EnvsRemoved):
            since[env] = []
    living = {env for env, reported in since.items() if reported}

    assert set(state.envs.ids[: state.envs.n].tolist()) == living
    for env in living:
        alone = _folded(since[env])
        alone.last_at = state.last_at
        alone.envs.fit_slots(state.envs.stage.shape[1])
        assert _reported(state, env) == _reported(alone, env)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40)), max_size=80))
def test_unused_rows_hold_nothing(steps: list[tuple[str, int]]) -> None:
    """A row that an env left is as a row that nobody ever had, and words of absent envs are gone."""
    events = [(env, _event(kind, START_NS + (i + 1) * SECOND, env)) for i, (kind, env) in enumerate(steps)]
    envs = _folded(events).envs

    for array, fill in envs.arrays():
        assert np.array_equal(
            array[envs.n :], np.full_like(array[envs.n :], fill), equal_nan=math.isnan(fill)
        )
    there = set(envs.ids[: envs.n].tolist())
    assert len(there) == envs.n
    for stated in _words(envs):
        assert set(stated) <= there
    assert envs.ids[envs.by_id].tolist() == sorted(there)


def test_a_removed_env_that_reports_again_is_a_new_one() -> None:
    """No return, no crash and no age of its earlier life, and another life number."""
    before = [
        fakes.ended(START_NS, [7], [5.0]),
        fakes.crashed(START_NS + 1, 7),
        fakes.envs(START_NS + 2, [8], reward=[1.0]),
    ]
    old = int(fakes.folded(before).envs.lives[0])
    state = fakes.folded(
        [*before, removed(START_NS + 3, [7]), fakes.envs(START_NS + SECOND, [7], reward=[2.0])]
    )
    row = state.envs.find(7)

    assert row is not None
    assert int(state.envs.lives[row]) != old
    assert int(state.envs.born_at[row]) == START_NS + SECOND
    assert math.isnan(state.envs.mean_return()[row])
    assert state.envs.crashes == {}


def test_numbers_from_before_a_removal_that_come_after_it_bring_nobody_back() -> None:
    """A late record counts for the run's totals, but its env stays gone."""
    late = fakes.envs(START_NS + 1, [1, 2], reward=[1.0, 2.0])
    state = fakes.folded(
        [
            fakes.envs(START_NS, [1, 2], reward=[0.0, 0.0]),
            removed(START_NS + 5, [2]),
            late,
            fakes.ended(START_NS + 4, [2], [1.0]),
            fakes.acted(START_NS + 4, [2], ["prune"]),
        ]
    )

    assert state.envs.ids[: state.envs.n].tolist() == [1]
    assert state.episodes == 1
    assert state.actions.items == []


def test_a_new_life_that_was_sent_before_the_old_ones_end_is_kept() -> None:
    """Numbers may overtake facts: what is newer than the removal is the new env's, all else is gone."""
    state = fakes.folded(
        [
            fakes.ended(START_NS, [3], [9.0]),
            fakes.envs(START_NS + 1, [3], rent=[0.5], step_time=[0.1]),
            fakes.envs(START_NS + 10, [3], rent=[0.7]),
            removed(START_NS + 5, [3]),
        ]
    )
    envs, row = state.envs, state.envs.find(3)

    assert row is not None
    assert (envs.values["rent"][row], envs.times["rent"][row]) == (0.7, START_NS + 10)
    assert envs.times["step_time"][row] == 0
    assert envs.episodes[row] == 0


def test_the_action_mix_forgets_removed_envs() -> None:
    """What the living did last is the mix until they act again."""
    state = fakes.folded(
        [fakes.acted(START_NS, [1, 2], ["wait", "prune"]), removed(START_NS + 1, [2])],
    )

    assert state.actions.items == [{"wait": 1}]


def test_an_ended_value_is_absent_and_the_env_stays_while_it_has_others() -> None:
    """Reward ends, metric goes on; when that ends too the env is gone."""
    reported = [
        fakes.envs(START_NS, [1, 2], reward=[1.0, 2.0], metric=[0.1, 0.2]),
        removed(START_NS + 1, [2], "reward"),
    ]
    state = fakes.folded(reported)
    row = state.envs.find(2)
    assert row is not None
    assert (state.envs.times["reward"][row], state.envs.times["metric"][row]) == (0, START_NS)

    state = fakes.folded([*reported, removed(START_NS + 2, [2], "metric")])
    assert state.envs.ids[: state.envs.n].tolist() == [1]


def test_an_ended_gauge_of_returns_takes_its_episodes() -> None:
    """The mean of the last returns does not outlive the series it came from."""
    state = fakes.folded(
        [
            fakes.envs(START_NS, [1], metric=[0.5], **{"return": [4.0]}),
            removed(START_NS + 1, [1], "return"),
        ]
    )

    assert math.isnan(state.envs.mean_return()[0])


def test_a_value_sent_after_its_series_ended_is_kept() -> None:
    """An end is as old as its time: the series that began again goes on."""
    state = fakes.folded(
        [fakes.envs(START_NS + 5, [1], reward=[1.0]), removed(START_NS + 4, [1], "reward", "metric")]
    )

    assert state.envs.times["reward"][0] == START_NS + 5


@pytest.mark.parametrize(
    ("ids", "stated", "env_id", "fields"),
    [
        ([7], "env removed", 7, {}),
        ([7, 9], "2 envs removed", None, {"envs": "7,9"}),
        (list(range(20)), "20 envs removed", None, {"envs": ",".join(map(str, range(16))) + " and 4 more"}),
    ],
)
def test_a_removal_is_a_line_of_the_feed(
    ids: list[int], stated: str, env_id: int | None, fields: dict[str, str]
) -> None:
    """One line a removal, which names the envs; values that ended have none."""
    state = fakes.folded([removed(START_NS, ids), removed(START_NS, ids, "reward")])
    (line,) = state.feed.items

    assert (line.kind, line.message, line.env_id, line.fields) == ("envs_removed", stated, env_id, fields)


def test_removals_survive_a_checkpoint() -> None:
    """The loaded state forgets late records as the saved one would."""
    state = load(
        dump(fakes.folded([fakes.envs(START_NS, [1, 2], reward=[0.0, 0.0]), removed(START_NS + 5, [2])]))
    )
    apply(
        state, Record(origin=ORIGIN, event=fakes.envs(START_NS + 1, [2], reward=[1.0]), seq=9), START_NS + 9
    )

    assert state.envs.ids[: state.envs.n].tolist() == [1]


def test_the_memory_of_removed_envs_is_bounded() -> None:
    """The newest removals are remembered; an env that never was may be removed too."""
    envs = Envs()
    envs.remove(np.arange(MAX_GONE + 5), START_NS)

    assert (len(envs.gone), min(envs.gone), envs.n) == (MAX_GONE, 5, 0)
