"""Puts the parts of one training together, and flies it: whatever happens, each part is closed."""

from collections.abc import Callable
from dataclasses import dataclass

import click
import torch

from overwatch_rl.algorithms.ppo import PPO, Batch
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import FOLDER
from overwatch_rl.checkpoints.reading import Checkpoint
from overwatch_rl.checkpoints.writing import Retention
from overwatch_rl.config import TrainSettings
from overwatch_rl.resume import config_of, differences, go_on, hash_of
from overwatch_rl.telemetry.files import Files
from overwatch_rl.telemetry.reporter import Fanout
from overwatch_rl.telemetry.screen import Screen
from overwatch_rl.telemetry.tower import Tower, named, start_tower
from overwatch_rl.training.keeper import CheckpointError, Keeper, Kept
from overwatch_rl.training.trainer import Trainer
from overwatch_rl.types import Reporter, WorldSpec
from overwatch_rl.worlds import make


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What is kept of a run, and under which name."""

    every: int
    """Updates between two checkpoints."""
    keep: int
    """Newest checkpoints that stay."""
    run_id: str | None = None
    """`None` takes that of the checkpoint, else makes one up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A training that is ready to run."""

    trainer: Trainer[Batch]
    reporter: Reporter
    tower: Tower | None
    keeper: Keeper | None
    """`None` where nothing is kept."""

    def fly(self) -> None:
        """Train; whatever happens, the run is closed with its outcome, and kept when it is whole."""
        outcome, reason, is_whole = "failed", None, False
        try:
            try:
                outcome = self.trainer.run()
                is_whole = True
            finally:
                if self.keeper is not None:
                    self.keeper.close(is_whole=is_whole)
        except BaseException as error:
            outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, CheckpointError):
                raise click.ClickException(str(error)) from error
            raise
        finally:
            self.reporter.close(outcome=outcome, reason=reason)


def assemble(
    settings: TrainSettings, keeping: Keeping, checkpoint: Checkpoint | None, stop: Callable[[], str | None]
) -> Flight:
    """Start what a run needs; where that fails, what has started is closed as failed."""
    torch.set_num_threads(settings.threads)
    world = make(settings.world_name, settings.world, settings.world_settings)
    algorithm = PPO(world.spec, settings.ppo, seed=settings.trainer.seed, device=settings.world.device)
    started: list[Reporter] = []
    try:
        tower = _report(settings, world.spec, started)
        reporter = Fanout(started)
        trainer = Trainer(world, algorithm, settings.trainer, reporter, stop)
        if checkpoint is not None:
            go_on(trainer, checkpoint)
            for one in differences(checkpoint.state, config_of(settings)):
                click.echo(f"resumed, and equal to rounding only: {one}", err=True)
        keeper = None
        if settings.out is not None:
            known = None if checkpoint is None else checkpoint.state.run_id
            run_id = tower.run_id if tower else named(keeping.run_id or known, world.spec.task)
            config = config_of(settings)
            run = Kept(run_id=run_id, config=config, config_hash=hash_of(config))
            manager = Manager(settings.out / FOLDER, Retention(keep=keeping.keep))
            keeper = Keeper(trainer, manager, run, reporter, every=keeping.every)
    except BaseException as error:
        Fanout(started).close(outcome="failed", reason=f"{type(error).__name__}: {error}")
        raise
    return Flight(trainer=trainer, reporter=reporter, tower=tower, keeper=keeper)


def _report(settings: TrainSettings, spec: WorldSpec, started: list[Reporter]) -> Tower | None:
    """Start the reporters, each at the end of `started`."""
    tower = None
    if settings.out is not None:
        started.append(Files(settings.out))
    if settings.tower is not None:
        tower = start_tower(settings.tower, spec, settings.world.num_envs, settings.described)
        started.append(tower)
        click.echo(f"run {tower.run_id}")
    started.append(Screen(settings.trainer.updates))
    return tower
