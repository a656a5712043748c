"""Lanes and stages that are sent again as they were are not folded again, and nothing else is left out."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.catalog import Scope, Stage
from overwatch.catalog.stages import BY_CODE
from overwatch.events import Column, EnvsRemoved, Event, Measured, SeedStageChanged
from overwatch.state import RunState
from tests import fakes
from tests.fakes import START_NS

SETS = ((0, 1, 2, 3), (2, 3), (0, 1), (5, 3, 1))
"""Of envs; most are part of another one."""
LANES = ("gpu0", "gpu1")
STAGES = (Stage.DORMANT, Stage.TRAINING, Stage.PRUNED)


@st.composite
def _events(draw: st.DrawFn) -> list[Event]:
    """The same few things sent of the same few envs, again and again."""
    reported: list[Event] = []
    for place in range(draw(st.integers(1, 20))):
        at, ids, alike = START_NS + place, draw(st.sampled_from(SETS)), draw(st.integers(0, 1))
        match draw(st.sampled_from(["lanes", "lanes", "stages", "stages", "moved", "removed"])):
            case "lanes":
                words = [LANES[(env * alike) % 2] for env in ids]
                reported.append(fakes.envs(at, ids, lane=words))  # type: ignore[arg-type]  # a lane takes words
            case "stages":
                words = [STAGES[(env + alike) % 3].label for env in ids]
                reported.append(fakes.slots(at, ids, ["a"] * len(ids), words))
            case "moved":
                reported.append(
                    SeedStageChanged(
                        at=at, env_id=ids[0], seed_id="s", slot="a", before=Stage.DORMANT, after=STAGES[alike]
                    )
                )
            case _:
                reported.append(EnvsRemoved(at=at, env_id=Column.of(ids[:2])))
    return reported


def _seen(state: RunState) -> dict[int, tuple[str | None, str | None]]:
    """Lane and stage of each env."""
    envs, lanes, known = state.envs, state.lane_names.words, state.envs.stage.shape[1] > 0
    return {
        int(envs.ids[row]): (
            lanes[envs.lane[row]] if envs.lane[row] >= 0 else None,
            BY_CODE[envs.stage[row, 0]].label if known and envs.stage[row, 0] >= 0 else None,
        )
        for row in range(envs.n)
    }


def _plain(events: list[Event]) -> dict[int, tuple[str | None, str | None]]:
    """The same by a dictionary."""
    seen: dict[int, tuple[str | None, str | None]] = {}
    for event in events:
        match event:
            case EnvsRemoved():
                for env in event.env_id.array().tolist():
                    seen.pop(env, None)
            case Measured(scope=Scope.ENV):
                words = event.values["lane"].words()
                for env, lane in zip(event.keys["env_id"].array().tolist(), words, strict=True):
                    seen[env] = (lane, seen.get(env, (None, None))[1])
            case Measured():
                words = event.values["overwatch.slot.stage"].words()
                for env, stage in zip(event.keys["env_id"].array().tolist(), words, strict=True):
                    seen[env] = (seen.get(env, (None, None))[0], stage)
            case SeedStageChanged():
                seen[event.env_id] = (seen.get(event.env_id, (None, None))[0], event.after.label)
            case _:
                raise AssertionError(event)
    return seen


@settings(deadline=None)
@given(_events())
def test_what_is_sent_again_changes_nothing_and_what_is_new_does(events: list[Event]) -> None:
    """Whatever order sets that overlap are sent in, every env is as it was sent last, and so is its lane."""
    state = fakes.folded(events)
    by_lane = {lane: np.arange(state.envs.n)[rows].tolist() for lane, rows in state.envs.by_lane().items()}
    lanes = state.envs.lane[: state.envs.n].tolist()

    assert _seen(state) == _plain(events)
    assert by_lane == {lane: [row for row, one in enumerate(lanes) if one == lane] for lane in set(lanes)}


def test_sets_with_the_same_short_name_are_not_taken_for_one_another() -> None:
    """Ids that begin and end alike, sent the same lanes and stages by turns: each set is as it was sent."""
    ends = [0, 1, 2, 3]
    sets = [[*ends, *range(10 * part, 10 * part + 4), 90, 91, 92, 93] for part in range(1, 8)]
    events: list[Event] = []
    for place, ids in enumerate(sets * 6):
        lanes, stages = [LANES[place // 3 % 2]] * 12, [STAGES[place // 4 % 2].label] * 12
        reported = fakes.envs(START_NS + place, ids, lane=lanes)  # type: ignore[arg-type]  # a lane takes words
        events += [reported, fakes.slots(START_NS + place, ids, ["a"] * 12, stages)]

    assert _seen(fakes.folded(events)) == _plain(events)
