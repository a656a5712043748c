"""Saliency finds the cell that a network was built to look at, and no other."""

from typing import Any, cast

import pytest
import torch

from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.algorithms.saliency import OF, saliency
from overwatch_rl.types import Observation
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.overwatch_rl.worlds.goodhart.small import world

ROW, COLUMN = 2, 7
STATES = 16
STEP = 1e-2


def looking(name: str) -> tuple[PPO, Observation]:
    """A policy of such a network of which all depends on one cell, and what it sees."""
    env = world(STATES)
    policy = PPO(env.spec, PPOConfig(network=name), seed=3)
    made = cast("Any", policy.network)
    rows, columns = made.encode.shape[1:]
    weight = made.body[0 if name == "mlp" else -2].weight
    with torch.no_grad():
        shape = (2, -1, rows, columns, weight.shape[2]) if name == "mlp" else (len(weight), -1, rows, columns)
        cells = weight.view(shape)
        kept = cells[:, :, ROW, COLUMN].clone()
        cells.zero_()
        cells[:, :, ROW, COLUMN] = kept
        for layer in (module for module in made.modules() if isinstance(module, torch.nn.Conv2d)):
            middle = layer.weight[:, :, 1, 1].clone()
            layer.weight.zero_()
            layer.weight[:, :, 1, 1] = middle
    return policy, env.reset(1)


@pytest.mark.parametrize("name", ["conv", "mlp"])
@pytest.mark.parametrize("of", OF)
def test_the_cell_that_matters_is_the_only_one(name: str, of: str) -> None:
    """In every state it has a weight, and every other cell has none."""
    found = saliency(*looking(name), of)
    weights = found[:, ROW, COLUMN].clone()
    found[:, ROW, COLUMN] = 0.0

    assert found.shape == (STATES, 11, 11)
    assert bool((weights > 0).all())
    assert not bool(found.any())


def test_the_weight_is_the_steepest_channel() -> None:
    """As differences of the value show, when a channel of a cell is moved a little."""
    policy, observation = looking("mlp")
    made = cast("Any", policy.network)
    found = saliency(policy, observation, "value")[0, ROW, COLUMN]
    slopes = []
    for channel in range(made.encode.shape[0]):
        nudged = made.encode(observation.features)[:1].repeat(2, 1, 1, 1)
        nudged[:, channel, ROW, COLUMN] += torch.tensor([STEP, -STEP])
        both = nudged.flatten(1).expand(2, -1, -1)
        above, below = made.value(made.body(both)[1]).flatten().tolist()
        slopes.append(abs(above - below) / (2 * STEP))

    assert float(found) == pytest.approx(max(slopes), rel=1e-2)
    assert min(slopes) < 0.9 * max(slopes)


def test_looking_changes_nothing() -> None:
    """The policy acts as before, and no gradient stays."""
    policy, observation = looking("conv")
    before = policy.act(observation, None, greedy=True)
    saliency(policy, observation)
    after = policy.act(observation, None, greedy=True)

    assert torch.equal(before.values, after.values)
    assert torch.equal(before.log_probs, after.log_probs)
    assert all(one.grad is None for one in policy.policy.parameters())


def test_a_world_without_a_grid_is_refused() -> None:
    """So is another quantity; each error names what may be asked."""
    env = make("morphogenesis", WorldConfig(num_envs=2), {"slots": 1})
    policy = PPO(env.spec, PPOConfig(), seed=0)
    with pytest.raises(ValueError, match=r"needs a policy that sees a grid; this one sees \(\d+,\) numbers"):
        saliency(policy, env.reset(0))
    with pytest.raises(ValueError, match="of is 'reward'; use one of action, value"):
        saliency(*looking("mlp"), "reward")
