"""Storage: filled in order, bounded, complete before it is read."""

import pytest
import torch
from overwatch_rl.buffer import RolloutBuffer

from overwatch_rl.types import ActionSpec, Head, Observation, Step

SPEC = ActionSpec(heads=(Head(name="op", labels=("wait", "go")),), uses=((True,), (True,)))


def store(buffer: RolloutBuffer, value: float, *, truncated: bool = False) -> None:
    """One step of a single env whose numbers are all `value`."""
    seen = Observation(features=torch.full((1, 3), value), mask=torch.ones(1, 2, dtype=torch.bool))
    buffer.decide(
        seen, torch.ones(1, 1, dtype=torch.int64), torch.full((1, 1), value), torch.full((1,), value)
    )
    step = Step(
        observation=seen, reward=torch.full((1,), value), terminated=torch.zeros(1, dtype=torch.bool),
        truncated=torch.tensor([truncated]), final_features=seen.features, metric=torch.zeros(1),
    )  # fmt: skip
    buffer.outcome(step, torch.full((1,), 9.0))


def test_steps_are_kept_in_order_and_only_truncation_keeps_a_final_value() -> None:
    """What is stored is what is read, and a second rollout replaces the first."""
    buffer = RolloutBuffer((2, 1), 3, SPEC)
    for first in (1.0, 5.0):
        buffer.clear()
        store(buffer, first)
        store(buffer, first + 1, truncated=True)
        rollout = buffer.rollout(torch.zeros(1))
        assert rollout.rewards.flatten().tolist() == [first, first + 1]
        assert rollout.features[:, 0, 0].tolist() == [first, first + 1]
        assert rollout.final_values.flatten().tolist() == [0.0, 9.0]


def test_a_full_buffer_takes_no_more_and_a_partial_one_gives_none() -> None:
    """Both errors say how far it is."""
    buffer = RolloutBuffer((1, 1), 3, SPEC)
    with pytest.raises(ValueError, match="has 0 of 1 steps"):
        buffer.rollout(torch.zeros(1))
    store(buffer, 1.0)
    with pytest.raises(IndexError, match="holds 1 steps and is full"):
        store(buffer, 2.0)
