"""Advantages and returns from a rollout: generalised advantage estimation.

Rules: the end of a task (terminated) has no value beyond it; an episode cut short (truncated) is continued
by the value of its final observation, never by that of the next episode's first. Shapes: T steps, N envs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from overwatch_rl.types import Batch, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnsConfig:
    """How far estimates look ahead."""

    gamma: float = 0.995
    """Discount of one step."""
    lam: float = 0.95
    """Weight of longer estimates; 0 is one step, 1 is the whole rollout."""

    def __post_init__(self) -> None:
        for name in ("gamma", "lam"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value}; use a number from 0 to 1")


def advantages(rollout: Rollout, config: ReturnsConfig) -> Tensor:
    """T N float: generalised advantage estimates."""
    ended = rollout.terminated | rollout.truncated
    following = torch.cat([rollout.values[1:], rollout.last_values[None]])
    following = torch.where(ended, rollout.final_values, following)
    following = torch.where(rollout.terminated, 0.0, following)
    deltas = rollout.rewards + config.gamma * following - rollout.values
    carry = config.gamma * config.lam * (~ended).to(deltas.dtype)
    estimates = torch.empty_like(deltas)
    running = torch.zeros_like(rollout.last_values)
    for step in reversed(range(len(deltas))):
        running = deltas[step] + carry[step] * running
        estimates[step] = running
    return estimates


def estimate(rollout: Rollout, config: ReturnsConfig) -> Batch:
    """The rollout as one batch, with advantages and the returns the critic shall predict."""
    ahead = advantages(rollout, config)
    return Batch(
        features=rollout.features.flatten(0, 1),
        mask=rollout.mask.flatten(0, 1),
        actions=rollout.actions.flatten(0, 1),
        log_probs=rollout.log_probs.flatten(0, 1),
        values=rollout.values.flatten(),
        advantages=ahead.flatten(),
        returns=(ahead + rollout.values).flatten(),
    )
