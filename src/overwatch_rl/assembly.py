"""Puts the parts of one training together, and flies it: whatever happens, each part is closed."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import click
import torch

from overwatch.events import LogLine, Severity
from overwatch_rl.algorithms.common import Batch, Ranks
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.algorithms.table import kind_of
from overwatch_rl.checkpoints.content import Retention
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import FOLDER
from overwatch_rl.checkpoints.reading import Checkpoint
from overwatch_rl.config import TrainSettings
from overwatch_rl.resume import config_of, differences, go_on, hash_of, run_id_of
from overwatch_rl.telemetry.files import Files
from overwatch_rl.telemetry.log import FlightLog, flight_logger
from overwatch_rl.telemetry.reporter import Fanout, started
from overwatch_rl.telemetry.screen import Screen
from overwatch_rl.telemetry.tower import Tower, named, recompiles, start_tower
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

    trainer: Trainer[Any]
    reporter: Reporter
    tower: Tower | None
    keeper: Keeper | None
    """`None` where nothing is kept."""
    close_world: Callable[[], None]
    """Ends what a world started, as subprocesses."""

    def fly(self) -> None:
        """Train; whatever happens, the run is closed with its outcome, and kept when it is whole."""
        outcome, reason, is_whole = "failed", None, False
        try:
            try:
                outcome = self.trainer.run()
                is_whole = True
            finally:
                with self.reporter.phase("shutdown"), ExitStack() as ends:
                    ends.callback(self.close_world)
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
    parts = _Started(settings, keeping, checkpoint, is_first=here.is_first)
    try:
        parts.report(world.spec)
        reporter = Fanout(parts.reporters)
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
            reporter=reporter,
            tower=parts.tower,
            keeper=keeper,
            close_world=getattr(world, "close", lambda: None),
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


class _Started:
    """What has been started so far: the lock of the run's folder before anything is written there."""

    def __init__(
        self, settings: TrainSettings, keeping: Keeping, checkpoint: Checkpoint | None, *, is_first: bool
    ) -> None:
        self._is_first = is_first
        self._settings = settings
        self._keeping = keeping
        self._checkpoint = checkpoint
        self._config = config_of(settings)
        self._run_id = ""
        self._manager: Manager | None = None
        self.tower: Tower | None = None
        self.reporters: list[Reporter] = []
        if settings.out is not None:
            after = 0 if checkpoint is None else checkpoint.state.lineage
            self._manager = Manager(settings.out / FOLDER, Retention(keep=keeping.keep), after=after)

    def report(self, spec: WorldSpec) -> None:
        """Start the reporters."""
        settings, known = self._settings, self._checkpoint
        if settings.tower is not None:
            tower = replace(settings.tower, resumed=None if known is None else known.state.updates)
            self.tower = start_tower(tower, spec, settings.world.num_envs, settings.described)
        given = self._keeping.run_id
        own = given if known is None else run_id_of(known, settings.out, given)
        self._run_id = self.tower.run_id if self.tower else named(own, spec.task)
        digest = hash_of(self._config)
        if settings.out is not None:
            about = {"run_id": self._run_id, "config_hash": digest, "config": self._config}
            done = (0, 0) if known is None else (known.state.updates, known.state.steps)
            self.reporters.append(Files(settings.out, about, done=done, tensorboard=settings.tensorboard))
        if self.tower is not None:
            self.reporters.append(self.tower)
        differing = [] if known is None else differences(known.state, self._config)
        self._log(spec, digest, differing)

    def keeper(self, trainer: Trainer[Any], reporter: Reporter) -> Keeper | None:
        """The one that saves; `None` where nothing is kept."""
        for one in self.reporters:
            if isinstance(one, FlightLog):
                one.memory = trainer.memory
        if self._manager is None:
            return None
        run = Kept(run_id=self._run_id, config=self._config, config_hash=hash_of(self._config))
        return Keeper(trainer, self._manager, run, reporter, every=self._keeping.every)

    def fail(self, reason: str) -> None:
        """Close all of it as failed."""
        if self.tower is not None and self.tower not in self.reporters:
            self.reporters.append(self.tower)
        Fanout(self.reporters).close(outcome="failed", reason=reason)
        if self._manager is not None:
            self._manager.close(None, {})

    def _trace(self) -> str:
        return "" if self.tower is None else self.tower.traceparent()

    def _log(self, spec: WorldSpec, digest: str, differing: list[str]) -> None:
        """Lines for a person on a terminal, else the flight's own log."""
        settings = self._settings
        if not self._is_first:
            return
        if self._keeping.is_text:
            if self.tower is not None:
                click.echo(f"run {self._run_id}")
            for one in differing:
                click.echo(f"resumed, and equal to rounding only: {one}", err=True)
            self.reporters.append(Screen(settings.trainer.updates))
            return
        log = flight_logger(sys.stdout, run_id=self._run_id, config=digest)
        glyphs = spec.observation.glyphs if settings.view else ""
        flight = FlightLog(log, settings.world.device, self._trace, glyphs=glyphs)
        resumed = None if self._checkpoint is None else self._checkpoint.where
        flight.started(
            task=spec.task, settings=self._config, resumed_from=resumed, equal_to_rounding_only=differing
        )
        self.reporters.append(flight)
