"""The collector's configuration as one type, in otelcol's shape, and the rules that hold between its parts.

Component sections are defined beside their components. What shares the disk budget follows from it as well: a
part that is new gets one row. Must not know YAML, the environment, nor how large anything is.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from overwatch.collector.auth import Role
from overwatch.collector.budget import Part, Row, Written
from overwatch.collector.components import ROOTS, Kind, of_kinds, row_of, type_of
from overwatch.collector.exporters.aggregator import AggregatorConfig
from overwatch.collector.exporters.otlp_file import OtlpFileConfig
from overwatch.collector.exporters.snapshots import SnapshotsConfig
from overwatch.collector.extensions.file_storage import JOURNAL_MIB, FileStorageConfig
from overwatch.collector.guard import Guard, Listener, SecurityConfig
from overwatch.collector.health import Health
from overwatch.collector.logs import LogsConfig
from overwatch.collector.net import AddressError, parse
from overwatch.collector.tally import Tally
from overwatch.collector.telemetry import MetricsConfig
from overwatch.diagnose.judging import DiagnosisConfig, unknown
from overwatch.journal import Signal

_S = TypeVar("_S", bound=msgspec.Struct)
SIGNALS: Final = (Signal.LOGS, Signal.METRICS, Signal.TRACES)
SNAPSHOTS: Final = "snapshots"
_MIB: Final = 1 << 20
JOURNAL: Final = "journal"
"""The part that holds what was acknowledged."""
ARCHIVE: Final = "archive"
"""The last pictures of runs that are not in memory any more."""
ENDED: Final = "ended"
"""Its folder."""
_CHECKPOINT: Final = ".checkpoint"


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file; unknown keys are errors."""


class Telemetry(_Section, frozen=True, kw_only=True):
    """`service.telemetry`."""

    metrics: MetricsConfig
    """The collector's own metrics."""
    logs: LogsConfig = LogsConfig()
    """The collector's own log."""


class Pipeline(_Section, frozen=True, kw_only=True):
    """One entry of `service.pipelines`."""

    receivers: tuple[str, ...]
    """Names of receivers; `aggregator` for the pipeline of snapshots."""
    exporters: tuple[str, ...]
    """Names of exporters."""


class Pipelines(_Section, frozen=True, kw_only=True):
    """`service.pipelines`; a pipeline that is left out takes nothing in."""

    logs: Pipeline | None = None
    """Events and logs: what snapshots are made of."""
    metrics: Pipeline | None = None
    """OTLP metrics, of other libraries above all."""
    traces: Pipeline | None = None
    """Spans."""
    snapshots: Pipeline | None = None
    """Finished snapshots."""

    def of(self, signal: Signal) -> Pipeline | None:
        """The pipeline of an OTLP signal."""
        return {Signal.LOGS: self.logs, Signal.METRICS: self.metrics, Signal.TRACES: self.traces}.get(signal)


class ServiceSection(_Section, frozen=True, kw_only=True):
    """`service`."""

    extensions: tuple[str, ...]
    """Names of the extensions that run."""
    pipelines: Pipelines
    """What goes from where to where."""
    telemetry: Telemetry
    """The collector's own metrics."""
    security: SecurityConfig = SecurityConfig()
    """Who may reach the collector."""
    spare_core: bool = True
    """Keep what computes off one of several cores: for who waits for an answer."""


class CollectorConfig(_Section, frozen=True, kw_only=True):
    """The whole file."""

    receivers: dict[str, Any]
    """What comes in: sections of `components`, by whole names."""
    exporters: dict[str, Any]
    """What goes out."""
    extensions: dict[str, Any]
    """What stands beside."""
    service: ServiceSection
    """What runs."""
    diagnosis: DiagnosisConfig = DiagnosisConfig()
    """How runs are judged."""

    def every(self, kind: type[_S]) -> dict[str, _S]:
        """The sections of a type, by whole names; the one without a name comes first."""
        row = row_of(kind)
        return {name: one for name, one in getattr(self, row.kind.root).items() if type_of(name) == row.name}

    def one(self, kind: type[_S]) -> _S:
        """The section of a type that has no name of its own."""
        return self.every(kind)[row_of(kind).name]

    @property
    def data_folder(self) -> Path:
        """Where journal, checkpoints and archive lie, and what commands keep beside them."""
        return self.one(FileStorageConfig).directory

    @property
    def signals(self) -> frozenset[Signal]:
        """Signals that some pipeline takes in."""
        return frozenset(signal for signal in SIGNALS if self.service.pipelines.of(signal) is not None)

    @property
    def graph(self) -> dict[str, tuple[str, ...]]:
        """The components of each pipeline and the extensions, as otelcol's health names them."""
        found = {"extensions": tuple(f"extension:{name}" for name in self.service.extensions)}
        for name in ("logs", "metrics", "traces", SNAPSHOTS):
            line: Pipeline | None = getattr(self.service.pipelines, name)
            if line is not None:
                receivers = (f"receiver:{one}" for one in line.receivers)
                found[f"pipeline:{name}"] = (*receivers, *(f"exporter:{one}" for one in line.exporters))
        return found

    def exporting(self, exporter: str) -> frozenset[Signal]:
        """Signals whose pipeline has this exporter."""
        pipelines = self.service.pipelines
        found = ((signal, pipelines.of(signal)) for signal in SIGNALS)
        return frozenset(signal for signal, line in found if line is not None and exporter in line.exporters)

    @property
    def signal_exporters(self) -> tuple[str, ...]:
        """Exporters of batches that some pipeline has, by whole names, the fold aside."""
        named = dict.fromkeys(name for line in self._signal_pipelines for name in line.exporters)
        order = [one.name for one in of_kinds(Kind.BATCH_EXPORTER)]
        known = (name for name in named if type_of(name) in order)
        return tuple(sorted(known, key=lambda name: order.index(type_of(name))))

    @property
    def running_receivers(self) -> tuple[str, ...]:
        """Receivers that some pipeline has, by whole names."""
        return tuple(dict.fromkeys(name for line in self._signal_pipelines for name in line.receivers))

    @property
    def _signal_pipelines(self) -> list[Pipeline]:
        return [line for signal in SIGNALS if (line := self.service.pipelines.of(signal)) is not None]

    @property
    def snapshot_exporters(self) -> tuple[str, ...]:
        """Exporters of snapshots, by whole names."""
        line = self.service.pipelines.snapshots
        return () if line is None else line.exporters

    def digest(self) -> str:
        """A short name of this configuration, for the start record."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic", enc_hook=str)).hexdigest()[:16]


def problems(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    """What cannot work, as (path, what is wrong and what to do)."""
    yield from _undefined(config)
    yield from _wiring(config)
    yield from _apart(config)
    for listener in listeners(config):
        yield from _reach(config.service.security, listener)
        if listener.tls and listener.tls.min_version != "1.2" and not listener.takes_min_version:
            fix = "give it a `tls` of its own with min_version 1.2, or put a gateway before it"
            yield listener.path, f"its server cannot refuse TLS 1.2, which min_version asks for; {fix}"


def listeners(config: CollectorConfig) -> Iterator[Listener]:
    """Every address of the configuration, with its whole path."""
    own, shared = config.service.telemetry.metrics, config.service.security.tls
    yield Listener(
        path="service.telemetry.metrics.address",
        endpoint=own.address,
        tls=own.tls or shared,
        role=Role.READ,
    )
    for path, section in _sections(config):
        for one in getattr(section, "listeners", ()):
            tls = one.tls or (shared if one.shares_tls else None)
            yield replace(one, path=f"{path}.{one.path}", tls=tls)


def opened(config: CollectorConfig) -> list[Listener]:
    """The listeners of components that run."""
    running = {
        "receivers": config.running_receivers,
        "exporters": config.snapshot_exporters,
        "extensions": config.service.extensions,
    }

    def is_opened(path: str) -> bool:
        root, name, *_ = path.split(".")
        return root not in running or name in running[root]

    return [one for one in listeners(config) if is_opened(one.path)]


def _sections(config: CollectorConfig) -> Iterator[tuple[str, Any]]:
    """The section of every component, with its path."""
    for root in ROOTS:
        for name, section in getattr(config, root).items():
            yield f"{root}.{name}", section


def _reach(security: SecurityConfig, listener: Listener) -> Iterator[tuple[str, str]]:
    """What is wrong with an address that other machines can reach."""
    try:
        address = parse(listener.endpoint)
    except AddressError as error:
        yield listener.path, str(error)
        return
    missing = [] if listener.tls else ["tls"]
    if listener.role is not None and security.tokens.of(listener.role) is None:
        missing.append(f"service.security.tokens.{listener.role.value}")
    if address.loopback or security.allow_insecure_bind or not missing:
        return
    fix = f"set {' and '.join(missing)}, or use 127.0.0.1:{address.port}"
    unsafe = "service.security.allow_insecure_bind: true serves it all the same"
    yield listener.path, f"{listener.endpoint} can be reached from other machines; {fix} ({unsafe})"


def _undefined(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    pipelines = config.service.pipelines
    for name in ("logs", "metrics", "traces", SNAPSHOTS):
        line: Pipeline | None = getattr(pipelines, name)
        if line is None:
            continue
        here = f"service.pipelines.{name}"
        snapshots = name == SNAPSHOTS
        receivers = _defined(config, Kind.AGGREGATOR if snapshots else Kind.RECEIVER)
        exporters = (
            _defined(config, Kind.SNAPSHOT_EXPORTER)
            if snapshots
            else _defined(config, Kind.AGGREGATOR, Kind.BATCH_EXPORTER)
        )
        if not line.receivers:
            yield f"{here}.receivers", f"nothing comes in; write [{receivers[0]}], or null for no pipeline"
        if not line.exporters and not snapshots:
            yield f"{here}.exporters", f"what comes in is lost; name one of {', '.join(exporters)}"
        yield from _unknown(f"{here}.receivers", line.receivers, receivers)
        yield from _unknown(f"{here}.exporters", line.exporters, exporters)
    extensions = _defined(config, Kind.EXTENSION)
    yield from _unknown("service.extensions", config.service.extensions, extensions)


def _defined(config: CollectorConfig, *kinds: Kind) -> tuple[str, ...]:
    """Whole names of the components of some kinds."""
    return tuple(name for row in of_kinds(*kinds) for name in config.every(row.config))


def _apart(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    """Which exporters would write to the same place."""
    named, taken = (*config.signal_exporters, *config.snapshot_exporters), dict[Path, str]()
    for name, section in config.exporters.items():
        path = getattr(section, "path", None)
        if name in named and path is not None and (first := taken.setdefault(path, name)) != name:
            yield f"exporters.{name}.path", f"{first} writes to {path} already; name another place"


def _unknown(path: str, names: tuple[str, ...], known: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name not in known:
            yield path, f"{name!r} is not defined here; there is {', '.join(known)}"
    if len(set(names)) != len(names):
        yield path, f"{', '.join(names)}: a component is named twice"


def _wiring(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    pipelines = config.service.pipelines
    folded = config.exporting("aggregator")
    if not config.signals:
        yield "service.pipelines", "no pipeline takes anything in; add at least `logs`"
    if folded and Signal.LOGS not in folded:
        yield "service.pipelines.logs", "the aggregator needs the logs; add it to exporters of `logs`"
    if Signal.LOGS in folded and pipelines.metrics is not None and Signal.METRICS not in folded:
        yield (
            "service.pipelines.metrics.exporters",
            "metrics are folded wherever logs are; add `aggregator`, or leave the pipeline out",
        )
    for name in config.snapshot_exporters:
        missing = getattr(config.exporters.get(name), "missing", None)
        if missing is not None:
            key, what = missing
            yield f"exporters.{name}.{key}", what
    needs_frames = pipelines.snapshots is not None or "view" in config.service.extensions
    if needs_frames and not folded:
        yield "service.pipelines", "snapshots and `view` need exporter `aggregator` in pipeline `logs`"


def written(config: CollectorConfig) -> Written:
    """Everything that a configuration writes, with its budget."""
    storage = config.one(FileStorageConfig)
    wanted = None if storage.budget_mib is None else storage.budget_mib * _MIB
    return Written(folder=storage.directory, wanted=wanted, rows=_rows(config))


def _rows(config: CollectorConfig) -> tuple[Row, ...]:
    storage, found = config.one(FileStorageConfig), list[Row]()
    if "file_storage" in config.service.extensions:
        journal, most = storage.directory / JOURNAL, storage.max_size_mib * _MIB
        found += [
            Row(
                part=Part(name=JOURNAL, floor=JOURNAL_MIB * _MIB, most=most),
                place=journal,
                holds=lambda name: not name.endswith(_CHECKPOINT),
            ),
            Row(
                part=Part(name="checkpoints", floor=16 * _MIB, most=512 * _MIB),
                place=journal,
                holds=lambda name: name.endswith(_CHECKPOINT),
            ),
        ]
    for name, files in config.every(OtlpFileConfig).items():
        if name in config.signal_exporters:
            most = files.budget.folder_mib * _MIB
            found.append(Row(part=Part(name=name, floor=min(most, 32 * _MIB), most=most), place=files.path))
    if "file_storage" in config.service.extensions:
        most = config.one(AggregatorConfig).archive_mib * _MIB
        found.append(Row(part=Part(name=ARCHIVE, floor=0, most=most), place=storage.directory / ENDED))
    for name, log in config.every(SnapshotsConfig).items():
        if name in config.snapshot_exporters:
            found.append(
                Row(
                    part=Part(name=name, floor=0, most=log.max_size_mib * _MIB),
                    place=log.path.parent,
                    holds=_beginning(log.path.name.removesuffix(".jsonl")),
                )
            )
    return tuple(found)


def _beginning(stem: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(stem)


def unusable(config: CollectorConfig) -> Iterator[str]:
    """What could not be read at a start now, each thing once: tokens, certificates, plugins."""
    guard = Guard(config.service.security, Health(), Tally())
    found: dict[str, None] = {}
    try:
        guard.load()
    except (OSError, ValueError) as error:
        found[f"service.security.tokens: {error}"] = None
    for listener in listeners(config):
        try:
            guard.certificates(listener.tls, shared=False)
        except (OSError, ValueError) as error:
            found[f"tls: {error}"] = None
    yield from found
    yield from (f"{path}: {what}" for path, what in unknown(config.diagnosis))
