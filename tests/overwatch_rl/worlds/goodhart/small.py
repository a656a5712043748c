"""Small fields to test with."""

import torch
from torch import Tensor

from overwatch_rl.types import Observation, Step
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.goodhart.config import goodhart_config
from overwatch_rl.worlds.goodhart.greedy import Act
from overwatch_rl.worlds.goodhart.world import Goodhart


def world(num_envs: int = 4, *, device: str = "cpu", **settings: object) -> Goodhart:
    """A world of 11 x 11 fields with little in them."""
    few: dict[str, object] = {
        "size": 11, "min_food": 3, "max_food": 6, "min_poison": 2, "max_poison": 5, "redraw_every": 16
    }  # fmt: skip
    own = goodhart_config("", few | settings)
    return Goodhart(WorldConfig(num_envs=num_envs, device=device), own)


def drawn(seed: int) -> Act:
    """Moves drawn evenly."""
    generator = torch.Generator().manual_seed(seed)

    def act(observation: Observation) -> Tensor:
        return torch.randint(0, 8, (len(observation.features), 1), generator=generator)

    return act


def play(env: Goodhart, act: Act, num_steps: int, seed: int = 1) -> list[Step]:
    """The steps from a reset on."""
    observation = env.reset(seed)
    steps = []
    for _ in range(num_steps):
        steps.append(env.step(act(observation)))
        observation = steps[-1].observation
    return steps


def summarised(env: Goodhart, steps: list[Step]) -> dict[str, float]:
    """The world's own rows over these steps."""
    columns = {name: torch.stack([step.columns[name] for step in steps]) for name in steps[0].columns}
    ended = torch.stack([step.terminated | step.truncated for step in steps])
    assert env.spec.summary is not None
    return {name: float(value) for name, value in env.spec.summary(columns, ended).items()}
