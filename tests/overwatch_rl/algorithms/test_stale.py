"""Rollouts of older policies: V-trace against its definition, the weighted loss against exact gradients."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from overwatch_rl.algorithms.policy import Categorical
from overwatch_rl.algorithms.ppo import PPO, PPOConfig, loss
from overwatch_rl.types import Box, WorldSpec
from tests.overwatch_rl.algorithms.small import (
    CODES,
    MOVES,
    VECTOR,
    ppo,
    rollout,
    world_spec,
)

SPECS = [
    world_spec(),
    world_spec(MOVES, CODES),
    world_spec(Box(low=(-1.0, -1.0), high=(1.0, 1.0)), VECTOR),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_rollout_of_its_own_policy_is_learned_from_alike_with_ages_of_nought(spec: WorldSpec) -> None:
    """Weights are 1, the mismatch is 0 and the update is that of PPO, to rounding."""
    plain, aged = ppo(spec=spec), ppo(spec=spec)
    data = rollout(plain, spec)
    expected, found = (
        plain.prepare(data),
        aged.prepare(replace(data, age=torch.zeros(data.rewards.shape, dtype=torch.int64))),
    )
    assert expected.weights is None
    assert found.weights is not None
    assert torch.allclose(found.weights, torch.ones_like(found.weights), atol=1e-5)
    assert torch.allclose(found.advantages, expected.advantages, atol=1e-4)
    assert float(found.stats["mismatch_kl"]) == pytest.approx(0, abs=1e-9)
    assert float(found.stats["effective_sample_size"]) == pytest.approx(1, abs=1e-6)
    assert float(found.stats["importance_clipped"]) == 0
    plain.update(expected)
    aged.update(found)
    for name, value in plain.policy.state_dict().items():
        assert torch.allclose(value, aged.policy.state_dict()[name], atol=1e-4), name


@pytest.mark.parametrize("spec", SPECS)
def test_the_policy_that_learns_is_the_proximal_one(spec: WorldSpec) -> None:
    """Its own log-probabilities and values replace those of the older policy; numbers equal a hand count."""
    older, made = ppo(seed=0, spec=spec), ppo(PPOConfig(importance_cap=1.5), seed=1, spec=spec)
    data = rollout(older, spec)
    found = made.prepare(replace(data, age=torch.ones(data.rewards.shape, dtype=torch.int64)))
    with torch.no_grad():
        outputs, values = made.policy(data.features.flatten(0, 1))
        mask = None if data.mask is None else data.mask.flatten(0, 1)
        judged = made.actions.evaluate(outputs, mask, data.actions.flatten(0, 1))
    moved = (judged.log_probs - data.log_probs.flatten(0, 1)).sum(dim=1).clamp(-20, 20).tolist()
    weights = [math.exp(one) for one in moved]

    assert torch.equal(found.log_probs, judged.log_probs)
    assert torch.equal(found.values, values)
    assert found.weights is not None
    assert found.weights.tolist() == pytest.approx([min(one, 1.5) for one in weights])
    kl = sum(weight - 1 - one for weight, one in zip(weights, moved, strict=True)) / len(moved)
    assert float(found.stats["mismatch_kl"]) == pytest.approx(kl, rel=1e-3, abs=1e-6)
    beyond = sum(one > 1.5 for one in weights) / len(weights)
    assert float(found.stats["importance_clipped"]) == pytest.approx(beyond)
    effective = sum(weights) ** 2 / (len(weights) * sum(one * one for one in weights))
    assert float(found.stats["effective_sample_size"]) == pytest.approx(effective, rel=1e-3)
    stats = made.update(found)
    assert float(stats["first_ratio_error"]) == pytest.approx(0, abs=1e-5)


def test_weighted_rows_give_the_gradient_of_the_policy_that_learns() -> None:
    """Of one choice, each action as often as the older policy takes it: exact, where unweighted is not."""
    behaviour, advantage = torch.tensor([0.5, 0.3, 0.1, 0.1]), torch.tensor([1.0, -2.0, 3.0, 0.5])
    logits = torch.tensor([[0.1, 0.6, -0.2, 0.3]], requires_grad=True)
    policy = logits.softmax(dim=1)[0]
    (exact,) = torch.autograd.grad((policy * advantage).sum(), logits)
    actions = torch.arange(4).repeat_interleave((behaviour * 10).round().long())[:, None]
    made: PPO = ppo(spec=world_spec(MOVES, CODES))
    data = made.prepare(rollout(made, world_spec(MOVES, CODES)))
    distribution = Categorical(MOVES)

    def gradient(weights: Tensor | None) -> Tensor:
        judged = distribution.evaluate(logits.expand(10, -1), None, actions)
        rows = replace(
            data.rows(torch.zeros(10, dtype=torch.int64)),
            actions=actions, log_probs=judged.log_probs.detach(), weights=weights,
            advantages=advantage[actions[:, 0]], returns=torch.zeros(10),
        )  # fmt: skip
        total, _ = loss(judged, torch.zeros(10), rows, PPOConfig(entropy_coef=0.0))
        (found,) = torch.autograd.grad(-total / 10, logits)
        return found

    taken = actions[:, 0]
    assert torch.allclose(gradient((policy.detach() / behaviour)[taken]), exact, atol=1e-6)
    assert not torch.allclose(gradient(None), exact, atol=1e-2)
