"""The exporter's process makes of a rollout the events that per-step calls make."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from overwatch.catalog import Scope
from overwatch.events import Column, Event, Measured
from overwatch.sdk.rollouts.events import labelled
from overwatch.state import dump as dump_state
from tests.overwatch.sdk.rollouts.local import folded, local, timed
from tests.overwatch.sdk.rollouts.world import WORDS, World


def by_step(events: list[Event]) -> list[Event]:
    """Events as a window emits them: numbers before facts, both in the order in which they came."""
    return [event for event in events if isinstance(event, Measured)] + [
        event for event in events if not isinstance(event, Measured)
    ]


@pytest.mark.parametrize("lengths", [(1,), (7, 1, 12), (40,)])
@pytest.mark.parametrize("envs", [1, 5])
def test_a_rollout_makes_the_events_of_per_step_calls(lengths: tuple[int, ...], envs: int) -> None:
    """The same events with the same words in the same order, and so the same state, but for times."""
    world = World(envs, seed=envs)
    with local(WORDS, envs) as rolled, local(WORDS, envs) as stepped:
        for steps in lengths:
            world.report(rolled.run, world.rollout(steps))
        for call in world.calls:
            call(stepped.run)
        found, wanted = by_step(rolled.events()), by_step(stepped.events())
        assert (rolled.run._channel.refused, stepped.run._channel.refused) == (0, 0)
    assert Counter(type(event).__name__ for event in found) == Counter(
        type(event).__name__ for event in wanted
    )
    assert timed(found, lambda _: 0) == timed(wanted, lambda _: 0)
    assert [event.at for event in found if isinstance(event, Measured)] == sorted(
        event.at for event in found if isinstance(event, Measured)
    )
    aligned = [msgspec.structs.replace(one, at=two.at) for one, two in zip(wanted, found, strict=True)]
    assert dump_state(folded(found)) == dump_state(folded(aligned))
    assert folded(found).steps == world.step * envs


@pytest.mark.parametrize("codes", [[], [-1, -1], [2, 0, -1, 2, 1], [1], [0, 0, 0]])
def test_labels_come_in_the_order_of_their_first_use(codes: list[int]) -> None:
    """A column of codes is the column that words make."""
    words = ("a", "b", "c")
    named = [None if code < 0 else words[code] for code in codes]
    assert labelled(np.array(codes, "i2"), words) == Column.of_labels(named)


def test_times_are_between_those_of_the_first_and_the_last_step() -> None:
    """As if all steps took equally long; a rollout of one step has the time of its last."""
    with local() as one:
        one.run.rollout(
            first_step=11,
            steps=5,
            envs=2,
            at_first=1e9 + 100,
            at_last=1e9 + 104,
            reward=np.zeros((5, 2), "f4"),
            lane="cpu",
        )
        events = one.events()
    assert [event.at for event in events] == [10**18 + n * 10**9 for n in (100, 101, 102, 103, 104)]
    assert [event.index for event in events if isinstance(event, Measured)] == [11, 12, 13, 14, 15]
    assert all(isinstance(event, Measured) and event.scope is Scope.ENV for event in events)
    assert isinstance(events[0], Measured)
    assert events[0].values["lane"].words() == ["cpu", "cpu"]
    assert set(events[0].values) == {"overwatch.env.reward", "lane"}
