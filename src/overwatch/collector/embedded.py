"""The tower inside of a program: its fold as exporters of the Python OpenTelemetry SDK, without a socket.

For programs that already emit Overwatch's names through OpenTelemetry and want diagnoses in process: in a
notebook, in a test, where no collector can run. Rules: what is exported is what a collector would receive,
byte for byte, and is folded by the same code; a tower that is full or was stopped answers FAILURE, and drops
nothing it took. Must not know how records were made.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

from google.protobuf.message import Message
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from overwatch.aggregator import Aggregator, FrameSink
from overwatch.collector.clock import SteadyClock
from overwatch.journal import JournalFullError, MemoryJournal, Signal
from overwatch.snapshot import Snapshot, View

_DRAIN_S: Final = 20.0
_DEFAULT: Final = View()


class Tower:
    """A fold with its clock. Use as a context manager, or `start` and `stop` it."""

    def __init__(
        self,
        sinks: Sequence[FrameSink] = (),
        budget_mib: int = 64,
        now: Callable[[], int] | None = None,
    ) -> None:
        """`sinks` get every frame; `budget_mib` is what may wait to be folded; `now` is the time."""
        now = now or SteadyClock()
        if budget_mib < 1:
            raise ValueError(f"a tower holds at least 1 MiB, not {budget_mib}")
        self._journal = MemoryJournal(now, budget_mib << 20)
        self._journal.note_gaps(lambda _: b"")
        self._aggregator = Aggregator(self._journal.cursor("aggregator"), now, sinks)
        self._listener = threading.Lock()
        self._is_shut = False

    def start(self) -> None:
        """Begin ticking."""
        self._aggregator.start()

    def stop(self) -> None:
        """Fold what was exported, then end; what is exported from now on is answered FAILURE."""
        with self._listener:
            self._is_shut = True
        self._aggregator.stop(_DRAIN_S)

    def log_exporter(self) -> LogRecordExporter:
        """For a `LogRecordProcessor`: events and logs, what snapshots are made of."""
        return _Logs(self._take)

    def metric_exporter(self) -> MetricExporter:
        """For a `PeriodicExportingMetricReader`: gauges and counters by the catalogue's names."""
        return _Metrics(self._take)

    def snapshot(self, run_id: str | None = None) -> Snapshot | None:
        """The latest of a run, of the newest without an id; `None` before its first tick."""
        frame = self._aggregator.frame
        if frame is None:
            return None
        wanted = frame.newest if run_id is None else run_id
        return None if wanted is None else frame.snapshots.get((wanted, _DEFAULT))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _take(self, signal: Signal, request: Message) -> bool:
        body = request.SerializeToString()
        with self._listener:
            if self._is_shut:
                return False
            try:
                self._journal.append(signal, body)
            except JournalFullError:
                return False
        return True


class _Logs(LogRecordExporter):
    def __init__(self, take: Callable[[Signal, Message], bool]) -> None:
        self._take = take

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Fold a batch."""
        is_taken = self._take(Signal.LOGS, encode_logs(batch))
        return LogRecordExportResult.SUCCESS if is_taken else LogRecordExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 10_000) -> bool:  # noqa: ARG002 its interface
        """Nothing is held here."""
        return True

    def shutdown(self) -> None:
        """The tower is stopped by itself."""


class _Metrics(MetricExporter):
    def __init__(self, take: Callable[[Signal, Message], bool]) -> None:
        super().__init__()
        self._take = take

    def export(
        self,
        metrics_data: MetricsData,
        timeout_millis: float = 10_000,  # noqa: ARG002 its interface
        **_: object,
    ) -> MetricExportResult:
        """Fold one collection."""
        is_taken = self._take(Signal.METRICS, encode_metrics(metrics_data))
        return MetricExportResult.SUCCESS if is_taken else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:  # noqa: ARG002 its interface
        """Nothing is held here."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: object) -> None:
        """The tower is stopped by itself."""
