"""A grpo run as processes: the server, the handlers and the trainer, and how all of them end.

Rules: what this process started ends with it, however it ends; where the server is another's, it is left
running. A run whose handlers have all failed ends with their words. Must not know the loss or the wire.
"""

import contextlib
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import torch

from overwatch.events import MetricInfo
from overwatch_rl.algorithms.grpo import GRPO
from overwatch_rl.assembly import Flight, Keeping, Reporting, RunFacts
from overwatch_rl.checkpoints.reading import Checkpoint
from overwatch_rl.grpo.base import judge, make_base
from overwatch_rl.grpo.config import STALE, GrpoSettings, config_of, described
from overwatch_rl.grpo.model import ModelConfig, Transformer
from overwatch_rl.grpo.source import PATIENCE_S, RolloutsSource
from overwatch_rl.grpo.task import END_CODE, LETTERS, VOCABULARY
from overwatch_rl.grpo.trainer import Ends, GrpoTrainer
from overwatch_rl.grpo.weights import newest, publish
from overwatch_rl.handover.children import Child, child
from overwatch_rl.rollouts.calls import CallError, Target
from overwatch_rl.telemetry.reporter import started
from overwatch_rl.telemetry.running import Lines
from overwatch_rl.training.keeper import position_of
from overwatch_rl.types import ObservationSpec, Reporter, WorldSpec, discrete
from overwatch_rl.web.authorisation import read_token

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
    about = RunFacts(
        config=config_of(settings), described=described(settings), envs=settings.handlers,
        updates=settings.loop.updates, out=settings.out, tower=settings.tower, screen=Lines,
    )  # fmt: skip
    parts = Reporting(about, keeping, checkpoint)
    try:
        with contextlib.ExitStack() as stack:
            try:
                reporter = parts.report(spec_of(settings))
                folder = _weights_folder(settings, stack)
                url = settings.server or _server(settings, parts.run_id, stack)
                trainer = _trainer(settings, checkpoint, (url, folder), parts, reporter)
                keeper = parts.keeper(trainer, reporter, has_world=False)
                handlers = [
                    stack.enter_context(_handler(settings, number, url, folder, parts.run_id))
                    for number in range(settings.handlers)
                ]
                started(reporter, began)
            except BaseException as error:
                parts.fail(f"{type(error).__name__}: {error}")
                raise
            flight = Flight(
                trainer=trainer, run=lambda: trainer.run(lambda: _watched(handlers, stop)),
                reporter=reporter, tower=parts.tower, keeper=keeper, close=stack.pop_all().close,
            )  # fmt: skip
        flight.fly()
    except CallError as error:
        raise click.ClickException(str(error)) from error
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


def _handler(
    settings: GrpoSettings, number: int, url: str, folder: Path, run_id: str
) -> contextlib.AbstractContextManager[Child]:
    """One that samples."""
    words = ["grpo-handler", "--server", url, "--weights", str(folder)]
    words += ["--group-size", str(settings.group_size)]
    words += ["--seed", str(1 + number + 1000 * settings.seed), "--name", f"sort-{number}"]
    if settings.stale_from is not None and number == 0:
        words += ["--fault", f"{STALE}@{settings.stale_from}"]
    if settings.token_file is not None:
        words += ["--token-file", str(settings.token_file)]
    if settings.tower is not None:
        words += [*_reporting(settings, run_id), "--rank", str(number)]
    return child(f"handler {number}", words)


def _trainer(
    settings: GrpoSettings,
    checkpoint: Checkpoint | None,
    at: tuple[str, Path],
    parts: Reporting,
    reporter: Reporter,
) -> GrpoTrainer:
    """It learns from the server and publishes into the folder that it finds `at`."""
    task, (url, folder) = settings.task, at
    with reporter.phase("warm_up"):
        model = make_base(settings.base, task, settings.seed) if checkpoint is None else _shaped(settings)
    algorithm = GRPO(model, settings.grpo, seed=settings.seed, version=0)
    kept = None if checkpoint is None else position_of(checkpoint)
    source = RolloutsSource(
        Target(
            url=url,
            patience_s=PATIENCE_S,
            token=None if settings.token_file is None else read_token(settings.token_file),
        ),
        resumed_from=None if kept is None else int(kept.algorithm["version"]),
        run=None if parts.tower is None else parts.tower.run,
    )
    source.register(
        batch_size=settings.groups * settings.group_size,
        max_token_len=task.positions,
        num_steps=settings.loop.updates,
        starting_step=0 if kept is None else kept.updates,
        max_staleness=settings.max_staleness,
        wandb_group=parts.run_id,
        wandb_project="grpo",
    )
    ends = Ends(
        publish=lambda version: publish(folder, version, model, task),
        judge=lambda number: judge(model, task, seed=number),
        end_code=END_CODE,
        vocabulary=VOCABULARY,
        weights=model.num_parameters(),
    )
    lineage = 1 if parts.manager is None else parts.manager.next_lineage
    trainer = GrpoTrainer(algorithm, source, settings.loop, reporter, ends, lineage=lineage)
    if kept is not None:
        trainer.go_on(kept, last.version.number if (last := newest(folder)) else 0)
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
