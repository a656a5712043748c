"""What a request is: which signal it is of and the newest time in it, without reading the rest.

For files of other programs, which say neither. Of OTLP/JSON only what is asked for is read, so that it costs
little more than finding the ends of the values; protobuf bytes say nothing of their kind, so the signal is
the one whose messages leave nothing unexplained. Must not know where the bytes lie.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.times import can_be

_Told: TypeAlias = int | float | str | None
"""A time as writers tell it; 64-bit integers are text in OTLP/JSON."""


class RequestKind(NamedTuple):
    """What a request is."""

    signal: Signal
    newest: int | None
    """Unix nanoseconds; `None` where it tells no time."""


class _Log(msgspec.Struct):
    at: _Told = msgspec.field(name="timeUnixNano", default=None)
    seen: _Told = msgspec.field(name="observedTimeUnixNano", default=None)


class _ScopeLogs(msgspec.Struct):
    items: list[_Log] | None = msgspec.field(name="logRecords", default=None)


class _ResourceLogs(msgspec.Struct):
    scopes: list[_ScopeLogs] | None = msgspec.field(name="scopeLogs", default=None)


class _Span(msgspec.Struct):
    begun: _Told = msgspec.field(name="startTimeUnixNano", default=None)
    ended: _Told = msgspec.field(name="endTimeUnixNano", default=None)


class _ScopeSpans(msgspec.Struct):
    items: list[_Span] | None = msgspec.field(name="spans", default=None)


class _ResourceSpans(msgspec.Struct):
    scopes: list[_ScopeSpans] | None = msgspec.field(name="scopeSpans", default=None)


class _Point(msgspec.Struct):
    at: _Told = msgspec.field(name="timeUnixNano", default=None)


class _Points(msgspec.Struct):
    points: list[_Point] | None = msgspec.field(name="dataPoints", default=None)


class _Metric(msgspec.Struct, rename="camel"):
    gauge: _Points | None = None
    sum: _Points | None = None
    histogram: _Points | None = None
    exponential_histogram: _Points | None = None
    summary: _Points | None = None


class _ScopeMetrics(msgspec.Struct):
    items: list[_Metric] | None = msgspec.field(name="metrics", default=None)


class _ResourceMetrics(msgspec.Struct):
    scopes: list[_ScopeMetrics] | None = msgspec.field(name="scopeMetrics", default=None)


class _Line(msgspec.Struct, rename="camel"):
    resource_logs: list[_ResourceLogs] | None = None
    resource_metrics: list[_ResourceMetrics] | None = None
    resource_spans: list[_ResourceSpans] | None = None


_decoder: Final = msgspec.json.Decoder(_Line)


def sniff(data: bytes) -> tuple[RequestKind, ...]:
    """Of a request in JSON or protobuf; none where it is none. Raises `ValueError` for what is no JSON."""
    if is_json(data):
        return sniff_json(data)
    found = sniff_protobuf(data)
    return () if found is None else (found,)


def is_json(data: bytes) -> bool:
    """Whether bytes are no protobuf: that begins with the tag of its first field, never with a brace."""
    return data[:1] != b"\n"


def sniff_json(text: bytes) -> tuple[RequestKind, ...]:
    """Of one object of OTLP/JSON, a request a signal. Raises `ValueError` for what is no JSON."""
    try:
        told = _decoder.decode(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    found: list[RequestKind] = []
    if told.resource_logs is not None:
        found.append(RequestKind(Signal.LOGS, _newest(_of_logs(told.resource_logs))))
    if told.resource_metrics is not None:
        found.append(RequestKind(Signal.METRICS, _newest(_of_metrics(told.resource_metrics))))
    if told.resource_spans is not None:
        found.append(RequestKind(Signal.TRACES, _newest(_of_spans(told.resource_spans))))
    return tuple(found)


def sniff_protobuf(body: bytes) -> RequestKind | None:
    """Of protobuf bytes; `None` where they are no request of any signal."""
    found: list[RequestKind] = []
    for signal in wire.REQUESTS:
        try:
            message = wire.parse(signal, body)
        except wire.MalformedBody:
            continue
        if _is_explained(message):
            found.append(RequestKind(signal, _newest(_times(message))))
    return max(found, key=lambda one: one.newest is not None, default=None)


def _newest(times: Iterator[_Told]) -> int | None:
    newest = 0
    for told in times:
        try:
            time = int(told or 0)
        except (ValueError, OverflowError):
            continue
        if newest < time and can_be(time):
            newest = time
    return newest or None


def _of_logs(resources: list[_ResourceLogs]) -> Iterator[_Told]:
    for resource in resources:
        for scope in resource.scopes or ():
            for log in scope.items or ():
                yield log.at or log.seen


def _of_spans(resources: list[_ResourceSpans]) -> Iterator[_Told]:
    for resource in resources:
        for scope in resource.scopes or ():
            for span in scope.items or ():
                yield span.ended or span.begun


def _of_metrics(resources: list[_ResourceMetrics]) -> Iterator[_Told]:
    for resource in resources:
        for scope in resource.scopes or ():
            for metric in scope.items or ():
                told = (metric.gauge, metric.sum, metric.histogram, metric.exponential_histogram)
                for points in (*told, metric.summary):
                    for point in (points and points.points) or ():
                        yield point.at


def _is_explained(message: wire.Request) -> bool:
    """Whether nothing is left over in the first item and in what it lies in."""
    resource: Message | None = next(iter(_resources(message)), None)
    if resource is None:
        return False
    scope: Message | None = next(iter(_inside(resource)), None)
    item: Message | None = None if scope is None else next(iter(_inside(scope)), None)
    parts = [part for part in (message, resource, scope, item) if part is not None]
    return not any(len(UnknownFieldSet(part)) for part in parts)


def _resources(message: wire.Request) -> Iterator[Message]:
    if isinstance(message, ExportLogsServiceRequest):
        yield from message.resource_logs
    elif isinstance(message, ExportMetricsServiceRequest):
        yield from message.resource_metrics
    else:
        yield from message.resource_spans


_LISTS: Final = ("scope_logs", "scope_metrics", "scope_spans", "log_records", "metrics", "spans")


def _inside(message: Message) -> Iterator[Message]:
    """The messages of the next level."""
    for name in _LISTS:
        if name in message.DESCRIPTOR.fields_by_name:
            yield from getattr(message, name)


def _times(message: wire.Request) -> Iterator[_Told]:
    for resource in _resources(message):
        for scope in _inside(resource):
            for item in _inside(scope):
                yield from _told(message, item)


def _told(message: wire.Request, item: Message) -> Iterator[_Told]:
    if isinstance(message, ExportMetricsServiceRequest):
        if isinstance(item, Metric):
            kind = item.WhichOneof("data")
            points = () if kind is None else getattr(item, kind).data_points
            yield from (point.time_unix_nano for point in points)
        return
    first, second = (
        ("time_unix_nano", "observed_time_unix_nano")
        if isinstance(message, ExportLogsServiceRequest)
        else ("end_time_unix_nano", "start_time_unix_nano")
    )
    yield getattr(item, first) or getattr(item, second)
