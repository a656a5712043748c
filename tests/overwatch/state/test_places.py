"""What is remembered of subjects is where they are: whatever came, went, or was sent in another order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.catalog import Scope
from overwatch.events import Column, EnvsRemoved, Event, Measured
from overwatch.state import RunState, apply, dump, load, new_run
from overwatch.state.arrays import arrays_of
from tests import fakes
from tests.fakes import START_NS

IDS = st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True)
SLOTS = ("a", "b", "c")


def _slots(at: int, ids: list[int], names: list[str], ages: list[int]) -> Measured:
    """One age for each (env, slot), as they are named."""
    return Measured(
        at=at,
        scope=Scope.SLOT,
        keys={"env_id": Column.of(ids), "slot": Column.of_labels(names)},
        values={"overwatch.slot.age": Column.of(ages)},
    )


@st.composite
def _events(draw: st.DrawFn) -> list[Event]:
    """Steps, slots and removals of envs in any order, the same envs again and again among them."""
    reported: list[Event] = []
    sets = draw(st.lists(IDS, min_size=1, max_size=4))
    for place in range(draw(st.integers(1, 14))):
        ids, at = draw(st.sampled_from(sets)), START_NS + place
        match draw(st.sampled_from(["envs", "whole", "some", "remove", "ended"])):
            case "envs":
                reported.append(
                    fakes.envs(at, ids, index=place + 1, reward=[float(env + place) for env in ids])
                )
            case "whole":
                names = list(SLOTS) * len(ids)
                ages = [place * 100 + number for number in range(3 * len(ids))]
                reported.append(_slots(at, [env for env in ids for _ in SLOTS], names, ages))
            case "some":
                names = [SLOTS[(env + place) % 3] for env in ids]
                reported.append(_slots(at, ids, names, [place] * len(ids)))
            case "remove":
                reported.append(EnvsRemoved(at=at, env_id=Column.of(ids)))
            case _:
                reported.append(fakes.ended(at, ids, [float(env) for env in ids]))
    return reported


def _seen(state: RunState) -> dict[int, tuple[float, list[int], list[float]]]:
    """Reward, ages by slot and returns of each env."""
    envs, names = state.envs, state.slot_names.words
    width = [names.index(name) if name in names else -1 for name in SLOTS]
    return {
        int(envs.ids[row]): (
            float(np.nan_to_num(envs.values["reward"][row], nan=-1.0)),
            [int(envs.age[row, place]) if place >= 0 else -1 for place in width],
            np.nan_to_num(envs.mean_return(), nan=-1.0)[row : row + 1].tolist(),
        )
        for row in range(envs.n)
    }


def _applied_one_by_one(events: list[Event]) -> dict[int, tuple[float, list[int], list[float]]]:
    """The same by plain dictionaries."""
    seen: dict[int, tuple[float, list[int], list[float]]] = {}
    for event in events:
        match event:
            case EnvsRemoved():
                for env in event.env_id.array().tolist():
                    seen.pop(env, None)
            case Measured(scope=Scope.ENV):
                rewards = event.values["overwatch.env.reward"].array().tolist()
                for env, reward in zip(event.keys["env_id"].array().tolist(), rewards, strict=True):
                    _, ages, returns = seen.get(env, (-1.0, [-1] * 3, [-1.0]))
                    seen[env] = (reward, ages, returns)
            case Measured():
                ages = event.values["overwatch.slot.age"].array().tolist()
                names, ids = event.keys["slot"].words(), event.keys["env_id"].array().tolist()
                for env, name, age in zip(ids, names, ages, strict=True):
                    reward, known, returns = seen.get(env, (-1.0, [-1] * 3, [-1.0]))
                    known = [age if one == name else other for one, other in zip(SLOTS, known, strict=True)]
                    seen[env] = (reward, known, returns)
            case _:
                for env in event.env_id.array().tolist():  # type: ignore[union-attr]  # what is left ended
                    reward, ages, _ = seen.get(env, (-1.0, [-1] * 3, [-1.0]))
                    seen[env] = (reward, ages, [float(env)])
    return seen


@settings(max_examples=25, deadline=None)
@given(_events(), st.integers(0, 14))
def test_columns_are_what_plain_tables_would_be(events: list[Event], cut: int) -> None:
    """Applied at once, and with a checkpoint in between, which holds nothing of what is remembered."""
    reported = fakes.records(events)
    straight, reloaded = new_run(reported[0]), new_run(reported[0])
    for place, record in enumerate(reported):
        apply(straight, record, record.event.at)
        if place == cut:
            reloaded = load(dump(reloaded))
        apply(reloaded, record, record.event.at)

    assert _seen(straight) == _applied_one_by_one(events)
    assert _seen(reloaded) == _seen(straight)
    assert dump(reloaded) == dump(straight)


def test_a_sum_of_episodes_is_the_same_however_often_it_was_asked_for() -> None:
    """Asked after each episode, at the end, or after a checkpoint."""
    luck = np.random.default_rng(1).normal(size=(40, 8))
    events = [fakes.ended(START_NS + i, list(range(8)), row.tolist()) for i, row in enumerate(luck)]
    reported = fakes.records(list(events))
    often = new_run(reported[0])
    for record in reported:
        apply(often, record, record.event.at)
        often.envs.all_sums()
    once = fakes.folded(list(events))
    states = (often, once, load(dump(once)))
    found = {repr([array.tolist() for array, _ in arrays_of(state.envs.all_sums())]) for state in states}

    assert len(found) == 1
