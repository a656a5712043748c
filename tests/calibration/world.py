"""Our own world, trained and told as the others are: its trained policy must beat never growing anything.

Run it with `python -m tests.calibration.world FILE`.
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from overwatch.catalog import Scope, find
from overwatch_rl.algos.networks import player
from overwatch_rl.algos.ppo import PPOConfig
from overwatch_rl.envs import make
from overwatch_rl.envs.base import WorldConfig
from overwatch_rl.envs.evaluation import play
from overwatch_rl.envs.schedules import baselines
from overwatch_rl.trainer import Trainer, TrainerConfig
from overwatch_rl.types import StepReport, UpdateReport
from tests.calibration.recorded import Recording, Stop, Told, write

NAME = "morphogenesis-0"
WORLD = "morphogenesis"
ENVS, UPDATES, SEED = 16, 60, 0
PLAYED, HELD_OUT = 32, 1_000_003


class Listener:
    """A reporter that keeps updates and episodes."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._start = time.time_ns()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:  # noqa: ARG002 nothing to keep
        """Nothing to keep."""
        yield

    def step(self, report: StepReport) -> None:
        """Keep the episodes that ended."""
        ended = report.ended
        if ended is not None:
            columns = (ended.env_id, ended.episode_return, ended.length)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            self._keep(Told(after_ns=time.time_ns() - self._start, episodes=tuple(rows)))

    def update(self, report: UpdateReport) -> None:
        """Keep it, under full names, with its stop."""
        values = {
            row.name: value
            for short, value in report.values.items()
            if (row := find(short, Scope.POLICY)) is not None
        }
        stop = report.early_stop
        told = None if stop is None else Stop(epoch=stop.epoch, kl=stop.kl_divergence, target=stop.target)
        self._keep(Told(after_ns=time.time_ns() - self._start, values=values, stop=told))

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Nothing to keep."""

    def _keep(self, told: Told) -> None:
        self.told.append(told)


def train() -> Recording:
    """Train with the defaults; takes a minute or two."""
    torch.set_num_threads(1)
    listener, config = Listener(), TrainerConfig(updates=UPDATES, seed=SEED)
    trainer = Trainer(make(WORLD, WorldConfig(num_envs=ENVS)), config, listener, lambda: None)
    trainer.run()
    held_out = make(WORLD, WorldConfig(num_envs=PLAYED))
    waiting = baselines(held_out.action_spec, torch.Generator().manual_seed(SEED))["always-wait"]
    ppo: PPOConfig = config.ppo
    return Recording(
        name=NAME,
        task=WORLD,
        n_envs=ENVS,
        seed=SEED,
        config={name: str(getattr(ppo, name)) for name in ("learning_rate", "target_kl", "max_grad_norm")},
        reaches=play(held_out, waiting, HELD_OUT).mean,
        reached=play(held_out, player(trainer.policy), HELD_OUT).mean,
        told=tuple(listener.told),
    )


if __name__ == "__main__":
    recording = train()
    Path(sys.argv[1]).write_bytes(write(recording))
    print(recording.name, len(recording.updates), recording.reached, "of", recording.reaches)
