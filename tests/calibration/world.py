"""Our own world, trained and recorded as the others are: its trained policy must beat never growing anything.

Run it with `python -m tests.calibration.world FILE`.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from overwatch.catalog import Scope, find
from overwatch.events import EarlyStopped, Event
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.trained import player
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.types import Rolled
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.evaluation import play
from overwatch_rl.worlds.schedules import baselines
from tests.calibration.recorded import Recording, Reported, Stop, write

NAME = "morphogenesis-0"
WORLD = "morphogenesis"
ENVS, UPDATES, SEED = 16, 60, 0
PLAYED, HELD_OUT = 32, 1_000_003


class Listener(Silent):
    """A reporter that keeps updates and episodes."""

    def __init__(self) -> None:
        self.reported: list[Reported] = []
        self._start = time.time_ns()

        self._stop: Stop | None = None

    def rollout(self, rolled: Rolled) -> None:
        """Keep the episodes that ended, step by step."""
        ended = rolled.terminated | rolled.truncated
        for step in ended.any(dim=1).nonzero().flatten().tolist():
            envs = ended[step].nonzero().flatten()
            columns = (envs, rolled.episode_return[step, envs], rolled.episode_length[step, envs])
            rows = zip(*(column.tolist() for column in columns), strict=True)
            self._keep(Reported(after_ns=time.time_ns() - self._start, episodes=tuple(rows)))

    def fact(self, event: Event) -> None:
        """Keep a stop until the numbers of its update come."""
        if isinstance(event, EarlyStopped):
            self._stop = Stop(epoch=event.epoch, kl=event.kl_divergence, target=event.target)

    def update(self, index: int, values: Mapping[str, float]) -> None:  # noqa: ARG002 they come in order
        """Keep it, under full names, with its stop."""
        named = {
            row.name: value
            for short, value in values.items()
            if (row := find(short, Scope.POLICY)) is not None
        }
        self._keep(Reported(after_ns=time.time_ns() - self._start, values=named, stop=self._stop))
        self._stop = None

    def _keep(self, reported: Reported) -> None:
        self.reported.append(reported)


def train() -> Recording:
    """Train with the defaults; takes a minute or two."""
    torch.set_num_threads(1)
    listener, config = Listener(), TrainerConfig(updates=UPDATES, seed=SEED)
    world = make(WORLD, WorldConfig(num_envs=ENVS))
    ppo = PPOConfig()
    algorithm = PPO(world.spec, ppo, seed=SEED)
    Trainer(world, algorithm, config, listener, lambda: None).run()
    held_out = make(WORLD, WorldConfig(num_envs=PLAYED))
    waiting = baselines(held_out.spec.action, torch.Generator().manual_seed(SEED))["always-wait"]
    return Recording(
        name=NAME,
        task=WORLD,
        n_envs=ENVS,
        seed=SEED,
        config={name: str(getattr(ppo, name)) for name in ("learning_rate", "target_kl", "max_grad_norm")},
        reaches=play(held_out, waiting, HELD_OUT).mean,
        reached=play(held_out, player(algorithm), HELD_OUT).mean,
        reported=tuple(listener.reported),
    )


if __name__ == "__main__":
    recording = train()
    Path(sys.argv[1]).write_bytes(write(recording))
    print(recording.name, len(recording.updates), recording.reached, "of", recording.reaches)
