"""A world, a network and an algorithm of your own for `overwatch-rl train`, from the folder that they are in.

    cd examples/own
    overwatch-rl train --world gym:parts:Steep-v0 --network parts:wide --algorithm parts:Ranked --updates 20

A world that steps all its environments at once is named as these: see `overwatch_rl.worlds.base`.
"""

from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import MountainCarEnv
from torch import nn

from overwatch_rl.algorithms.common import Batch
from overwatch_rl.algorithms.networks import Mlp, Size
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.types import Rollout


class Steep(MountainCarEnv):
    """A car with twice the force."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.force *= 2


gymnasium.register("Steep-v0", Steep, max_episode_steps=100)


def wide(*fitting: Any) -> nn.Module:
    """From the specs of observation and action, a generator and the size of hidden layers."""
    return Mlp(*fitting[:3], Size(width=128, activation="relu"))


class Ranked(PPO):
    """Learns from the rank of an advantage instead of its size."""

    def prepare(self, rollout: Rollout) -> Batch:
        """As PPO does, then by rank."""
        batch = super().prepare(rollout)
        return replace(batch, advantages=batch.advantages.argsort().argsort().float())
