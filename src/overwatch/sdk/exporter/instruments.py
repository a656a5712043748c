"""OTLP metrics and spans for third parties: what other tools can draw without knowing Overwatch's events.

Rules: instruments are named by the catalogue; a value that is not finite leaves its series out rather than
repeating the last one. Overwatch itself never reads these back. Must not know frames or queues.
"""

import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

import overwatch
from overwatch.catalog import BY_NAME, Kind, Metric, Scope
from overwatch.catalog.run import EPISODES, NON_FINITE, STEPS, UPDATES
from overwatch.events import EpisodeEnded, Event, Measured, NonFiniteSeen
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.sdk.exporter.loops import Loops
from overwatch.sdk.exporter.spooling import MetricSpooler, SpanSpooler, Store

INTERVAL_MS: Final = 2000
_SCOPES: Final = frozenset({Scope.POLICY, Scope.GPU, Scope.HOST, Scope.RUN})


class Instruments:
    """The newest values of a run as instruments, its phases as spans."""

    def __init__(
        self, resource: Resource, store: Store, wanted: Collection[Signal], env: Mapping[str, str]
    ) -> None:
        """`env` is the trainer's environment."""
        self._spooler = MetricSpooler(store)
        readers = [_reader(self._spooler, env)] if Signal.METRICS in wanted else []
        self._meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        self._meter = self._meters.get_meter(wire.OURS, overwatch.__version__, wire.SCHEMA_URL)
        self.loops = Loops(resource, SpanSpooler(store) if Signal.TRACES in wanted else None)
        """Its phases."""
        self.late = 0
        """How often there was no time to send all."""
        self._lock = threading.Lock()
        self._newest: dict[str, dict[str, float]] = {}
        """By metric, then by lane (empty where the metric has one subject)."""
        self._step: int | None = None
        for row in (UPDATES, EPISODES, STEPS):
            self._set(row, [""], [0.0])
        self._non_finite = self._meter.create_counter(NON_FINITE.name, NON_FINITE.unit, NON_FINITE.asks)
        # A counter born above 0 has risen to nobody's eyes.
        self._non_finite.add(0)

    def note(self, event: Event) -> None:
        """Take what an event says that third parties can draw."""
        if isinstance(event, Measured):
            self._measured(event)
        elif isinstance(event, EpisodeEnded):
            self._add(EPISODES, len(event.env_id))
        elif isinstance(event, NonFiniteSeen):
            self._non_finite.add(max(event.count, 0))

    def count_updates(self, more: int) -> None:
        """Take how many updates there were since the last time."""
        self._add(UPDATES, more)

    def flush(self, timeout_s: float) -> None:
        """The end: send what there is, for at most `timeout_s`."""
        self.loops.finish()
        worker = threading.Thread(target=self._flush, args=(int(timeout_s * 1000),), daemon=True)
        worker.start()
        worker.join(timeout_s)

    def close(self) -> None:
        """End the threads of OpenTelemetry, which nothing waits for; no more is put into the store."""
        self._spooler.shutdown()
        threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        self._meters.shutdown()
        self.loops.close()

    def _flush(self, timeout_ms: int) -> None:
        self.loops.flush()
        try:
            self._meters.force_flush(timeout_ms)
        except Exception:  # noqa: BLE001 a border: OpenTelemetry raises just that when the time is up
            self.late += 1

    def _measured(self, event: Measured) -> None:
        if event.scope is Scope.ENV and event.index is not None:
            first = event.index if event.conflated is None else event.conflated.first
            before = (event.index if first is None else first) - 1 if self._step is None else self._step
            self._step = max(event.index, before)
            self._add(STEPS, len(next(iter(event.keys.values()))) * max(event.index - before, 0))
        if event.scope not in _SCOPES:
            return
        lanes = event.keys["gpu_id"].words() if event.scope is Scope.GPU else [""]
        for name, column in event.values.items():
            row = BY_NAME.get(name)
            if row is None or not len(column) or column.labels is not None:
                continue
            counted = row.kind is Kind.COUNTER and event.scope is Scope.GPU
            if row.kind is not Kind.GAUGE and not counted:
                continue
            values = column.array().tolist() if len(lanes) > 1 else [column.first()]
            self._set(row, lanes, values)

    def _add(self, row: Metric, amount: float) -> None:
        with self._lock:
            self._newest[row.name][""] += amount

    def _set(self, row: Metric, lanes: Sequence[str | None], values: Sequence[float]) -> None:
        newest = self._newest.get(row.name)
        with self._lock:
            if newest is None:
                self._newest[row.name] = {}
            found = self._newest[row.name]
            for lane, value in zip(lanes, values, strict=False):
                found[lane or ""] = value
        if newest is None:
            self._create(row)

    def _create(self, row: Metric) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                newest = list(self._newest[row.name].items())
            for lane, value in newest:
                if math.isfinite(value):
                    subject = {"hw.id": lane, "hw.type": "gpu"} if lane else {}
                    yield Observation(value, {**subject, **row.attributes})

        said = {"unit": row.unit, "description": row.asks}
        if row.kind is Kind.COUNTER:
            self._meter.create_observable_counter(row.name, [observe], **said)
        elif row.adds_up:
            self._meter.create_observable_up_down_counter(row.name, [observe], **said)
        else:
            self._meter.create_observable_gauge(row.name, [observe], **said)


def _reader(spooler: MetricSpooler, env: Mapping[str, str]) -> PeriodicExportingMetricReader:
    asked = env.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    interval = float(asked) if asked.isdecimal() and int(asked) else INTERVAL_MS
    return PeriodicExportingMetricReader(spooler, export_interval_millis=interval)
