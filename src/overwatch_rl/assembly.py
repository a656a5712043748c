"""Puts the parts of one training together, and flies it: whatever happens, each part is closed."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import torch

from overwatch.events import LogLine, Severity
from overwatch_rl.algorithms.common import Batch, Ranks
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.algorithms.table import kind_of
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import FOLDER
from overwatch_rl.checkpoints.reading import Checkpoint
from overwatch_rl.checkpoints.store import Retention
from overwatch_rl.config import TrainSettings
from overwatch_rl.resume import config_of, differences, go_on, hash_of, run_id_of
from overwatch_rl.telemetry.files import Files
from overwatch_rl.telemetry.log import FlightLog, flight_logger
from overwatch_rl.telemetry.reporter import Fanout, started
from overwatch_rl.telemetry.screen import Screen
from overwatch_rl.telemetry.tower import Tower, TowerConfig, named, recompiles, start_tower
from overwatch_rl.training.distributed import Joined, Place, together
from overwatch_rl.training.keeper import CheckpointError, Keeper, Kept
from overwatch_rl.training.replayed import Local, Replayed
from overwatch_rl.training.trainer import Trainer
from overwatch_rl.training.warmup import choose
from overwatch_rl.types import Reporter, WorldSpec
from overwatch_rl.worlds import make

PLAN_S: Final = 15.0
"""Seconds of CPU that the search for a plan may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What is kept and shown of a run, and under which name."""

    every: int
    """Updates between two checkpoints."""
    keep: int
    """Newest checkpoints that stay."""
    run_id: str | None = None
    """`None` takes that of the checkpoint, else makes one up."""
    log: str = "auto"
    """`text`, `json`, or `auto`: text on a terminal and JSON elsewhere."""

    @property
    def is_text(self) -> bool:
        """Whether lines are for a person."""
        return self.log == "text" or (self.log == "auto" and sys.stdout.isatty())


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A training that is ready to run."""

    trainer: Any
    run: Callable[[], str]
    """Trains; the outcome in one word."""
    reporter: Reporter
    tower: Tower | None
    keeper: Keeper | None
    """`None` where nothing is kept."""
    close: Callable[[], None]
    """Ends what was started for it, as subprocesses of a world."""

    def fly(self) -> None:
        """Train; whatever happens, the run is closed with its outcome, and kept when it is whole."""
        outcome, reason, is_whole = "failed", None, False
        try:
            try:
                outcome = self.run()
                is_whole = True
            finally:
                with self.reporter.phase("shutdown"), ExitStack() as ends:
                    ends.callback(self.close)
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
    settings: TrainSettings,
    keeping: Keeping,
    checkpoint: Checkpoint | None,
    stop: Callable[[], str | None],
    *,
    here: Place,
    ranks: Ranks,
) -> Flight:
    """Start what a run needs; where that fails, what has started is closed as failed.

    Of several ranks the first alone prints and writes; each reports to the tower.
    """
    began = time.perf_counter()
    torch.set_num_threads(settings.threads)
    world = make(settings.world_name, settings.world, settings.world_settings)
    algorithm = _algorithm(settings, world.spec, ranks)
    about = RunFacts(
        config=config_of(settings), described=settings.described, envs=settings.world.num_envs,
        updates=settings.trainer.updates, out=settings.out, tower=settings.tower,
        tensorboard=settings.tensorboard, device=settings.world.device,
        glyphs=world.spec.observation.glyphs if settings.view else "",
    )  # fmt: skip
    parts = Reporting(about, keeping, checkpoint, is_first=here.is_first)
    try:
        reporter = parts.report(world.spec)
        requested = together(ranks, stop, settings.trainer.steps)
        trainer = Trainer(world, algorithm, settings.trainer, reporter, requested)
        trainer.host_numbers = recompiles(reporter.fact)
        if isinstance(ranks, Joined):
            trainer.waited_s = ranks.waited_s
        if checkpoint is not None:
            go_on(trainer, checkpoint, is_first=here.is_first)
        elif settings.is_planned and isinstance(algorithm, PPO):
            trainer.warm_up = lambda batch: _planned(algorithm, batch, reporter, ranks)
        keeper = parts.keeper(trainer, reporter)
        started(reporter, began)
        return Flight(
            trainer=trainer,
            run=trainer.run,
            reporter=reporter,
            tower=parts.tower,
            keeper=keeper,
            close=getattr(world, "close", lambda: None),
        )
    except BaseException as error:
        parts.fail(f"{type(error).__name__}: {error}")
        raise


def _algorithm(settings: TrainSettings, spec: WorldSpec, ranks: Ranks) -> Any:
    """What the trainer drives: a row of the table, behind a memory where it is replayed."""
    name, config = settings.algorithm, settings.learned
    kind = kind_of(name)
    made = kind.make(spec, config, seed=settings.seed, device=settings.world.device, ranks=ranks)
    return Replayed(spec, made, Local(spec, made.config, settings.seed)) if kind.is_replayed else made


def _planned(algorithm: PPO, batch: Batch, reporter: Reporter, ranks: Ranks) -> dict[str, float]:
    """Choose the plan by which the algorithm computes from now on, and report it; the search's numbers."""
    minibatches = algorithm.config.minibatches
    tuned = choose(algorithm, batch, PLAN_S, time.process_time, minibatches=minibatches, ranks=ranks)
    algorithm.apply_plan(tuned.plan)
    if tuned.table:
        message = "; ".join(f"{name} {value}" for name, value in tuned.words().items())
        line = LogLine(at=time.time_ns(), severity=Severity.INFO, message=message, subsystem="warm-up")
        reporter.fact(line)
    return tuned.numbers()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What reporters and checkpoints have of a run, whatever trains in it."""

    config: dict[str, object]
    """As it lies in checkpoints."""
    described: dict[str, str]
    """As it is shown."""
    envs: int
    updates: int | None
    out: Path | None
    tower: TowerConfig | None
    tensorboard: Path | None = None
    device: str = "cpu"
    glyphs: str = ""
    """Characters of what the first env sees; empty where that is not shown."""
    screen: type[Screen] = Screen


class Reporting:
    """What has been started so far: the lock of the run's folder before anything is written there."""

    def __init__(
        self, about: RunFacts, keeping: Keeping, checkpoint: Checkpoint | None, *, is_first: bool = True
    ) -> None:
        self._is_first = is_first
        self._about = about
        self._keeping = keeping
        self._checkpoint = checkpoint
        self._digest = hash_of(about.config)
        self.run_id = ""
        self.manager: Manager | None = None
        self.tower: Tower | None = None
        self._reporters: list[Reporter] = []
        if about.out is not None:
            after = 0 if checkpoint is None else checkpoint.state.lineage
            self.manager = Manager(about.out / FOLDER, Retention(keep=keeping.keep), after=after)

    def report(self, spec: WorldSpec) -> Reporter:
        """Start the reporters; all of them as one."""
        about, known = self._about, self._checkpoint
        given = self._keeping.run_id
        own = given if known is None else run_id_of(known, about.out, given)
        if about.tower is not None:
            resumed = None if known is None else known.state.updates
            tower = replace(about.tower, run_id=own, resumed=resumed)
            self.tower = start_tower(tower, spec, about.envs, about.described)
        self.run_id = self.tower.run_id if self.tower else named(own, spec.task)
        if about.out is not None:
            header = {"run_id": self.run_id, "config_hash": self._digest, "config": about.config}
            done = (0, 0) if known is None else (known.state.updates, known.state.steps)
            self._reporters.append(Files(about.out, header, done=done, tensorboard=about.tensorboard))
        if self.tower is not None:
            self._reporters.append(self.tower)
        if self._is_first:
            self._reporters.append(self._log(spec))
        return Fanout(self._reporters)

    def keeper(self, trainer: Any, reporter: Reporter, *, has_world: bool = True) -> Keeper | None:
        """The one that saves; `None` where nothing is kept."""
        for one in self._reporters:
            if isinstance(one, FlightLog):
                one.memory = getattr(trainer, "memory", None)
        if self.manager is None:
            return None
        run = Kept(run_id=self.run_id, config=self._about.config, config_hash=self._digest)
        return Keeper(trainer, self.manager, run, reporter, every=self._keeping.every, has_world=has_world)

    def fail(self, reason: str) -> None:
        """Close all of it as failed."""
        if self.tower is not None and self.tower not in self._reporters:
            self._reporters.append(self.tower)
        Fanout(self._reporters).close(outcome="failed", reason=reason)
        if self.manager is not None:
            self.manager.close(None, {})

    def _log(self, spec: WorldSpec) -> Reporter:
        """Lines for a person on a terminal, else the flight's own log."""
        about, known = self._about, self._checkpoint
        differing = [] if known is None else differences(known.state, about.config)
        if self._keeping.is_text:
            if self.tower is not None:
                click.echo(f"run {self.run_id}")
            for one in differing:
                click.echo(f"resumed, and equal to rounding only: {one}", err=True)
            return about.screen(about.updates)
        log = flight_logger(sys.stdout, run_id=self.run_id, config=self._digest)
        tower = self.tower
        flight = FlightLog(
            log, about.device, lambda: "" if tower is None else tower.traceparent(), glyphs=about.glyphs
        )
        flight.started(
            task=spec.task, settings=about.config, resumed_from=None if known is None else known.where,
            equal_to_rounding_only=differing,
        )  # fmt: skip
        return flight
