"""What the three OTLP signals are called on the wire, how requests are counted, and what answers them.

A refusal is a `google.rpc.Status` with what a sender may act on. Must not know transports or what a record
means.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

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
    """The field of a partial success with the number of items that were rejected."""
    response: type[Response]


WIRES: Final = {
    wire.signal: wire
    for wire in (
        Wire(
            signal=Signal.LOGS,
            path="/v1/logs",
            service="opentelemetry.proto.collector.logs.v1.LogsService",
            items="log_records",
            rejected="rejected_log_records",
            response=ExportLogsServiceResponse,
        ),
        Wire(
            signal=Signal.METRICS,
            path="/v1/metrics",
            service="opentelemetry.proto.collector.metrics.v1.MetricsService",
            items="metric_points",
            rejected="rejected_data_points",
            response=ExportMetricsServiceResponse,
        ),
        Wire(
            signal=Signal.TRACES,
            path="/v1/traces",
            service="opentelemetry.proto.collector.trace.v1.TraceService",
            items="spans",
            rejected="rejected_spans",
            response=ExportTraceServiceResponse,
        ),
    )
}


def response(signal: Signal, rejected: int, message: str) -> Response:
    """The answer to an accepted request: `partial_success` is set only when there is something in it."""
    wire = WIRES[signal]
    made = wire.response()
    if rejected or message:
        setattr(made.partial_success, wire.rejected, rejected)
        made.partial_success.error_message = message[:MESSAGE_CHARS]
    return made


class Code(IntEnum):
    """Canonical codes that this collector answers with."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


def status(code: Code, message: str, retry_after_s: int | None = None) -> status_pb2.Status:
    """A status; with `RetryInfo` where the sender should come back, with the field where it is to blame."""
    made = status_pb2.Status(code=int(code), message=message)
    if retry_after_s is not None:
        made.details.add().Pack(retry_info(retry_after_s))
    elif code is Code.INVALID_ARGUMENT:
        violation = error_details_pb2.BadRequest.FieldViolation(field="body", description=message)
        made.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return made


def retry_info(retry_after_s: int) -> error_details_pb2.RetryInfo:
    """A bare `RetryInfo`, as gRPC clients look for in trailing metadata."""
    return error_details_pb2.RetryInfo(retry_delay=Duration(seconds=retry_after_s))
