"""How good a frozen policy is: one episode of every env, counted from its beginning to its end.

The same seed gives every policy the same episodes: same hosts, same order of data. Must not know how the
policy was made.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from overwatch.catalog.stages import Stage
from overwatch_rl.envs.base import VecEnv
from overwatch_rl.envs.schedules import Act

MAX_STEPS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Finished episodes, an env each."""

    returns: Tensor  # N float64
    metric: Tensor  # N float32, at the last step
    fossils: Tensor  # N int64, seeds fossilised

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean return; NaN of a single episode."""
        return float(self.returns.std() / len(self.returns) ** 0.5)


def play(env: VecEnv, act: Act, seed: int) -> Played:
    """Play until every env has ended its first episode; raises `RuntimeError` when one never does."""
    observation = env.reset(seed)
    returns = torch.zeros(env.num_envs, dtype=torch.float64)
    metric = torch.zeros(env.num_envs)
    fossils = torch.zeros(env.num_envs, dtype=torch.int64)
    running = torch.ones(env.num_envs, dtype=torch.bool)
    for _ in range(MAX_STEPS):
        step = env.step(act(observation))
        returns += step.reward * running
        metric = torch.where(running, step.metric, metric)
        for change in step.stage_changes:
            fossils[change.env_id] += change.after is Stage.FOSSILISED and bool(running[change.env_id])
        running &= ~(step.terminated | step.truncated)
        if not bool(running.any()):
            return Played(returns=returns, metric=metric, fossils=fossils)
        observation = step.observation
    raise RuntimeError(f"an episode did not end within {MAX_STEPS} steps")
