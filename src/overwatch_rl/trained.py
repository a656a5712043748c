"""A policy that was trained and kept, as something that acts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from overwatch_rl.algorithms.common import Algorithm
from overwatch_rl.algorithms.table import AlgorithmConfig, kept, kind_of
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import POLICY
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.types import Observation, WorldSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPolicy:
    """A policy as it was kept."""

    world: str
    settings: Mapping[str, object]
    """Of its world."""
    run_id: str
    """That it is a policy of."""
    version: Version
    """Of the checkpoint."""
    updates: int
    """Updates that it had."""
    algorithm: str
    config: AlgorithmConfig
    weights: dict[str, Tensor]

    def player(self, spec: WorldSpec) -> Callable[[Observation], Tensor]:
        """Its likeliest actions in such a world; raises `ValueError` when that has another shape."""
        return player(self.policy(spec))

    def policy(self, spec: WorldSpec) -> Algorithm[Any]:
        """The policy itself for such a world; raises `ValueError` when that has another shape."""
        policy: Algorithm[Any] = kind_of(self.algorithm).make(spec, self.config, seed=0)
        try:
            policy.policy.load_state_dict(
                {name.removeprefix("policy."): value for name, value in self.weights.items()}
            )
        except RuntimeError as error:
            settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
            raise ValueError(
                f"the policy was trained in {self.world} with {settings or 'its defaults'}, "
                "this world has another shape; leave its settings and --world out"
            ) from error
        return policy


def player(
    policy: Algorithm[Any], generator: torch.Generator | None = None
) -> Callable[[Observation], Tensor]:
    """A frozen policy as a function from an observation to actions; drawn with a generator.

    One with memory remembers what it is shown: it plays one episode of each env.
    """
    memory: Tensor | None = None

    def act(observation: Observation) -> Tensor:
        nonlocal memory
        seen = observation if memory is None else replace(observation, memory=memory)
        decision = policy.act(seen, generator, greedy=generator is None)
        memory = decision.memory
        return decision.actions

    return act


def load_policy(place: Path | str) -> TrainedPolicy:
    """The newest policy that a run kept in a folder or at a URL, or that of one checkpoint.

    Raises `ValueError` when there is none.
    """
    checkpoint = find_checkpoint(place)
    config = cast("dict[str, Any]", checkpoint.state.config)
    name, algorithm = kept(config)
    return TrainedPolicy(
        world=config["world"],
        settings=config["settings"],
        run_id=checkpoint.state.run_id,
        version=checkpoint.state.version,
        updates=checkpoint.state.updates,
        algorithm=name,
        config=algorithm,
        weights=checkpoint.tensors(POLICY),
    )
