"""What the three OTLP signals are called on the wire, and how their requests are counted.

Must not know transports or what a record means.
"""

from dataclasses import dataclass
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

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


def count_items(signal: Signal, body: bytes) -> int:
    """How many records, points or spans an accepted body holds; 0 for a start record."""
    match signal:
        case Signal.LOGS:
            logs = ExportLogsServiceRequest.FromString(body)
            return sum(len(scope.log_records) for r in logs.resource_logs for scope in r.scope_logs)
        case Signal.METRICS:
            metrics = ExportMetricsServiceRequest.FromString(body)
            scopes = (scope for r in metrics.resource_metrics for scope in r.scope_metrics)
            return sum(_points(metric) for scope in scopes for metric in scope.metrics)
        case Signal.TRACES:
            traces = ExportTraceServiceRequest.FromString(body)
            return sum(len(scope.spans) for r in traces.resource_spans for scope in r.scope_spans)
        case Signal.START:
            return 0


def _points(metric: Metric) -> int:
    kind = metric.WhichOneof("data")
    return 0 if kind is None else len(getattr(metric, kind).data_points)
