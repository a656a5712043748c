"""The collector's life: components made from the table, started in order, stopped in reverse, nothing lost.

Rules: the start record is the first batch of a life; receivers open last and close first; what was
acknowledged is folded and written before the process ends. Must not know what components do.
"""

import importlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from overwatch import __version__, discovery
from overwatch.aggregator import Aggregator, FrameSink, Resumed
from overwatch.background import Periodic, leave_a_core
from overwatch.collector.budget import StorageBudget
from overwatch.collector.clock import SteadyClock
from overwatch.collector.components import component_of
from overwatch.collector.connections import LoopThread, raise_file_limit
from overwatch.collector.context import Component, Context
from overwatch.collector.exporters.aggregator import AggregatorConfig, Refusals
from overwatch.collector.exporters.otlp_file import OtlpFileConfig, OtlpFileExporter
from overwatch.collector.extensions.file_storage import FileStorageConfig, described
from overwatch.collector.fold_cursor import FOLD, FoldCursor
from overwatch.collector.guard import Guard
from overwatch.collector.health import Health, Phase
from overwatch.collector.intake import Decoding, Intake
from overwatch.collector.net import AddressError
from overwatch.collector.receivers.otlp import OtlpConfig
from overwatch.collector.settings import ARCHIVE, ENDED, JOURNAL, CollectorConfig, written
from overwatch.collector.storage import Storage
from overwatch.collector.tally import REMOVED_RUNS, Tally
from overwatch.collector.telemetry import SelfMetrics
from overwatch.diagnose.judging import DiagnosisConfig, Judging, judging
from overwatch.fold import LifeStarted
from overwatch.journal import LogVersionError, MemoryJournal, Signal
from overwatch.serve.archive import Archive, Keeping
from overwatch.serve.keeping import REASONS, Limits
from overwatch.serve.stream import FrameNotifier
from overwatch.snapshot import Baseline

READY_FILE: Final = "OVERWATCH_READY_FILE"
"""Environment variable: a file that gets the endpoints as JSON once the collector accepts."""

DRAIN_S: Final = 20.0
"""Longest time that folding the rest may take when the collector stops, in seconds."""

ENOUGH: Final = 1024
"""Connections of one listener that need no condition: a thousand trainers fit."""

_log = logging.getLogger("overwatch.collector")


class StartError(RuntimeError):
    """The collector cannot start; the message has the reason and what to do."""


def _baseline(path: str | None) -> Baseline | None:
    """What throughput is compared with; only who compares loads what reads recordings."""
    if path is None:
        return None
    from overwatch.feeds.snapshotlog import read_baseline

    return read_baseline(Path(path))


class _SnapshotExporter(Component, FrameSink, Protocol):
    """A component that is a frame sink."""


@dataclass(frozen=True, slots=True)
class _Fold:
    """The aggregator as a component."""

    start: Callable[[], None]
    stop: Callable[[], None]


class Service:
    """One collector. `start` once, `stop` any number of times."""

    def __init__(
        self,
        config: CollectorConfig,
        now: Callable[[], int] | None = None,
        *,
        fixed: frozenset[str] = frozenset(),
    ) -> None:
        """`now` is the time of stamps and ticks; the machine's, without its jumps, unless it is given.

        At `fixed` endpoints a busy port is an error; elsewhere the next free one is taken.
        """
        # Listeners are as large as it lets them be.
        raise_file_limit()
        self.config = config
        """What this collector was made of."""
        now = now or SteadyClock()
        journal = MemoryJournal(now, self._held_bytes)
        tally, health = Tally(), Health(config.graph)
        self._decoding = Decoding() if config.exporting("aggregator") else None
        settle = leave_a_core if config.service.spare_core else lambda: None
        self.context = Context(
            journal=journal,
            intake=Intake(journal, tally, config.one(OtlpConfig).limits, self._decoding, settle),
            loop=LoopThread(),
            health=health,
            tally=tally,
            guard=Guard(config.service.security, health, tally),
            notifier=FrameNotifier(),
            storage=StorageBudget(written(config), health),
            now=now,
            signals=config.signals,
            exporting=config.exporting,
            settle=settle,
            fixed=fixed,
            recording=self._recording,
        )
        """What the components see."""
        self._started: list[Component] = []
        self._storage: Storage | None = None
        self._after: int | None = None
        self._loop_runs = False
        self._announced = False
        self._announcing = threading.Lock()
        self.context.guard.on_change(self._announce_again)
        self.failed_stops = 0
        """Components that did not stop cleanly."""

    @property
    def endpoints(self) -> discovery.Endpoints:
        """What this collector listens on."""
        url = self.context.urls.get
        return discovery.Endpoints(
            pid=os.getpid(),
            otlp_http=url("otlp_http"),
            otlp_grpc=url("otlp_grpc"),
            view=url("view"),
            metrics=url("metrics"),
            telemetry=url("telemetry"),
            health=url("health_check"),
            recording=None if self._recording is None else str(self._recording.absolute()),
            data=str(self.config.data_folder.absolute()),
            tokens=self.context.guard.announced,
        )

    @property
    def _recording(self) -> Path | None:
        """The folder that a replay would read: of several the first."""
        files = self.config.every(OtlpFileConfig)
        named = [name for name in files if name in self.config.signal_exporters]
        return files[named[0]].path if named else None

    @property
    def _held_bytes(self) -> int:
        """What accepted batches may have in memory."""
        wanted = self.config.one(AggregatorConfig).journal_size_mib
        return self.config.one(OtlpConfig).limits.queue_bytes(wanted)

    def start(self) -> None:
        """Start everything; raises `StartError` and leaves nothing behind when a part cannot."""
        self.context.loop.start()
        self._loop_runs = True
        try:
            self._start_all()
        except (AddressError, LogVersionError, OSError, ValueError) as error:
            self.stop()
            raise StartError(described(error) if isinstance(error, OSError) else str(error)) from error
        except BaseException:
            self.stop()
            raise
        self.context.health.enter(Phase.OK)

    def _start_all(self) -> None:
        guard = self.context.guard
        guard.load()
        # Two looks within the interval: a change holds only when two of them agree.
        rotation = Periodic("rotation", self.config.service.security.reload_interval_s / 2, guard.look)
        self._begin(rotation)
        self.context.health.watch("rotation", rotation.is_running)
        enabled = self.config.service.extensions
        if "file_storage" in enabled:
            self._begin(self._make("extensions", "file_storage"))
        self._begin(self.context.storage)
        if "file_storage" in enabled:
            self._open_storage()
        rest = [name for name in enabled if name != "file_storage"]
        early = [name for name in rest if component_of("extensions", name).is_early]
        for name in early:
            self._begin(self._make("extensions", name))
        sinks: list[_SnapshotExporter] = []
        sinks += [self._make("exporters", name) for name in self.config.snapshot_exporters]
        if self.config.exporting("aggregator"):
            if self._storage is not None:
                archive = self._make_archive()
                self._begin(archive)
                self.context.health.watch(ARCHIVE, lambda: archive.is_running)
            refusals = Refusals(self.context.health, self.config.one(AggregatorConfig).max_runs)
            # Last: the metrics show the latest frame, so they count what the condition reports.
            aggregator = self._make_aggregator([*sinks, self.context.notifier, refusals])
            self.context = replace(self.context, aggregator=aggregator)
        for sink in sinks:
            self._begin(sink)
        self._begin(SelfMetrics(self.context).listener(self.config.service.telemetry.metrics))
        for name in rest:
            if name not in early:
                self._begin(self._make("extensions", name))
        self._start_pipelines()

    def _open_storage(self) -> None:
        """The journal of this data folder, in place of the one in memory."""
        section, usage = self.config.one(FileStorageConfig), self.context.storage.usage
        if usage is not None:
            section = section.within(usage.shares[JOURNAL])
        limits, health = self.config.one(OtlpConfig).limits, self.context.health
        self._storage = storage = Storage(section, self._held_bytes, self.context.now, health, limits)
        tally, settle = self.context.tally, self.context.settle
        intake = Intake(storage.journal, tally, limits, self._decoding, settle)
        self.context = replace(self.context, journal=storage.journal, intake=intake, now=storage.clock)
        self._begin(storage)

    def _make_archive(self) -> Archive:
        """What keeps the runs that make room."""
        aggregator, diagnosis = self.config.one(AggregatorConfig), self.config.diagnosis

        def how() -> tuple[Judging, Baseline | None]:
            return judging(diagnosis), _baseline(aggregator.baseline)

        report = partial(self.context.health.report, ARCHIVE)
        folder = self.config.one(FileStorageConfig).directory / ENDED
        tally, now = self.context.tally, self.context.now
        for why in REASONS:
            tally.add(REMOVED_RUNS, 0, reason=why)
        keeping = Keeping(
            limits=Limits(runs=aggregator.archive_runs, days=aggregator.archive_days),
            now_s=lambda: now() / 1e9,
            count=lambda why: tally.add(REMOVED_RUNS, 1, reason=why),
        )
        archive = Archive(folder, self.context.storage.room(ARCHIVE), how, report, keeping)
        self.context = replace(self.context, archive=archive)
        return archive

    def _make_aggregator(self, sinks: list[FrameSink]) -> Aggregator:
        if self._storage is None:
            place, resumed, checkpoints = self.context.journal.cursor(FOLD, made=True), None, None
        else:
            place, resumed = self._storage.resume()
            checkpoints = self._storage.checkpoints
            self._after = None if resumed is None else resumed.tick
        resumed = resumed or Resumed(past=None if self._storage is None else self._storage.past)
        if self._decoding is not None:
            resumed.fold.read = self._decoding.take
        context = self.context
        cursor = FoldCursor(place, context.journal, context.tally, self.config.exporting(FOLD))
        context.intake.heed(cursor.behind_s)
        aggregator = Aggregator(cursor, context.now, sinks, resumed, checkpoints, settle=context.settle)
        if context.archive is not None:
            aggregator.archive = context.archive.keep
        return aggregator

    def _start_pipelines(self) -> None:
        for name in self.config.signal_exporters:
            self._begin(self._make("exporters", name))
        if self._storage is not None:
            self._storage.checkpoints.leave(recording.leaving for recording in self._exported())
        life = LifeStarted(
            version=__version__,
            pid=os.getpid(),
            config_digest=self.config.digest(),
            after=self._after,
            baseline=_baseline(self.config.one(AggregatorConfig).baseline),
            preset=self.config.one(AggregatorConfig).preset,
            diagnosis=None if self.config.diagnosis == DiagnosisConfig() else self.config.diagnosis,
            room=self.config.one(AggregatorConfig).room(self.config.one(OtlpConfig).limits),
        )
        began = self.context.journal.append(Signal.START, msgspec.json.encode(life))
        aggregator = self.context.aggregator
        if aggregator is not None:
            self.context.journal.note_gaps(life.going_on)
            self._begin(_Fold(lambda: aggregator.start(began.stamp), lambda: self._end_fold(aggregator)))
            self.context.health.watch(FOLD, lambda: aggregator.is_running)
        for name in self.config.running_receivers:
            self._begin(self._make("receivers", name))
        self._check_files()

    def _check_files(self) -> None:
        """Report the listeners for whose connections the system's limit of open files is too small."""
        limiters = self.context.limiters.items()
        fewer = {name: one for name, one in limiters if one.is_short_of_files and one.most < ENOUGH}
        if fewer:
            found = ", ".join(
                f"{one.most} of {one.config.max_connections} connections at {name}"
                for name, one in fewer.items()
            )
            self.context.health.failed(
                "open_files", f"the limit of open files lets in {found}; raise it: ulimit -n, LimitNOFILE"
            )

    def _exported(self) -> list[OtlpFileExporter]:
        return [part for part in self._started if isinstance(part, OtlpFileExporter)]

    def _end_fold(self, aggregator: Aggregator) -> None:
        """Fold what was accepted and publish the last frame: its tick ends the recordings."""
        last = aggregator.stop(DRAIN_S)
        for recording in self._exported():
            recording.end_at(last)

    def _begin(self, component: Component) -> None:
        self._started.append(component)
        component.start()

    def _make(self, root: str, name: str) -> Any:
        """A component, of its row in the table and its section."""
        factory = component_of(root, name).factory
        if factory is None:
            raise ValueError(f"{root}.{name} is no component of its own")
        module, _, made = factory.partition(":")
        section = getattr(self.config, root)[name]
        return getattr(importlib.import_module(module), made)(section, self.context, name)

    def announce(self) -> None:
        """Record where the collector listens: in the discovery file, and in the file that was asked for."""
        with self._announcing:
            self._report()
        for name, url in self.context.urls.items():
            _log.info("%s at %s", name, url)
        if self.endpoints.page is not None:
            _log.info("page at %s", self.endpoints.page)

    def reload(self) -> None:
        """Take new tokens and certificates up; what cannot be used is logged, and the old ones hold on."""
        wrong = self.context.guard.reload()
        for what in wrong:
            _log.error("not all is taken up: %s", what)
        if not wrong:
            _log.info("tokens and certificates were read again")

    def _announce_again(self) -> None:
        with self._announcing:
            if self._announced:
                self._report()

    def _report(self) -> None:
        endpoints = self.endpoints
        try:
            discovery.write(endpoints)
            self._announced = True
        except OSError as error:
            _log.warning("not announced on this machine: %s", described(error))
        ready = os.environ.get(READY_FILE)
        if ready:
            try:
                discovery.write_private(Path(ready), msgspec.json.encode(endpoints))
            except OSError as error:
                raise StartError(f"{READY_FILE}: {described(error, Path(ready))}") from error

    def stop(self) -> None:
        """Refuse, drain, write, close; a second call does nothing."""
        self.context.health.enter(Phase.STOPPING)
        with self._announcing:
            if self._announced:
                self._announced = False
                discovery.remove(os.getpid())
        while self._started:
            self._end(self._started.pop())
        if self._loop_runs:
            self._loop_runs = False
            self.context.loop.stop()
        self.context.health.enter(Phase.STOPPED)

    def _end(self, component: Component) -> None:
        """The border between components: one that fails to stop does not keep the others from stopping."""
        try:
            component.stop()
        except Exception:  # noqa: BLE001 whatever it is, it is logged and counted here
            self.failed_stops += 1
            _log.exception("%s did not stop cleanly", type(component).__name__)
