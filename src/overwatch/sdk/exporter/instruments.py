"""OTLP metrics and spans for third parties: what other tools can draw without knowing Overwatch's events.

Rules: instruments are named by the catalogue; a value that is not finite leaves its series out rather than
repeating the last one. The bytes are those of OpenTelemetry's own encoders; what they cannot encode is given
up as a whole and logged once. Overwatch itself never reads these back, and they are not part of the trainer's
account. One thread at a time. Must not know frames, rings or the network.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

import overwatch
from overwatch.catalog import BY_NAME, Kind, Metric, Scope
from overwatch.catalog.run import EPISODES, NON_FINITE, STEPS, UPDATES
from overwatch.events import EpisodeEnded, Event, Measured, NonFiniteSeen
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.sdk.exporter.loops import Loops
from overwatch.sdk.exporter.spool import Spool

log: Final = logging.getLogger("overwatch.exporter")

INTERVAL_S: Final = 2.0
_SCOPES: Final = frozenset({Scope.POLICY, Scope.GPU, Scope.HOST, Scope.RUN})


class Instruments:
    """The newest values of a run as instruments, its phases as spans."""

    def __init__(
        self, resource: Resource, spool: Spool, wanted: Collection[Signal], env: Mapping[str, str]
    ) -> None:
        """`env` is the trainer's environment."""
        self._spool = spool
        self._reader = InMemoryMetricReader() if Signal.METRICS in wanted else None
        meters = MeterProvider(
            metric_readers=[] if self._reader is None else [self._reader],
            resource=resource,
            shutdown_on_exit=False,
        )
        self._meter = meters.get_meter(wire.OURS, overwatch.__version__, wire.SCHEMA_URL)
        self.loops = Loops(resource, self._put_spans if Signal.TRACES in wanted else None)
        """Its phases."""
        requested = env.get("OTEL_METRIC_EXPORT_INTERVAL", "")
        self.interval_s = float(requested) / 1000 if requested.isdecimal() and int(requested) else INTERVAL_S
        """How often to collect."""
        self._failed: set[Signal] = set()
        self._newest: dict[str, dict[str, float]] = {}
        """By metric, then by lane (empty where the metric has one subject)."""
        self._step: int | None = None
        for row in (UPDATES, EPISODES, STEPS):
            self._set(row, [""], [0.0])
        self._non_finite = self._meter.create_counter(NON_FINITE.name, NON_FINITE.unit, NON_FINITE.asks)
        # Who sees a counter for the first time cannot see how it rose before.
        self._non_finite.add(0)

    def note(self, event: Event) -> None:
        """Take what of an event third parties can draw."""
        if isinstance(event, Measured):
            self._measured(event)
        elif isinstance(event, EpisodeEnded):
            self._add(EPISODES, len(event.env_id))
        elif isinstance(event, NonFiniteSeen):
            self._non_finite.add(max(event.count, 0))

    def count_updates(self, more: int) -> None:
        """Take how many updates there were since the last time."""
        self._add(UPDATES, more)

    def collect(self) -> None:
        """Put what third parties can draw now into the spool."""
        found = None if self._reader is None else self._reader.get_metrics_data()
        if found is not None:
            self._put(Signal.METRICS, lambda: encode_metrics(found).SerializeToString())

    def _put_spans(self, spans: Sequence[ReadableSpan]) -> None:
        self._put(Signal.TRACES, lambda: encode_spans(spans).SerializeToString())

    def _put(self, signal: Signal, encode: Callable[[], bytes]) -> None:
        try:
            body = encode()
        except (ValueError, TypeError) as error:
            if signal not in self._failed:
                log.warning("%s could not be encoded: %s", signal.value, error)
            self._failed.add(signal)
            return
        self._spool.put(signal, body, is_fact=False, records=0, last_seq=0, rings={})

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
        self._newest[row.name][""] += amount

    def _set(self, row: Metric, lanes: Sequence[str | None], values: Sequence[float]) -> None:
        is_new = row.name not in self._newest
        found = self._newest.setdefault(row.name, {})
        for lane, value in zip(lanes, values, strict=False):
            found[lane or ""] = value
        if is_new:
            self._create(row)

    def _create(self, row: Metric) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for lane, value in self._newest[row.name].items():
                if math.isfinite(value):
                    subject = {"hw.id": lane, "hw.type": "gpu"} if lane else {}
                    yield Observation(value, {**subject, **row.attributes})

        described = {"unit": row.unit, "description": row.asks}
        if row.kind is Kind.COUNTER:
            self._meter.create_observable_counter(row.name, [observe], **described)
        elif row.adds_up:
            self._meter.create_observable_up_down_counter(row.name, [observe], **described)
        else:
            self._meter.create_observable_gauge(row.name, [observe], **described)
