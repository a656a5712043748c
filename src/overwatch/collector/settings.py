"""The collector's configuration as one type, in otelcol's shape, and the rules that hold between its parts.

Component sections are defined beside their components. Must not know YAML, files or the environment.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from overwatch.collector.exporters.otlp_file import OtlpFileConfig
from overwatch.collector.exporters.prometheus import PrometheusConfig
from overwatch.collector.exporters.snapshots import SnapshotsConfig
from overwatch.collector.extensions.file_storage import FileStorageConfig
from overwatch.collector.extensions.health_check import HealthCheckConfig
from overwatch.collector.extensions.view import ViewConfig
from overwatch.collector.net import AddressError, parse
from overwatch.collector.receivers.otlp import OtlpConfig
from overwatch.collector.telemetry import MetricsConfig
from overwatch.journal import Signal

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

    def __post_init__(self) -> None:
        if self.journal_size_mib < 1:
            raise ValueError(f"journal_size_mib {self.journal_size_mib} is not positive")


class Exporters(_Section, frozen=True, kw_only=True):
    """`exporters`."""

    aggregator: AggregatorConfig
    """Turns batches into snapshots; the receiver of the pipeline `snapshots`."""
    prometheus: PrometheusConfig
    """Runs as Prometheus metrics."""
    otlp_file: OtlpFileConfig
    """Batches as OTLP JSON files with an index, which replay reads."""
    snapshots: SnapshotsConfig
    """Snapshots as a file."""


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


class Security(_Section, frozen=True, kw_only=True):
    """`service.security`."""

    allow_insecure_bind: bool = False
    """Whether addresses that other machines can reach may be served without token and TLS."""


class ServiceSection(_Section, frozen=True, kw_only=True):
    """`service`."""

    extensions: tuple[str, ...]
    """Names of the extensions that run."""
    pipelines: Pipelines
    """What goes from where to where."""
    telemetry: Telemetry
    """The collector's own metrics."""
    security: Security = Security()
    """Who may reach the collector."""


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

    @property
    def signals(self) -> frozenset[Signal]:
        """Signals that some pipeline takes in."""
        return frozenset(signal for signal in SIGNALS if self.service.pipelines.of(signal) is not None)

    def exporting(self, exporter: str) -> frozenset[Signal]:
        """Signals whose pipeline has this exporter."""
        pipelines = self.service.pipelines
        found = ((signal, pipelines.of(signal)) for signal in SIGNALS)
        return frozenset(signal for signal, line in found if line is not None and exporter in line.exporters)

    def digest(self) -> str:
        """A short name of this configuration, for the start record."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic", enc_hook=str)).hexdigest()[:16]


SIGNAL_EXPORTERS: Final = ("aggregator", "otlp_file")
SNAPSHOT_EXPORTERS: Final = ("prometheus", "snapshots")
EXTENSIONS: Final = ("file_storage", "health_check", "view")


def problems(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    """What cannot work, as (path, what is wrong and what to do)."""
    yield from _undefined(config)
    yield from _wiring(config)
    for path, endpoint in endpoints(config):
        try:
            address = parse(endpoint)
        except AddressError as error:
            yield path, str(error)
            continue
        if not address.loopback and not config.service.security.allow_insecure_bind:
            fix = f"use 127.0.0.1:{address.port}, or set service.security.allow_insecure_bind: true"
            yield path, f"{endpoint} can be reached from other machines without token and TLS; {fix}"


def endpoints(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    """Every address of the configuration, with its path."""
    protocols = config.receivers.otlp.protocols
    yield "receivers.otlp.protocols.http.endpoint", protocols.http.endpoint
    yield "receivers.otlp.protocols.grpc.endpoint", protocols.grpc.endpoint
    yield "exporters.prometheus.endpoint", config.exporters.prometheus.endpoint
    yield "extensions.health_check.endpoint", config.extensions.health_check.endpoint
    yield "extensions.view.endpoint", config.extensions.view.endpoint
    yield "service.telemetry.metrics.address", config.service.telemetry.metrics.address


def _undefined(config: CollectorConfig) -> Iterator[tuple[str, str]]:
    pipelines = config.service.pipelines
    for name in ("logs", "metrics", "traces", SNAPSHOTS):
        line: Pipeline | None = getattr(pipelines, name)
        if line is None:
            continue
        here = f"service.pipelines.{name}"
        snapshots = name == SNAPSHOTS
        receivers = ("aggregator",) if snapshots else ("otlp",)
        exporters = SNAPSHOT_EXPORTERS if snapshots else SIGNAL_EXPORTERS
        yield from _unknown(f"{here}.receivers", line.receivers, receivers)
        yield from _unknown(f"{here}.exporters", line.exporters, exporters)
    yield from _unknown("service.extensions", config.service.extensions, EXTENSIONS)


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
    needs_frames = pipelines.snapshots is not None or "view" in config.service.extensions
    if needs_frames and not folded:
        yield "service.pipelines", "snapshots and `view` need exporter `aggregator` in pipeline `logs`"
