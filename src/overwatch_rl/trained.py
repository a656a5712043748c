"""A policy that was trained and kept, as something that acts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from overwatch_rl import checkpoints
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.checkpoints import Manifest
from overwatch_rl.types import Observation, WorldSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPolicy:
    """A policy as it was kept."""

    manifest: Manifest
    weights: dict[str, Tensor]

    def player(self, spec: WorldSpec) -> Callable[[Observation], Tensor]:
        """Its likeliest actions in such a world; raises `ValueError` when that has another shape."""
        config = PPOConfig(
            network=self.manifest.network,
            popart=self.manifest.popart,
            normalise_observations="policy.normaliser.count" in self.weights,
        )
        policy = PPO(spec, config, seed=0)
        try:
            policy.policy.load_state_dict(
                {name.removeprefix("policy."): value for name, value in self.weights.items()}
            )
        except RuntimeError as error:
            settings = ", ".join(f"{name}={value}" for name, value in self.manifest.settings.items())
            raise ValueError(
                f"the policy was trained in {self.manifest.world} with {settings or 'its defaults'}, "
                "this world has another shape; leave its settings and --world out"
            ) from error
        return player(policy)


def player(policy: PPO, generator: torch.Generator | None = None) -> Callable[[Observation], Tensor]:
    """A frozen policy as a function from an observation to actions; drawn with a generator."""

    def act(observation: Observation) -> Tensor:
        return policy.act(observation, generator, greedy=generator is None).actions

    return act


def load_policy(folder: Path) -> TrainedPolicy:
    """The policy that a run kept in `folder`; raises `ValueError` when there is none."""
    weights, manifest = checkpoints.load(folder)
    return TrainedPolicy(manifest=manifest, weights=weights)
