"""OpenTelemetry's exporters as Overwatch has them: each encodes its signal and puts it into the spool.

Rules: the bytes are those of OpenTelemetry's own encoders; what they cannot encode is given up as a whole,
counted and said once. Must not know rings or the network.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from overwatch.journal import Signal
from overwatch.sdk.exporter.logbytes import LogBytes
from overwatch.sdk.exporter.request import Request

log: Final = logging.getLogger("overwatch.exporter")


class Store(Protocol):
    """Where encoded requests are kept until they are delivered."""

    def put(
        self,
        signal: Signal,
        body: bytes,
        *,
        is_fact: bool,
        records: int,
        last_seq: int,
        rings: Mapping[str, int],
    ) -> Request:
        """Keep one request."""

    def refuse(self, records: int, reason: str, rings: Mapping[str, int]) -> None:
        """Account for records of which no request could be made, and for the ring positions behind them."""

    def hand_on(self, records: int, rings: Mapping[str, int]) -> None:
        """Account for records that leave as spans, and for the ring positions behind them."""


class ExportContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the log records that are exported next."""

    is_fact: bool = False
    records: int = 0
    """Records of the trainer that they stand for."""
    last_seq: int = 0
    rings: Mapping[str, int] = {}
    """Newest sequence number of each ring that is in them."""


class LogSpooler(LogRecordExporter):
    """Log records into the spool. `context` describes the next batch."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bytes = LogBytes()
        self.context = ExportContext()
        self.order = 0
        """Of the newest request."""

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Keep a batch; raises what encoding raises."""
        context, body = self.context, self._bytes.encode(batch)
        request = self._store.put(
            Signal.LOGS,
            body,
            is_fact=context.is_fact,
            records=context.records,
            last_seq=context.last_seq,
            rings=context.rings,
        )
        self.order = request.order
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 10_000) -> bool:  # noqa: ARG002 its interface
        """Nothing is held here."""
        return True

    def shutdown(self) -> None:
        """Nothing is held here."""


class MetricSpooler(MetricExporter):
    """Metrics into the spool."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._put = _Put(store, Signal.METRICS)
        self._is_shut = False

    def export(
        self,
        metrics_data: MetricsData,
        timeout_millis: float = 10_000,  # noqa: ARG002 its interface
        **_: object,
    ) -> MetricExportResult:
        """Keep one collection."""
        is_kept = not self._is_shut and self._put(lambda: encode_metrics(metrics_data).SerializeToString())
        return MetricExportResult.SUCCESS if is_kept else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:  # noqa: ARG002 its interface
        """Nothing is held here."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: object) -> None:  # noqa: ARG002 its interface
        """Keep nothing from now on: a reader that ends collects once more."""
        self._is_shut = True


class SpanSpooler(SpanExporter):
    """Spans into the spool."""

    def __init__(self, store: Store) -> None:
        self._put = _Put(store, Signal.TRACES)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep a batch."""
        is_kept = self._put(lambda: encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS if is_kept else SpanExportResult.FAILURE


class _Put:
    """Puts the third parties' signals, which are not part of the trainer's account."""

    def __init__(self, store: Store, signal: Signal) -> None:
        self._store = store
        self._signal = signal
        self._failed = False

    def __call__(self, encode: Callable[[], bytes]) -> bool:
        try:
            body = encode()
        except (ValueError, TypeError) as error:
            if not self._failed:
                log.warning("%s could not be encoded: %s", self._signal.value, error)
            self._failed = True
            return False
        self._store.put(self._signal, body, is_fact=False, records=0, last_seq=0, rings={})
        return True
