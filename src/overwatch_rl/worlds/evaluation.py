"""How good a frozen policy is: one episode of every env, counted from its beginning to its end.

The same seed gives every policy the same episodes: same hosts, same order of data. Must not know how the
policy was made.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from overwatch.catalog.stages import Stage
from overwatch_rl.worlds.base import World
from overwatch_rl.worlds.schedules import Act

MAX_STEPS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Finished episodes, an env each."""

    returns: Tensor  # N float64
    has_metric: bool
    metric: Tensor  # N float32, at the last step
    fossils: Tensor  # N int64, seeds fossilised; 0 in a world without slots

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean return; NaN of a single episode."""
        return float(self.returns.std() / len(self.returns) ** 0.5)


def play(world: World, act: Act, seed: int) -> Played:
    """Play until every env has ended its first episode; raises `RuntimeError` when one never does."""
    observation = world.reset(seed)
    num_envs = len(observation.features)
    returns = torch.zeros(num_envs, dtype=torch.float64)
    metric, has_metric = torch.zeros(num_envs), False
    fossils = torch.zeros(num_envs, dtype=torch.int64)
    running = torch.ones(num_envs, dtype=torch.bool)
    for _ in range(MAX_STEPS):
        step = world.step(act(observation))
        returns += step.reward.cpu() * running
        has_metric = "metric" in step.columns
        if has_metric:
            metric = torch.where(running, step.columns["metric"].cpu(), metric)
        if "slot_stage" in step.columns:
            standing = (step.columns["slot_stage"] == Stage.FOSSILISED.code).sum(dim=1)
            fossils = torch.where(running, standing, fossils)
        running &= ~(step.terminated | step.truncated).cpu()
        if not bool(running.any()):
            return Played(returns=returns, has_metric=has_metric, metric=metric, fossils=fossils)
        observation = step.observation
    raise RuntimeError(f"an episode did not end within {MAX_STEPS} steps")
