"""A learner as a process: what it is made of, where it goes on from, and how it ends.

Rules: a run goes on from its newest checkpoint that is whole, with a lineage of its own; another
configuration than that of the checkpoint is an error. Whatever happens, each part is closed; the last
checkpoint and the last weights are written where training ended in order. Must not know how experience is
learned from.
"""

import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec
import torch
from torch import Tensor

from overwatch.events import Severity
from overwatch.objects.store import below
from overwatch.platform import keep_large_blocks
from overwatch_rl.algorithms.common import Plan
from overwatch_rl.algorithms.table import ALGORITHMS
from overwatch_rl.artifacts.signing import KEY_FILE
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import FOLDER
from overwatch_rl.checkpoints.reading import Checkpoint
from overwatch_rl.checkpoints.store import Retention, Saving
from overwatch_rl.checkpoints.writer import Written
from overwatch_rl.learner.config import LearnerConfig, check_trace
from overwatch_rl.learner.control import Control, ControlLostError, Outcome
from overwatch_rl.learner.governed import LoopCommands, OrchestratorSession
from overwatch_rl.learner.io import Io, IoError, Sampling
from overwatch_rl.learner.recovery import GaveUpError
from overwatch_rl.learner.restoring import first_version, newest
from overwatch_rl.learner.sampled import SampledLoop
from overwatch_rl.learner.sampling import SampledIo
from overwatch_rl.learner.service import Dependencies, LearnerLoop, StopConditions
from overwatch_rl.learner.trace import Trace
from overwatch_rl.orchestrator.client import OrchestratorError
from overwatch_rl.replay.client import Access, ReplayClient, State
from overwatch_rl.telemetry.files import Files
from overwatch_rl.telemetry.meter import Meter
from overwatch_rl.telemetry.reporter import Fanout, started
from overwatch_rl.telemetry.running import log_of
from overwatch_rl.telemetry.tower import Tower, TowerConfig, start_tower
from overwatch_rl.training.keeper import Cadence, CheckpointError, Keeper, Kept, position_of
from overwatch_rl.training.replayed import Remembering
from overwatch_rl.training.trainer import Position
from overwatch_rl.types import Reporter, WorldSpec
from overwatch_rl.weights.publisher import Publisher, Publishing
from overwatch_rl.weights.served import Serving
from overwatch_rl.weights.writer import Published
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig

LEARNER: Final = "learner"
"""Name under which leases are held: a learner that goes on takes over those of the one before."""
EXPECTED: Final = (CheckpointError, IoError, GaveUpError, ControlLostError, OrchestratorError)
"""StopConditions of a run whose message is enough."""
_ZSTD: Final = 1
_UPDATES: Final = 10
"""After which a checkpoint is written where nothing is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """One learner, and where everything is."""

    config: LearnerConfig
    run_id: str
    out: Path
    """The run's folder on this machine: its numbers, its key, its locks."""
    table: str
    servers: tuple[str, ...]
    access: Access
    bucket: str | None
    """URL of the place of checkpoints and weights; `None` for `out`."""
    weights: str | None
    """URL of the Redis that holds the version key; `None` for the bucket."""
    ends: StopConditions
    tower: TowerConfig | None
    """`None` without telemetry."""
    log: str
    serving: Serving | None = None
    """Where weights are served over HTTP; `None` serves none."""
    trace: Path | None = None
    """File of which steps are in the weights; `None` writes none."""
    governed: OrchestratorSession | None = None
    """The orchestrator; `None` where nobody commands."""

    @property
    def place(self) -> str | Path:
        """Of checkpoints."""
        return below(self.out if self.bucket is None else self.bucket, FOLDER)

    def __post_init__(self) -> None:
        """Raise `ValueError` for what an algorithm that samples cannot have."""
        check_trace(self.config, self.trace)
        if self.config.kind.is_replayed and len(self.servers) > 1:
            raise ValueError(
                f"{len(self.servers)} replay servers are named; {self.config.algorithm} samples from one"
            )


def run(settings: LearnerSettings, stop: Callable[[], str | None]) -> LearnerLoop:
    """Train until it is done, commanded or asked to stop."""
    keep_large_blocks()
    began = time.perf_counter()
    torch.set_num_threads(settings.config.threads)
    torch.manual_seed(settings.config.seed)
    begun = Outputs(settings)
    outcome, reason = "failed", None
    try:
        try:
            flight = LearnerRun(settings, begun, stop)
        except BaseException:
            begun.let_go()
            raise
        started(begun.reporter, began)
        outcome = flight.run()
    except BaseException as error:
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = _reason(error)
        if isinstance(error, EXPECTED):
            raise click.ClickException(str(error)) from error
        if is_out_of_memory(error):
            raise click.ClickException(reason) from error
        raise
    finally:
        begun.reporter.close(outcome=outcome, reason=reason)
    return flight.loop


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory; on the CPU PyTorch raises a `RuntimeError` then."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def _reason(error: BaseException) -> str:
    if is_out_of_memory(error):
        return f"out of memory; a restart goes on from the newest checkpoint: {error}"
    return f"{type(error).__name__}: {error}"


def spec_of(config: LearnerConfig) -> WorldSpec:
    """Of the world that actors step."""
    world = make(config.world, WorldConfig(num_envs=1), config.world_settings)
    try:
        return world.spec
    finally:
        getattr(world, "close", lambda: None)()


class Outputs:
    """What a run writes and reports to; the lock of its place comes before anything is written there."""

    def __init__(self, settings: LearnerSettings) -> None:
        config = settings.config
        self.spec = spec_of(config)
        settings.out.mkdir(parents=True, exist_ok=True)
        self.publishing = Publishing(
            run_id=settings.run_id,
            folder=settings.out,
            artifacts=settings.bucket,
            key_url=settings.weights,
            config_hash=config.hash,
            dtype=config.weights.dtype,
            every_s=config.weights.every_s,
            keep=config.weights.keep,
        )
        self.publisher = Publisher(self.publishing)
        with ExitStack() as undo:
            undo.callback(self.publisher.close)
            saving = Saving(zstd=_ZSTD if config.checkpoint.compress else 0, key=settings.out / KEY_FILE)
            self.manager = Manager(settings.place, Retention(keep=config.checkpoint.keep), saving)
            undo.callback(lambda: self.manager.close(None, {}))
            self.checkpoint = newest(settings.place, config)
            self.tower: Tower | None = None
            if settings.tower is not None:
                shown = config.model_dump(exclude=set(ALGORITHMS)) | asdict(config.learned)
                words = {name: str(value) for name, value in shown.items()}
                done = None if self.checkpoint is None else self.checkpoint.state.updates
                tower = replace(settings.tower, resumed=done)
                self.tower = start_tower(tower, self.spec, None, words)
            self.reporter: Reporter = Fanout(self._reporters(settings))
            undo.pop_all()

    def let_go(self) -> None:
        """End what would have written."""
        self.manager.close(None, {})
        self.publisher.close()

    def _reporters(self, settings: LearnerSettings) -> list[Reporter]:
        digest = settings.config.hash
        state = None if self.checkpoint is None else self.checkpoint.state
        done = (0, 0) if state is None else (state.updates, state.steps)
        about = {"run_id": settings.run_id, "config_hash": digest, "config": settings.config.kept()}
        found: list[Reporter] = [Files(settings.out, about, done=done)]
        if self.tower is not None:
            found.append(self.tower)
        return [*found, log_of(settings.log, settings.run_id, digest, self.tower, settings.ends.updates)]


class _Weights:
    """Publishes, and counts what became of it."""

    def __init__(self, publisher: Publisher, meter: Meter, log: Callable[[Severity, str], None]) -> None:
        self._publisher = publisher
        self._meter = meter
        self._log = log
        self._last: Version | None = None
        self._fault: str | None = None
        self._published = time.monotonic()
        """When a version was published last, or this process began."""

    def publish(self, version: Version, tensors: Mapping[str, Tensor]) -> None:
        """Have a version published."""
        self._last = version
        self._publisher.publish(version, tensors)

    def report(self) -> None:
        """Count what became of versions."""
        for one in self._publisher.finished():
            self._count(one)
        self._meter.gauge(weights_age=time.monotonic() - self._published)

    def close(self, version: Version | None, tensors: Mapping[str, Tensor] | None) -> None:
        """Publish the last one, where it was not; end."""
        is_new = version is not None and (self._last is None or version > self._last)
        for one in self._publisher.close(version if is_new else None, tensors if is_new else None):
            self._count(one)

    def _count(self, one: Published) -> None:
        # One that was given up for a newer one had failed: a store that is away shows while training goes on.
        self._meter.count("weights_publish", status=one.status if one.error is None else "error")
        if one.status == "ok":
            self._published = time.monotonic()
            self._meter.gauge(weights_version=one.version.number)
        if one.error != self._fault and (one.status == "ok" or one.error is not None):
            self._fault = one.error
            why = (
                "weights are published again" if one.error is None else f"weights {one.version}: {one.error}"
            )
            self._log(Severity.INFO if one.error is None else Severity.WARNING, why)


class LearnerRun:
    """A learner that is ready to run."""

    def __init__(self, settings: LearnerSettings, begun: Outputs, stop: Callable[[], str | None]) -> None:
        self._settings = settings
        self._begun = begun
        self._stop = stop
        self._meter = Meter(None if begun.tower is None else begun.tower.run)
        self._weights = _Weights(begun.publisher, self._meter, self._log)
        around = Dependencies(weights=self._weights, reporter=begun.reporter, meter=self._meter, stop=stop)
        self.loop = self._loop(around)
        self._go_on(begun.checkpoint)
        self._keeper = self._keeping()
        self._io = self.loop.feed = self._fed()

    def run(self) -> str:
        """Train; whatever happens, each part is ended."""
        with ExitStack() as ends:
            if self._settings.trace is not None:
                self.loop.trace = ends.enter_context(Trace(self._settings.trace))
            ends.callback(self._io.close)
            is_whole, outcome = False, "failed"
            try:
                self._io.start()
                outcome = self.loop.run()
                is_whole = True
            except BaseException as error:
                if is_out_of_memory(error):
                    self._keep(error)
                raise
            finally:
                ends.enter_context(self._begun.reporter.phase("shutdown"))
                ends.callback(self._end_weights, is_whole=is_whole)
                ends.callback(self._end_control, outcome)
                self._keeper.close(is_whole=is_whole)
        return outcome

    def _loop(self, around: Dependencies) -> LearnerLoop:
        """That of the algorithm's kind."""
        spec, config, ends = self._begun.spec, self._settings.config, self._settings.ends
        made = config.kind.make(spec, config.learned, seed=config.seed, device=config.device)
        if config.kind.is_replayed:
            return SampledLoop(Remembering(made), spec, config, around, ends)
        return LearnerLoop(made, spec, config, around, ends)

    def _fed(self) -> Io:
        """What brings experience, and talks to control beside it."""
        settings = self._settings
        beside = (self._attended(), self._served(settings.serving))
        table = settings.config.table(settings.table)
        if table is None:
            return Io(self._connect, self._sampling(), self._meter, *beside)
        return SampledIo(self._connect, table, self._meter, *beside)

    def _go_on(self, checkpoint: Checkpoint | None) -> None:
        """Begin this life: of a new run, from a checkpoint, or after one that ended before its first."""
        begun = self._begun
        first = first_version(checkpoint, begun.publisher.known, begun.manager.next_lineage)
        if first is None:
            return
        position = self.loop.position()
        if checkpoint is not None:
            self.loop.algorithm.apply_plan(msgspec.convert(checkpoint.state.plan, Plan))
            position = position_of(checkpoint)
            self.loop.checkpoint_version = str(checkpoint.state.version)
        self.loop.go_on(position, first)
        what = "no checkpoint" if checkpoint is None else f"checkpoint {checkpoint.state.version}"
        self._log(Severity.INFO, f"this run goes on from {what}; its weights are {first} now")

    def _keeping(self) -> Keeper:
        settings, config = self._settings, self._settings.config
        given = config.checkpoint
        is_stated = given.every_steps is not None or given.every_minutes is not None
        cadence = Cadence(
            env_steps=given.every_steps if is_stated else _UPDATES * config.rows, minutes=given.every_minutes
        )
        kept = Kept(run_id=settings.run_id, config=config.kept(), config_hash=config.hash)
        keeper = Keeper(
            self.loop, self._begun.manager, kept, self._begun.reporter, every=cadence, has_world=False
        )
        keeper.env_steps = lambda: self.loop.env_steps
        keeper.on_written, keeper.on_stalled = self._written, self._stalled
        self._meter.gauge(checkpoint_stalled=0.0)
        self.loop.idle = keeper.look
        self.loop.non_finite.newest = self._before
        return keeper

    def _sampling(self) -> Sampling:
        config, servers = self._settings.config, self._settings.servers
        kept = [int(one[0]) for one in self.loop.cursor()["servers"]][: len(servers)]
        if len(kept) < len(servers):  # Servers that a checkpoint does not know have served none of it.
            kept += [0] * (len(servers) - len(kept))
        return Sampling(
            table=self._settings.table,
            learner=LEARNER,
            steps=config.rows,
            depth=config.depth,
            cursor=tuple(kept),
        )

    def _connect(self, on_state: Callable[[State, str], None]) -> ReplayClient:
        settings, tower = self._settings, self._begun.tower
        return ReplayClient(
            settings.servers, settings.access, on_state=on_state, run=None if tower is None else tower.run
        )

    def _attended(self) -> "Callable[[], Coroutine[Any, Any, None]] | None":
        governed = self._settings.governed
        self._control: Control | None = None
        if governed is None:
            return None
        obeying = LoopCommands(self.loop, self._last_checkpoint)
        public = self._begun.publisher.public
        record = governed.begun(public)
        mailbox, self._control = governed.control(obeying, self.loop, self._stop, record)
        self.loop.control = self._control
        on_heartbeat = partial(self._meter.count, "heartbeats")

        async def attend() -> None:
            if record is not None or await governed.attached(public, mailbox):
                await governed.attend(mailbox, lambda status: on_heartbeat(status=status))

        if record is None:
            why = f"the orchestrator is away: {governed.url}; training begins with its own configuration"
            self._log(Severity.WARNING, why)
        return attend

    def _served(self, serving: Serving | None) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        if serving is None:
            return []
        return [lambda: serving.serve(self._begun.publishing.place)]

    def _written(self, written: Written) -> None:
        self.loop.checkpoint_version = written.version
        self._meter.observe("checkpoint_duration", written.duration_s)
        if written.cursor is not None:
            self.loop.safe(written.cursor)
        if (governed := self._settings.governed) is not None:
            self._io.post(lambda: governed.register(written))

    def _stalled(self, why: str | None) -> None:
        self._meter.gauge(checkpoint_stalled=float(why is not None))
        if why is None:
            self.loop.notes.pop("checkpoint_stalled", None)
        else:
            self.loop.notes["checkpoint_stalled"] = why

    def _last_checkpoint(self) -> str | None:
        self._keeper.save_last()
        return self.loop.checkpoint_version

    def _keep(self, error: BaseException) -> None:
        """Report that there is no memory, and keep the weights where they are those of an update."""
        self._log(Severity.CRITICAL, _reason(error))
        if self.loop.is_whole:
            try:
                self._keeper.save_last()
            except (CheckpointError, MemoryError, RuntimeError) as failure:
                self._log(Severity.CRITICAL, f"no last checkpoint was written: {failure}")

    def _before(self, before: int) -> Position | None:
        """The newest checkpoint from before an update; a save that is under way is waited for."""
        self._keeper.settle()
        found = newest(self._settings.place, self._settings.config, before)
        return None if found is None else position_of(found)

    def _end_control(self, outcome: str) -> None:
        if self._control is not None:
            self._control.end(cast("Outcome", outcome), self.loop.progress())

    def _end_weights(self, *, is_whole: bool) -> None:
        self._weights.close(*((self.loop.version, self.loop.acting()) if is_whole else (None, None)))

    def _log(self, severity: Severity, message: str) -> None:
        self.loop.log(severity, message)
