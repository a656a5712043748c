"""What a receiver must answer: how many items came, and how many of them it will not take.

Must not know protocols or status codes.
"""

from typing import Final, assert_never

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overwatch.journal import Batch, Signal
from overwatch.otlp import wire
from overwatch.otlp.decode import count_spans, decode
from overwatch.otlp.points import count_points
from overwatch.otlp.result import Decoded

_SAID: Final = 3
_LONGEST: Final = 512


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Exact figures for a partial success."""

    items: int
    """Log records, data points or spans in the request."""
    rejected: int
    """Of these, the ones that cannot become an event."""
    message: str
    """Why, in English; empty when nothing was rejected."""


def count(signal: Signal, body: bytes) -> Counts:
    """Count a request's items; raises `MalformedBody` when it is no protobuf of its signal."""
    return counts_of(decode(signal, body))


def counts_of(decoded: Decoded) -> Counts:
    """The figures of a request that was decoded."""
    problems = decoded.problems
    said = "; ".join(dict.fromkeys(problem.detail for problem in problems[:_SAID]))
    more = f" and {len(problems) - _SAID} more" if len(problems) > _SAID else ""
    message = f"{said[:_LONGEST]}{more}"
    return Counts(items=decoded.items, rejected=len(problems), message=message)


def items_of(batch: Batch) -> int:
    """How many records, points or spans a batch holds; raises `MalformedBody` when it is none."""
    return count_items(batch.signal, batch.body) if batch.items is None else batch.items


def count_items(signal: Signal, body: bytes) -> int:
    """How many records, points or spans a body holds; raises `MalformedBody` when it is none."""
    message = wire.parse(signal, body)
    match message:
        case ExportLogsServiceRequest():
            return sum(len(s.log_records) for r in message.resource_logs for s in r.scope_logs)
        case ExportMetricsServiceRequest():
            scopes = (s for r in message.resource_metrics for s in r.scope_metrics)
            return sum(count_points(metric) for s in scopes for metric in s.metrics)
        case ExportTraceServiceRequest():
            return count_spans(message)
        case _:
            assert_never(message)
