"""The collector's configuration as one type, in otelcol's shape, and the rules that hold between its parts.

Component sections are defined beside their components. Must not know YAML, files or the environment.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from overwatch.catalog.presets import parse_preset
from overwatch.collector.auth import Role
from overwatch.collector.exporters.command import CommandConfig
from overwatch.collector.exporters.email import EmailConfig
from overwatch.collector.exporters.forward_config import (
    ForwardConfig,
    OtlpExporterConfig,
    OtlpHttpExporterConfig,
)
from overwatch.collector.exporters.further import KEY, Further, type_of
from overwatch.collector.exporters.otlp_file import OtlpFileConfig
from overwatch.collector.exporters.prometheus import PrometheusConfig
from overwatch.collector.exporters.snapshots import SnapshotsConfig
from overwatch.collector.exporters.webhook import WebhookConfig
from overwatch.collector.extensions.file_storage import FileStorageConfig
from overwatch.collector.extensions.health_check import HealthCheckConfig
from overwatch.collector.extensions.view import ViewConfig
from overwatch.collector.guard import SecurityConfig
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.logs import LogsConfig
from overwatch.collector.net import AddressError, parse
from overwatch.collector.receivers.otlp import OtlpConfig
from overwatch.collector.telemetry import MetricsConfig
from overwatch.collector.tls import TlsConfig
from overwatch.diagnose.judging import DiagnosisConfig
from overwatch.journal import Signal
from overwatch.room import Room

SIGNALS: Final = (Signal.LOGS, Signal.METRICS, Signal.TRACES)
SNAPSHOTS: Final = "snapshots"


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file; unknown keys are errors."""


class Receivers(_Section, frozen=True, kw_only=True):
    """`receivers`."""

    otlp: OtlpConfig
    """OTLP over gRPC and HTTP."""


class AggregatorConfig(_Section, frozen=True, kw_only=True):
    """`exporters.aggregator`."""

    journal_size_mib: int = 256
    """Most MiB of accepted batches that wait for their readers; beyond it senders are told to retry."""
    baseline: str | None = None
    """A recording, or a log of snapshots; a run that gets less done than the one in it is told so."""
    preset: str | None = None
    """Whose limits judge every run, e.g. `grpo`; without, each run says itself."""
    max_runs: int = 1024
    """Most runs in memory; the ones that have been over for longest make room, others are refused."""
    max_state_mib: int | None = None
    """Most MiB of all runs in memory; by the memory limit of `receivers.otlp.limits` if left out."""
    ended_days: float = 7.0
    """For so many days at most a run that is over stays in memory."""
    archive_mib: int = 1024
    """Most MiB on disk of the last pictures of runs that are not in memory any more; the oldest go."""

    def __post_init__(self) -> None:
        for name in ("journal_size_mib", "max_runs", "archive_mib"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is not positive")
        if self.max_state_mib is not None and self.max_state_mib < 8:
            raise ValueError(f"max_state_mib {self.max_state_mib} is less than 8")
        if not self.ended_days >= 0:
            raise ValueError(f"ended_days {self.ended_days} is less than 0")
        if self.preset is not None:
            parse_preset(self.preset)

    def room(self, limits: LimitsConfig) -> Room:
        """How much the fold may hold within a process of these limits."""
        state = limits.state_bytes if self.max_state_mib is None else self.max_state_mib << 20
        return Room(runs=self.max_runs, bytes=state, ended_ns=round(self.ended_days * 86_400e9))


class Exporters(_Section, frozen=True, kw_only=True):
    """`exporters`."""

    aggregator: AggregatorConfig
    """Turns batches into snapshots; the receiver of the pipeline `snapshots`."""
    prometheus: PrometheusConfig
    """Runs as Prometheus metrics."""
    otlp_file: OtlpFileConfig
    """Batches as OTLP JSON files with an index, which replay reads."""
    otlp: OtlpExporterConfig = OtlpExporterConfig()
    """Batches to another OTLP server, over gRPC; needs an `endpoint`."""
    otlphttp: OtlpHttpExporterConfig = OtlpHttpExporterConfig()
    """Batches to another OTLP server, over HTTP; needs an `endpoint`."""
    webhook: WebhookConfig = WebhookConfig()
    """Findings as messages to a server of yours; needs a `url`."""
    email: EmailConfig = EmailConfig()
    """Findings as mails; needs `host`, `from` and `to`."""
    command: CommandConfig = CommandConfig()
    """Findings as JSON to a program of yours; needs `argv`."""
    snapshots: SnapshotsConfig
    """Snapshots as a file."""
    further: Further = msgspec.field(default=Further(), name=KEY)
    """More of a type, each with settings of its own: `otlp/second`, `webhook/chat`, `otlp_file/copy`."""

    def every(self, kind: str) -> dict[str, Any]:
        """The sections of a type, by whole names; the one without a name comes first."""
        return {kind: getattr(self, kind), **getattr(self.further, kind, {})}

    def section(self, name: str) -> Any:
        """The section of an exporter, by its whole name; raises `KeyError` where there is none."""
        return self.every(type_of(name))[name]


class Extensions(_Section, frozen=True, kw_only=True):
    """`extensions`."""

    health_check: HealthCheckConfig
    """Health over HTTP."""
    view: ViewConfig
    """Snapshots over HTTP and WebSocket."""
    file_storage: FileStorageConfig
    """The data folder."""


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

    receivers: Receivers
    """What comes in."""
    exporters: Exporters
    """What goes out."""
    extensions: Extensions
    """What stands beside."""
    service: ServiceSection
    """What runs."""
    diagnosis: DiagnosisConfig = DiagnosisConfig()
    """How runs are judged."""

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
        lines = [line for signal in SIGNALS if (line := self.service.pipelines.of(signal)) is not None]
        named = dict.fromkeys(name for line in lines for name in line.exporters)
        return tuple(sorted((name for name in named if name != "aggregator"), key=_rank))

    @property
    def snapshot_exporters(self) -> tuple[str, ...]:
        """Exporters of snapshots, by whole names."""
        line = self.service.pipelines.snapshots
        return () if line is None else line.exporters

    def digest(self) -> str:
        """A short name of this configuration, for the start record."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic", enc_hook=str)).hexdigest()[:16]


SIGNAL_EXPORTERS: Final = ("aggregator", "otlp_file", "otlp", "otlphttp")
NOTIFIERS: Final = ("webhook", "email", "command")
SNAPSHOT_EXPORTERS: Final = ("prometheus", "snapshots", *NOTIFIERS)
EXTENSIONS: Final = ("file_storage", "health_check", "view")


def problems(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    """What cannot work, as (path, what is wrong and what to do)."""
    yield from _undefined(config)
    yield from _wiring(config)
    yield from _forwarding(config)
    yield from _apart(config)
    for listener in listeners(config):
        yield from _reach(config.service.security, listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address of the configuration, and what stands before it."""

    path: str
    endpoint: str
    tls: TlsConfig | None
    role: Role | None
    """Whose token it asks for; `None` asks for none."""


def listeners(config: CollectorConfig) -> Iterator[Listener]:
    """Every address of the configuration with its path, in the order in which a collector opens them."""
    protocols, shared = config.receivers.otlp.protocols, config.service.security.tls
    own, view, health = (
        config.service.telemetry.metrics,
        config.extensions.view,
        config.extensions.health_check,
    )
    pages, listed = config.exporters.every("prometheus"), config.snapshot_exporters
    # A probe of a cluster speaks no TLS of ours, so the shared section is not the health check's.
    path = "extensions.health_check.endpoint"
    yield Listener(path=path, endpoint=health.endpoint, tls=health.tls, role=None)
    ordered = sorted(pages, key=lambda name: listed.index(name) if name in listed else len(listed))
    for path, endpoint, tls, role in (
        *(
            (f"exporters.{name}.endpoint", pages[name].endpoint, pages[name].tls, Role.READ)
            for name in ordered
        ),
        ("service.telemetry.metrics.address", own.address, own.tls, Role.READ),
        ("extensions.view.endpoint", view.endpoint, view.tls, Role.READ),
        ("receivers.otlp.protocols.http.endpoint", protocols.http.endpoint, protocols.http.tls, Role.INGEST),
        ("receivers.otlp.protocols.grpc.endpoint", protocols.grpc.endpoint, protocols.grpc.tls, Role.INGEST),
    ):
        yield Listener(path=path, endpoint=endpoint, tls=tls or shared, role=role)


def opened(config: CollectorConfig) -> list[Listener]:
    """The listeners of components that the service lists; receivers and telemetry always listen."""
    listed = {"extensions": config.service.extensions, "exporters": config.snapshot_exporters}

    def is_opened(path: str) -> bool:
        kind, name, *_ = path.split(".")
        return kind not in listed or name in listed[kind]

    return [one for one in listeners(config) if is_opened(one.path)]


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
        receivers = ("aggregator",) if snapshots else ("otlp",)
        kinds = SNAPSHOT_EXPORTERS if snapshots else SIGNAL_EXPORTERS
        exporters = tuple(one for kind in kinds for one in config.exporters.every(kind))
        if not line.receivers:
            yield f"{here}.receivers", f"nothing comes in; write [{receivers[0]}], or null for no pipeline"
        if not line.exporters and not snapshots:
            yield f"{here}.exporters", f"what comes in is lost; name one of {', '.join(exporters)}"
        yield from _unknown(f"{here}.receivers", line.receivers, receivers)
        yield from _unknown(f"{here}.exporters", line.exporters, exporters)
    yield from _unknown("service.extensions", config.service.extensions, EXTENSIONS)


def forwards(config: CollectorConfig) -> dict[str, ForwardConfig]:
    """The exporters that send to other servers, by name."""
    return {**config.exporters.every("otlp"), **config.exporters.every("otlphttp")}


def _forwarding(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    """What is wrong with the exporters that send to other servers, where a pipeline has them."""
    protocols = config.receivers.otlp.protocols
    own = {protocols.grpc.endpoint, protocols.http.endpoint}
    for name, forward in forwards(config).items():
        signals = config.exporting(name)
        try:
            targets = forward.destinations(signals).values()
        except ValueError as error:
            yield f"exporters.{name}", str(error)
            continue
        if any(to.origin.authority in own for to in targets):
            yield f"exporters.{name}.endpoint", "the collector would send to itself; name another server"
        if signals and forward.sending_queue.storage and "file_storage" not in config.service.extensions:
            where = f"exporters.{name}.sending_queue.storage"
            yield where, "file_storage does not run; add it to service.extensions, or leave `storage` out"


def _apart(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    """Which exporters would write to the same place."""
    named, taken = (*config.signal_exporters, *config.snapshot_exporters), dict[Path, str]()
    for name, section in (
        *config.exporters.every("otlp_file").items(),
        *config.exporters.every("snapshots").items(),
    ):
        if name in named:
            first = taken.setdefault(section.path, name)
            if first != name:
                yield (
                    f"exporters.{name}.path",
                    f"{first} writes to {section.path} already; name another place",
                )


def _rank(name: str) -> int:
    """The place of an exporter's type, by which exporters start."""
    kind = type_of(name)
    return SIGNAL_EXPORTERS.index(kind) if kind in SIGNAL_EXPORTERS else len(SIGNAL_EXPORTERS)


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
    notifiers = {name: one for kind in NOTIFIERS for name, one in config.exporters.every(kind).items()}
    for name, section in notifiers.items():
        if name in config.snapshot_exporters and section.missing is not None:
            key, what = section.missing
            yield f"exporters.{name}.{key}", what
    needs_frames = pipelines.snapshots is not None or "view" in config.service.extensions
    if needs_frames and not folded:
        yield "service.pipelines", "snapshots and `view` need exporter `aggregator` in pipeline `logs`"
