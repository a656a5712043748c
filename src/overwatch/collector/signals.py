"""What the three OTLP signals are called on the wire, and how their requests are counted.

Must not know transports or what a record means.
"""

from dataclasses import dataclass
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from overwatch.journal import Signal

Response = ExportLogsServiceResponse | ExportMetricsServiceResponse | ExportTraceServiceResponse

MESSAGE_CHARS: Final = 4096
"""Longest error message of a partial success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The names of one signal."""

    signal: Signal
    path: str
    """HTTP path."""
    service: str
    """Full name of the gRPC service; its method is `Export`."""
    items: str
    """What otelcol's counters call one item."""
    rejected: str
    """JSON name of the reject count in a partial success."""


LOGS: Final = Wire(
    signal=Signal.LOGS,
    path="/v1/logs",
    service="opentelemetry.proto.collector.logs.v1.LogsService",
    items="log_records",
    rejected="rejectedLogRecords",
)
METRICS: Final = Wire(
    signal=Signal.METRICS,
    path="/v1/metrics",
    service="opentelemetry.proto.collector.metrics.v1.MetricsService",
    items="metric_points",
    rejected="rejectedDataPoints",
)
TRACES: Final = Wire(
    signal=Signal.TRACES,
    path="/v1/traces",
    service="opentelemetry.proto.collector.trace.v1.TraceService",
    items="spans",
    rejected="rejectedSpans",
)
WIRES: Final = {wire.signal: wire for wire in (LOGS, METRICS, TRACES)}


def response(signal: Signal, rejected: int, message: str) -> Response:
    """The answer to an accepted request: `partial_success` is set only when there is something to say."""
    said = message[:MESSAGE_CHARS]
    full = not rejected and not said
    match signal:
        case Signal.LOGS:
            if full:
                return ExportLogsServiceResponse()
            logs = ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=said)
            return ExportLogsServiceResponse(partial_success=logs)
        case Signal.METRICS:
            if full:
                return ExportMetricsServiceResponse()
            points = ExportMetricsPartialSuccess(rejected_data_points=rejected, error_message=said)
            return ExportMetricsServiceResponse(partial_success=points)
        case Signal.TRACES:
            if full:
                return ExportTraceServiceResponse()
            spans = ExportTracePartialSuccess(rejected_spans=rejected, error_message=said)
            return ExportTraceServiceResponse(partial_success=spans)
        case Signal.START:
            raise ValueError("a start record is the collector's own; it has no OTLP response")
