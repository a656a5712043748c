"""A grpo run as processes: the server, the handlers and the trainer, and how all of them end.

Rules: what this process started ends with it, however it ends; where the server is another's, it is left
running. A run whose handlers have all failed ends with their words. Must not know the loss or the wire.
"""

import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import torch

from overwatch.events import MetricInfo
from overwatch_rl.algorithms.grpo import GRPO
from overwatch_rl.assembly import Keeping
from overwatch_rl.checkpoints.content import Retention
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import FOLDER
from overwatch_rl.checkpoints.reading import Checkpoint
from overwatch_rl.grpo.base import judge, make_base
from overwatch_rl.grpo.config import STALE, GrpoSettings, config_of, described
from overwatch_rl.grpo.model import ModelConfig, Transformer
from overwatch_rl.grpo.source import PATIENCE_S, RolloutsSource
from overwatch_rl.grpo.task import END_CODE, LETTERS, VOCABULARY
from overwatch_rl.grpo.trainer import Ends, GrpoTrainer
from overwatch_rl.grpo.weights import publish, versions
from overwatch_rl.handover.children import Child, child
from overwatch_rl.resume import hash_of, run_id_of
from overwatch_rl.rollouts.calls import CallError, Target
from overwatch_rl.telemetry.files import Files
from overwatch_rl.telemetry.log import FlightLog, flight_logger
from overwatch_rl.telemetry.reporter import Fanout, started
from overwatch_rl.telemetry.running import Lines
from overwatch_rl.telemetry.tower import Tower, named, start_tower
from overwatch_rl.training.keeper import CheckpointError, Keeper, Kept, position_of
from overwatch_rl.types import ObservationSpec, Reporter, WorldSpec, discrete

_GREETING: Final = re.compile(r"rollouts API at (https?://[^,\s]+)")
_RETRY_S: Final = 0.05
"""Updates take a few tenths of a second."""
_START_S: Final = 60.0


def run(
    settings: GrpoSettings, keeping: Keeping, checkpoint: Checkpoint | None, stop: Callable[[], str | None]
) -> GrpoTrainer:
    """Train; whatever happens, what was started is ended and the run closed with its outcome."""
    began = time.perf_counter()
    torch.set_num_threads(settings.threads)
    reporters = _Reporters(settings, keeping, checkpoint)
    outcome, reason = "failed", None
    try:
        try:
            with contextlib.ExitStack() as stack:
                trainer = _assembled(settings, checkpoint, reporters, stack)
                started(reporters.all, began)
                outcome = trainer.run(lambda: _watched(reporters.handlers, stop))
        finally:
            with reporters.all.phase("shutdown"):
                reporters.keep_last(is_whole=outcome != "failed")
    except BaseException as error:
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, CheckpointError | CallError):
            raise click.ClickException(str(error)) from error
        raise
    finally:
        reporters.all.close(outcome=outcome, reason=reason)
    return trainer


def _assembled(
    settings: GrpoSettings,
    checkpoint: Checkpoint | None,
    reporters: "_Reporters",
    stack: contextlib.ExitStack,
) -> GrpoTrainer:
    """The trainer, with the server and the handlers running."""
    folder = _weights_folder(settings, stack)
    url = settings.server or _server(settings, reporters.run_id, stack)
    trainer = _trainer(settings, checkpoint, url, folder, reporters)
    reporters.keep(trainer)
    for number in range(settings.handlers):
        name, words = _handler(settings, number, url, folder)
        if settings.tower is not None:
            words += [*_reporting(settings, reporters.run_id), "--rank", str(number)]
        reporters.handlers.append(stack.enter_context(child(name, words)))
    return trainer


def _watched(children: list[Child], stop: Callable[[], str | None]) -> str | None:
    """The outcome to end with; raises `RuntimeError` when no handler is left, with the words of one."""
    failed = [one for one in children if one.process.poll() not in (None, 0)]
    if children and len(failed) == len(children):
        last = "\n".join(failed[0].tail)
        raise RuntimeError(f"all {len(failed)} handlers have failed; {failed[0].name} printed:\n{last}")
    return stop()


def _weights_folder(settings: GrpoSettings, stack: contextlib.ExitStack) -> Path:
    if settings.weights is not None:
        return settings.weights
    if settings.out is not None:
        return settings.out / "weights"
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overwatch-grpo-")))


def _server(settings: GrpoSettings, run_id: str, stack: contextlib.ExitStack) -> str:
    """Start one on a free port; its address."""
    words = ["rollouts", "--listen", "127.0.0.1:0", "--retry-s", str(_RETRY_S), *_reporting(settings, run_id)]
    if settings.out is None:
        words += ["--durability", "memory"]
    else:
        words += ["--folder", str(settings.out / "rollouts")]
    server = stack.enter_context(child("server", words))
    while (line := server.lines.get(timeout=_START_S)) is not None:
        if (url := address_in(line)) is not None:
            return url
    raise RuntimeError("the rollouts server ended before it served:\n" + "\n".join(server.tail))


def address_in(line: str) -> str | None:
    """The server's address, where this is the line with which it begins; others name the collector's.

    >>> address_in("rollouts API at http://127.0.0.1:8000, 0 groups in memory alone")
    'http://127.0.0.1:8000'
    """
    found = _GREETING.search(line)
    return None if found is None else found[1]


def _reporting(settings: GrpoSettings, run_id: str) -> list[str]:
    if settings.tower is None:
        return ["--no-telemetry"]
    endpoint = settings.tower.endpoint
    return ["--run-id", run_id, *(() if endpoint is None else ("--endpoint", endpoint))]


def _handler(settings: GrpoSettings, number: int, url: str, folder: Path) -> tuple[str, list[str]]:
    """Name and command of one."""
    words = ["grpo-handler", "--server", url, "--weights", str(folder)]
    words += ["--group-size", str(settings.group_size)]
    words += ["--seed", str(1 + number + 1000 * settings.seed), "--name", f"sort-{number}"]
    if settings.stale_from is not None and number == 0:
        words += ["--fault", f"{STALE}@{settings.stale_from}"]
    return f"handler {number}", words


def _trainer(
    settings: GrpoSettings, checkpoint: Checkpoint | None, url: str, folder: Path, reporters: "_Reporters"
) -> GrpoTrainer:
    task = settings.task
    is_new = checkpoint is None
    with reporters.all.phase("warm_up"):
        model = make_base(settings.base, task, settings.seed) if is_new else _shaped(settings)
    algorithm = GRPO(model, settings.grpo, seed=settings.seed, version=0)
    done = 0 if checkpoint is None else checkpoint.state.updates
    kept = None if checkpoint is None else position_of(checkpoint)
    source = RolloutsSource(
        Target(url=url, token=settings.token, patience_s=PATIENCE_S),
        resumed_from=None if kept is None else int(kept.algorithm["version"]),
        run=None if reporters.tower is None else reporters.tower.run,
    )
    source.register(
        batch_size=settings.groups * settings.group_size,
        max_token_len=task.positions,
        num_steps=settings.loop.updates,
        starting_step=done,
        max_staleness=settings.max_staleness,
        wandb_group=reporters.run_id,
        wandb_project="grpo",
    )
    ends = Ends(
        publish=lambda version: publish(folder, version, model, task),
        judge=lambda number: judge(model, task, seed=number),
        end_code=END_CODE,
        vocabulary=VOCABULARY,
        weights=model.num_parameters(),
    )
    lineage = 1 if reporters.manager is None else reporters.manager.next_lineage
    trainer = GrpoTrainer(algorithm, source, settings.loop, reporters.all, ends, lineage=lineage)
    if kept is not None:
        newest = max((version.number for version in versions(folder)), default=0)
        trainer.go_on(kept, newest)
    return trainer


def _shaped(settings: GrpoSettings) -> Transformer:
    """A model whose weights come from a checkpoint."""
    shape = ModelConfig(
        vocabulary=VOCABULARY,
        positions=settings.task.positions,
        width=settings.base.width,
        layers=settings.base.layers,
    )
    return Transformer(shape, torch.Generator())


def spec_of(settings: GrpoSettings) -> WorldSpec:
    """The task as telemetry knows worlds."""
    return WorldSpec(
        task="sort",
        metric=MetricInfo(name="reward"),
        reward_mode="verified",
        observation=ObservationSpec(shape=(settings.task.positions,)),
        action=discrete(tuple(LETTERS), "letter"),
    )


class _Reporters:
    """Where a run's numbers go; the lock of its folder comes before anything is written there."""

    def __init__(self, settings: GrpoSettings, keeping: Keeping, checkpoint: Checkpoint | None) -> None:
        self._settings = settings
        self._keeping = keeping
        self._config = config_of(settings)
        self.manager: Manager | None = None
        own = keeping.run_id if checkpoint is None else run_id_of(checkpoint, settings.out, keeping.run_id)
        if settings.out is not None:
            after = 0 if checkpoint is None else checkpoint.state.lineage
            self.manager = Manager(settings.out / FOLDER, Retention(keep=keeping.keep), after=after)
        spec = spec_of(settings)
        self.tower: Tower | None = None
        if settings.tower is not None:
            resumed = None if checkpoint is None else checkpoint.state.updates
            tower = replace(settings.tower, run_id=own, resumed=resumed)
            self.tower = start_tower(tower, spec, settings.handlers, described(settings))
        self.run_id = self.tower.run_id if self.tower else named(own, spec.task)
        found: list[Reporter] = []
        if settings.out is not None:
            about = {"run_id": self.run_id, "config_hash": hash_of(self._config), "config": self._config}
            state = None if checkpoint is None else checkpoint.state
            done = (0, 0) if state is None else (state.updates, state.steps)
            found.append(Files(settings.out, about, done=done))
        if self.tower is not None:
            found.append(self.tower)
        found.append(self._log(checkpoint))
        self.all = Fanout(found)
        self.handlers: list[Child] = []
        self._keeper: Keeper | None = None

    def keep(self, trainer: GrpoTrainer) -> None:
        """Have it saved from now on, where anything is kept."""
        if self.manager is not None:
            kept = Kept(run_id=self.run_id, config=self._config, config_hash=hash_of(self._config))
            self._keeper = Keeper(
                trainer, self.manager, kept, self.all, every=self._keeping.every, has_world=False
            )

    def keep_last(self, *, is_whole: bool) -> None:
        """Save what is whole, and let go of the folder."""
        if self._keeper is not None:
            self._keeper.close(is_whole=is_whole)
        elif self.manager is not None:
            self.manager.close(None, {})

    def _log(self, checkpoint: Checkpoint | None) -> Reporter:
        if self._keeping.is_text:
            click.echo(f"run {self.run_id}")
            return Lines(self._settings.loop.updates)
        log = flight_logger(sys.stdout, run_id=self.run_id, config=hash_of(self._config))
        flight = FlightLog(log, "cpu", lambda: "" if self.tower is None else self.tower.traceparent())
        resumed = None if checkpoint is None else checkpoint.where
        flight.started(task="sort", settings=self._config, resumed_from=resumed)
        return flight
