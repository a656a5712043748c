"""What age does to learning, in one process: `python -m tests.learning.stale`; printed, never a gate.

A trainer that learns from rollouts of older weights, without processes, services or a second actor: what
differs from a trainer that learns from its own is then age alone, and how estimates take it.
"""

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, cast
from unittest.mock import patch

import torch
from torch import Tensor

from overwatch_rl.algorithms import ppo
from overwatch_rl.algorithms.ppo import PPO, advantages
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.collector import Collector, CollectorConfig
from overwatch_rl.types import Observation, Rollout
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.learning.training import GOODHART, preset_of

UPDATES: Final = 60
LAST: Final = slice(-10, None)
SEEDS: Final = range(5)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to learn."""

    name: str
    age: int = 0
    """Updates by which a rollout is behind."""
    lam: float = 0.95
    is_shortened: bool = True
    """Whether an estimate trusts what is behind a stale action less, as V-trace does."""


ARMS: Final = (
    Arm("fresh"),
    Arm("one update old", age=1),
    Arm("one update old, whole traces", age=1, is_shortened=False),
    Arm("fresh, lambda 0.88", lam=0.88),
)


def returns(arm: Arm, seed: int, updates: int = UPDATES) -> list[float]:
    """The mean return of the episodes of each rollout, in the order in which they were learned from."""
    preset = preset_of(GOODHART)
    world = make(GOODHART, WorldConfig(num_envs=preset.envs), {"mode": "ground_truth"})
    config = replace(preset.learned, returns=replace(preset.learned.returns, lam=arm.lam))
    learned, acting = (PPO(world.spec, config, seed=seed) for _ in range(2))
    collected = CollectorConfig(steps=preset.steps, seed=seed)
    collector = Collector(world, acting, collected, Silent(), lambda: None)
    waiting: deque[tuple[Rollout, float]] = deque()
    found = []
    with patch.object(ppo, "advantages", advantages if arm.is_shortened else _whole):
        for update in range(updates):
            while len(waiting) <= arm.age:
                collector.collect()
                waiting.append((_copied(collector.rollout()), _mean_return(collector)))
            rollout, mean = waiting.popleft()
            if age := min(update, arm.age):
                rollout = replace(rollout, age=torch.full(rollout.rewards.shape, age))
            learned.update(learned.prepare(rollout))
            acting.policy.load_state_dict(learned.policy.state_dict())
            found.append(mean)
    return found


def _whole(
    rollout: Rollout, following: Tensor, gamma: float, gae_lambda: float, _rho: object = None
) -> Tensor:
    return advantages(rollout, following, gamma, gae_lambda)


def _mean_return(collector: Collector) -> float:
    rows = collector.rows()
    return float(rows["episode_return"][rows["terminated"] | rows["truncated"]].mean())


def _copied(rollout: Rollout) -> Rollout:
    columns = {one.name: getattr(rollout, one.name) for one in fields(rollout)}
    own = {name: value.clone() for name, value in columns.items() if isinstance(value, Tensor)}
    last = Observation(features=rollout.last.features.clone())
    return replace(rollout, last=last, **cast("Any", own))


def main(arguments: Sequence[str]) -> None:
    """Train each arm, or those that are named, and print the mean return of the last updates."""
    torch.set_num_threads(1)
    for arm in ARMS:
        if arguments and arm.name not in arguments:
            continue
        means = [sum(returns(arm, seed)[LAST]) / 10 for seed in SEEDS]
        listed = " ".join(f"{mean:.2f}" for mean in means)
        sys.stdout.write(f"{arm.name:30} {listed}  mean {sum(means) / len(means):.2f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
