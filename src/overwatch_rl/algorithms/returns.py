"""Advantages from a rollout: generalised advantage estimation, corrected by V-trace where it is stale.

Rules: the end of a task (terminated) has no value beyond it; an episode cut short (truncated) is continued
by the value of its final observation, never by that of the next episode's first.

Sources: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation";
Espeholt et al. 2018, "IMPALA: scalable distributed deep-RL with importance weighted actor-learner
architectures", section 4.1 and its remark 2 on lambda.

Shapes: T steps, N envs, F places an env for final observations.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from overwatch_rl.types import Rollout


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


def following_values(rollout: Rollout, last: Tensor, final: Tensor | None) -> Tensor:
    """T N: the value of what came after each step; 0 where the task ended.

    `last`: N, values of the last observations; `final`: F N, values of the final observations that the
    rollout keeps, `None` where it keeps none.
    """
    following = torch.cat([rollout.values[1:], last[None]])
    if final is not None and rollout.final_at is not None:
        # Places that are empty point at a row behind the last, which is cut off again.
        at_end = torch.zeros(len(following) + 1, *following.shape[1:], dtype=final.dtype, device=final.device)
        at_end = at_end.scatter(0, rollout.final_at, final)[:-1]
        following = torch.where(rollout.truncated, at_end.to(following.dtype), following)
    return torch.where(rollout.terminated, 0.0, following)


def advantages(
    rollout: Rollout, following: Tensor, config: ReturnsConfig, trust: Tensor | None = None
) -> Tensor:
    """T N float: generalised advantage estimates; following: T N as of `following_values`.

    `trust`: T N, the probability of each action under the policy that learns over that under the one that
    collected, at most 1: with it what follows a step is the V-trace target, of which `trust` times the
    advantage is the distance from the value (both clips of the source are 1). Without it all are 1.
    """
    ended = rollout.terminated | rollout.truncated
    deltas = rollout.rewards + config.gamma * following - rollout.values
    carry = config.gamma * config.lam * (~ended).to(deltas.dtype)
    estimates = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for step in reversed(range(len(deltas))):
        estimates[step] = torch.addcmul(deltas[step], carry[step], running)
        running = estimates[step] if trust is None else trust[step] * estimates[step]
    return estimates
