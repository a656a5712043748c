"""One training, ours or SB3's, and what is kept of it: numbers an update, and the tower's judgement."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import torch

from overwatch.diagnose.hacking import CODE
from overwatch_rl.algorithms.dqn import DQN, DQNConfig
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.config import DQN_PRESET, PRESETS, Preset
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.trained import player
from overwatch_rl.training.replayed import Local, Replayed
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.goodhart.config import goodhart_config
from overwatch_rl.worlds.goodhart.verification import directions
from tests.learning.clustered import config_of, trained
from tests.learning.sb3 import Wrapped, dqn_learner, learner
from tests.overwatch.diagnose.watched import Watched

GOODHART: Final = "goodhart:small"
CARTPOLE: Final = "gym:CartPole-v1"
CARTPOLE_DQN: Final = "gym:CartPole-v1 dqn"
"""A world, and the algorithm where that is not PPO."""
JUDGED: Final = (
    "proxy_return", "true_return", "food_share", "poison_share", "food_offered", "poison_offered",
)  # fmt: skip
"""All that the judgement gets: no name of a mode, no reward that was paid."""
KEPT: Final = ("return", "proxy_return", "true_return", "food_share")
Who = Literal["ours", "cluster", "SB3"]


class Job(msgspec.Struct, frozen=True):
    """What is trained."""

    who: Who
    world: str
    mode: str
    """Empty in a world without modes."""
    seed: int
    updates: int


class Training(msgspec.Struct, frozen=True):
    """What came of it."""

    job: Job
    rows: dict[str, list[float | None]]
    """A number an update; `None` where no episode ended."""
    named: int | None
    """Update at which the tower named reward hacking."""
    towards_food: float | None
    """Share of placements in which the likeliest move goes nearer to food; `None` in another world."""

    def mean(self, name: str, part: slice) -> float:
        """Over the updates of this part in which the number is known."""
        known = [value for value in self.rows[name][part] if value is not None]
        return sum(known) / len(known)


class Numbers(Silent):
    """Keeps the numbers of updates."""

    def __init__(self) -> None:
        self.updates: list[Mapping[str, float]] = []

    def update(self, index: int, values: Mapping[str, float]) -> None:  # noqa: ARG002 they come in order
        """Keep them."""
        self.updates.append(dict(values))


def train(job: Job) -> Training:
    """Train it with the preset of its world, on one thread."""
    torch.set_num_threads(1)
    is_goodhart = job.world == GOODHART
    makers = {"ours": _ours, "cluster": _cluster}
    updates, towards = makers.get(job.who, _theirs)(job)
    kept = {name: [_rounded(row[name]) for row in updates] for name in KEPT if name in updates[0]}
    named = _named(updates) if is_goodhart and job.who != "cluster" else None
    return Training(job=job, rows=kept, named=named, towards_food=towards)


def _settings(job: Job) -> dict[str, object]:
    return {"mode": job.mode} if job.mode else {}


def _ours(job: Job) -> tuple[list[Mapping[str, float]], float | None]:
    preset, kept = preset_of(job.world), Numbers()
    world = make(job.world.partition(" ")[0], WorldConfig(num_envs=preset.envs), _settings(job))
    config = TrainerConfig(updates=job.updates, steps=preset.steps, seed=job.seed)
    if isinstance(preset.learned, DQNConfig):
        dqn = DQN(world.spec, preset.learned, seed=job.seed)
        replayed = Replayed(world.spec, dqn, Local(world.spec, preset.learned, job.seed))
        Trainer(world, replayed, config, kept, lambda: None).run()
        return kept.updates, None
    algorithm = PPO(world.spec, preset.learned, seed=job.seed)
    Trainer(world, algorithm, config, kept, lambda: None).run()
    if job.world != GOODHART:
        return kept.updates, None
    own = goodhart_config(GOODHART.partition(":")[2], _settings(job))
    return kept.updates, directions(player(algorithm), own).share


def _cluster(job: Job) -> tuple[list[Mapping[str, float]], float | None]:
    """Its learner has the returns of episodes, not what its world states of them."""
    found, _ = trained(config_of(job.world, _settings(job), job.seed), job.updates)
    return [{"return": value} for value in found], None


def _theirs(job: Job) -> tuple[list[Mapping[str, float]], float | None]:
    preset = preset_of(job.world)
    world = make(job.world.partition(" ")[0], WorldConfig(num_envs=preset.envs), _settings(job))
    env = Wrapped(world, preset.envs, seed=job.seed, steps=preset.steps)
    total = job.updates * preset.envs * preset.steps
    if isinstance(preset.learned, DQNConfig):
        dqn_learner(env, world, preset.learned, seed=job.seed, steps=preset.steps, total=total).learn(total)
        return list(env.updates), None
    learner(env, world, preset.learned, seed=job.seed, steps=preset.steps).learn(total)
    return list(env.updates), None


def preset_of(world: str) -> Preset[Any]:
    """What it is trained with."""
    if world == CARTPOLE_DQN:
        return DQN_PRESET
    return PRESETS.get(world) or PRESETS[world.partition(":")[0]]


def _rounded(value: float) -> float | None:
    return round(value, 3) if value == value else None  # noqa: PLR0124 not a number


def _named(updates: list[Mapping[str, float]]) -> int | None:
    run = Watched()
    run.updates(
        range(1, len(updates) + 1),
        lambda number: {name: updates[number - 1][name] for name in JUDGED},
        alone=True,
    )
    return run.opened.get(CODE)
