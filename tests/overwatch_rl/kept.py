"""A reporter that keeps what it gets, and small trainings for the tests."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from overwatch.events import Event
from overwatch_rl.algorithms.common import Batch
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.types import Rolled
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig

TIMES = ("update_time", "inference_share", "env_step_share")
"""Numbers that are measured by a clock."""


@dataclass
class Kept(Silent):
    """All of a run, in memory."""

    updates: list[dict[str, float]] = field(default_factory=list)
    rolled: list[Rolled] = field(default_factory=list)
    facts: list[Event] = field(default_factory=list)
    beats: list[int] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    """As they began."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[object]:
        """Keep its name."""
        self.phases.append(name)
        return contextlib.nullcontext()

    def beat(self, step: int, duration_s: float) -> None:  # noqa: ARG002 no two are equal
        """Keep the step."""
        self.beats.append(step)

    def rollout(self, rolled: Rolled) -> None:
        """Keep a copy."""
        columns = {name: column.clone() for name, column in rolled.columns.items()}
        own = {
            name: getattr(rolled, name).clone()
            for name in ("actions", "rewards", "terminated", "truncated", "episode_return", "episode_length")
        }
        self.rolled.append(
            Rolled(
                first_step=rolled.first_step, at_first=rolled.at_first, at_last=rolled.at_last,
                columns=columns, seen=rolled.seen.clone(), **own,
            )
        )  # fmt: skip

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """Keep the numbers."""
        self.updates.append({"update": index, **values})

    def fact(self, event: Event) -> None:
        """Keep it."""
        self.facts.append(event)

    def numbers(self) -> list[dict[str, float]]:
        """All values but the time."""
        return [{name: value for name, value in one.items() if name not in TIMES} for one in self.updates]

    def mean(self, name: str, part: slice) -> float:
        """Mean of one value over some of the updates."""
        values = [update[name] for update in self.updates][part]
        return sum(values) / len(values)


def trainer(
    config: TrainerConfig,
    ppo: PPOConfig | None = None,
    *,
    envs: int = 2,
    slots: int = 1,
    stop: Callable[[Kept], str | None] | None = None,
) -> tuple[Trainer[Batch], PPO, Kept]:
    """A training of morphogenesis that is ready to run."""
    kept = Kept()
    world = make("morphogenesis", WorldConfig(num_envs=envs), {"slots": slots})
    algorithm = PPO(world.spec, ppo or PPOConfig(), seed=config.seed)
    made = Trainer(world, algorithm, config, kept, lambda: stop(kept) if stop else None)
    return made, algorithm, kept


def weights(algorithm: PPO) -> dict[str, torch.Tensor]:
    """A copy of everything it holds."""
    return {name: value.clone() for name, value in algorithm.state_dict().items()}
