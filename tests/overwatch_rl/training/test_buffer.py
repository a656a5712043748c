"""Storage: filled in order, bounded, complete before it is read."""

import pytest
import torch

from overwatch.events import MetricInfo
from overwatch_rl.training.buffer import RolloutBuffer
from overwatch_rl.types import Decision, Observation, ObservationSpec, Step, WorldSpec, discrete

CPU = torch.device("cpu")


def spec(horizon: int | None) -> WorldSpec:
    """Three features, two operations."""
    return WorldSpec(
        task="t", metric=MetricInfo(name="m", unit="1", higher_is_better=True), reward_mode="r",
        observation=ObservationSpec(shape=(3,)), action=discrete(("wait", "go")), horizon=horizon,
    )  # fmt: skip


def store(buffer: RolloutBuffer, value: float, truncated: tuple[bool, ...] = (False,)) -> None:
    """One step of some envs whose numbers are all `value`, and ten times that in what came last."""
    rows = len(truncated)
    seen = Observation(features=torch.full((rows, 3), value))
    decision = Decision(
        actions=torch.ones(rows, 1, dtype=torch.int64), log_probs=torch.full((rows, 1), value),
        values=torch.full((rows,), value),
    )  # fmt: skip
    step = Step(
        observation=seen, reward=torch.full((rows,), value), terminated=torch.zeros(rows, dtype=torch.bool),
        truncated=torch.tensor(truncated), final=seen.features * 10, columns={"own": seen.features[:, 0]},
    )  # fmt: skip
    buffer.store(seen, decision, step, {"beside": seen.features})


def test_steps_are_kept_in_order_and_a_second_rollout_replaces_the_first() -> None:
    """What is stored is what is read, columns of the world and beside it included."""
    buffer = RolloutBuffer(spec(None), 2, CPU)
    for first in (1.0, 5.0):
        buffer.clear()
        store(buffer, first)
        store(buffer, first + 1)
        rollout = buffer.rollout(Observation(features=torch.zeros(1, 3)))
        assert rollout.rewards.flatten().tolist() == [first, first + 1]
        assert rollout.features[:, 0, 0].tolist() == [first, first + 1]
        assert rollout.columns["own"].flatten().tolist() == [first, first + 1]
        assert rollout.columns["beside"][:, 0, 2].tolist() == [first, first + 1]
        assert (rollout.final, rollout.final_at, rollout.mask) == (None, None, None)


def test_final_observations_have_places_of_their_own() -> None:
    """Two truncations of one env and one of another, each with its step; empty places are behind the end."""
    buffer = RolloutBuffer(spec(2), 4, CPU)
    for number in range(2):
        buffer.clear()
        store(buffer, 1.0, (True, False))
        store(buffer, 2.0, (False, number == 0))
        store(buffer, 3.0, (True, False))
        store(buffer, 4.0, (False, False))
        rollout = buffer.rollout(Observation(features=torch.zeros(2, 3)))
        assert rollout.final is not None
        assert rollout.final_at is not None
        assert rollout.final_at.T.tolist() == [[0, 2], [1, 4] if number == 0 else [4, 4]]
        assert rollout.final[:, 0, 0].tolist() == [10.0, 30.0]
        assert number or float(rollout.final[0, 1, 0]) == 20.0


def test_a_full_buffer_takes_no_more_and_a_partial_one_gives_none() -> None:
    """Both errors give how far it is; what is there can be read as rows."""
    buffer = RolloutBuffer(spec(None), 2, CPU)
    last = Observation(features=torch.zeros(1, 3))
    store(buffer, 1.0)
    with pytest.raises(ValueError, match="has 1 of 2 steps"):
        buffer.rollout(last)
    assert {name: len(column) for name, column in buffer.rows().items()} == dict.fromkeys(
        ("actions", "rewards", "terminated", "truncated", "own", "beside"), 1
    )
    store(buffer, 2.0)
    with pytest.raises(IndexError, match="holds 2 steps and is full"):
        store(buffer, 3.0)


def test_its_size_is_known() -> None:
    """In bytes, columns included."""
    buffer = RolloutBuffer(spec(None), 2, CPU)
    store(buffer, 1.0, (False,) * 3)

    numbers = 3 + 1 + 1 + 1 + (1 + 3)  # seen, log-probability, value, reward, and the two columns
    assert buffer.num_bytes() == 2 * 3 * (4 * numbers + 8 + 2)
