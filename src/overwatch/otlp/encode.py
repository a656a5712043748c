"""Events as OTLP log records.

Rules: numbers of one subject are one double attribute each, everything wider travels packed in the body;
absent is left out. `decode` is the exact inverse. Must not know batching or transport.
"""

import math
import struct
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import groupby
from typing import Final

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

import overwatch
from overwatch.events import (
    CheckpointSaved,
    Column,
    EnvCrashed,
    EpisodeEnded,
    Event,
    LogLine,
    Measured,
    NonFiniteSeen,
    Origin,
    PhaseEnded,
    Record,
    Severity,
    Tallied,
)
from overwatch.otlp import wire
from overwatch.otlp.value import Value, to_any, to_pairs

_NAN: Final = struct.pack("<d", math.nan)


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """What a log record holds of one event; `seq` is the producer's to add."""

    event_name: str
    severity: int
    """OTLP severity number."""
    attributes: dict[str, Value]
    body: Value = None
    trace_id: bytes = b""
    """16 bytes of the span it was said in, or none."""
    span_id: bytes = b""


def encode(event: Event) -> Pieces:
    """The parts of the log record that says `event`."""
    name = f"{wire.EVENT_PREFIX}{wire.TAGS[type(event)]}"
    if isinstance(event, Measured):
        own, body = _measured(event)
        return Pieces(event_name=name, severity=_severity(event), attributes=own, body=body)
    attributes: dict[str, Value] = {}
    columns: dict[str, Value] = {}
    elsewhere = wire.OWN_PLACES[type(event)]
    for field in wire.FIELDS[type(event)]:
        value = getattr(event, field)
        if isinstance(value, Column):
            columns[field] = _column(value)
        elif value is not None and value not in ((), {}) and field not in elsewhere:
            attributes[wire.attribute_of(field)] = _plain(value)
    trace_id, span_id = (
        (event.trace_id, event.span_id)
        if isinstance(event, LogLine | PhaseEnded | EpisodeEnded | CheckpointSaved)
        else (None, None)
    )
    return Pieces(
        event_name=name,
        severity=_severity(event),
        attributes=attributes,
        body=_body(event, columns),
        trace_id=_hex(trace_id, 16),
        span_id=_hex(span_id, 8),
    )


def _body(event: Event, columns: dict[str, Value]) -> Value:
    if isinstance(event, LogLine):
        return event.message
    if isinstance(event, Tallied):
        return {"series": _plain(event.series)}
    return columns or None


def request(records: Iterable[Record], resource: Mapping[str, Value]) -> bytes:
    """An ExportLogsServiceRequest of `records`, one resource for each run of records with one origin.

    `resource` adds to the attributes that the origin demands, and overrides them.
    """
    groups = []
    for origin, same in groupby(records, key=lambda record: record.origin):
        scope_logs = ScopeLogs(
            scope=InstrumentationScope(name=wire.OURS, version=overwatch.__version__),
            log_records=[log_record(record) for record in same],
            schema_url=wire.SCHEMA_URL,
        )
        attributes = to_pairs({**origin_attributes(origin), **resource})
        groups.append(ResourceLogs(resource=Resource(attributes=attributes), scope_logs=[scope_logs]))
    return ExportLogsServiceRequest(resource_logs=groups).SerializeToString()


def origin_attributes(origin: Origin) -> dict[str, Value]:
    """The resource attributes that name an origin."""
    named: dict[str, Value] = {
        wire.RUN_ID: origin.run_id,
        wire.ROLE: origin.role,
        wire.RANK: origin.rank,
        wire.INSTANCE: origin.epoch,
        wire.JOIN: origin.join,
        wire.DISTRO: wire.OURS if origin.ours else None,
        wire.TASK: origin.task,
        wire.ALGORITHM: origin.algo,
    }
    return {name: value for name, value in named.items() if value is not None}


def log_record(record: Record) -> LogRecord:
    """A record as a message."""
    pieces = encode(record.event)
    attributes = to_pairs(pieces.attributes)
    if record.seq is not None:
        attributes += to_pairs({wire.SEQ: record.seq})
    return LogRecord(
        time_unix_nano=record.event.at,
        observed_time_unix_nano=record.event.at,
        event_name=pieces.event_name,
        severity_number=SeverityNumber.ValueType(pieces.severity),
        attributes=attributes,
        body=None if pieces.body is None else to_any(pieces.body),
        trace_id=pieces.trace_id,
        span_id=pieces.span_id,
    )


def _hex(digits: str | None, size: int) -> bytes:
    """The bytes of an id; none where it is no id."""
    try:
        found = bytes.fromhex(digits or "")
    except ValueError:
        return b""
    return found if len(found) == size and any(found) else b""


def _severity(event: Event) -> int:
    if isinstance(event, LogLine):
        return wire.SEVERITY_NUMBER[event.severity]
    if isinstance(event, EnvCrashed | NonFiniteSeen):
        return wire.SEVERITY_NUMBER[Severity.CRITICAL]
    return wire.SEVERITY_NUMBER[Severity.INFO]


def _measured(event: Measured) -> tuple[dict[str, Value], Value]:
    attributes: dict[str, Value] = {wire.SCOPE: event.scope.value}
    if event.index is not None:
        attributes[wire.INDEX] = event.index
    is_plain = all(_is_plain(name, column) for name, column in event.values.items())
    if event.conflated is None and not event.keys and is_plain:
        attributes.update((name, column.first()) for name, column in event.values.items())
        return attributes, None
    body: dict[str, Value] = {
        "keys": {name: _column(column) for name, column in event.keys.items()},
        "values": {name: _column(column) for name, column in event.values.items()},
    }
    if event.conflated is not None:
        body["conflated"] = _plain(event.conflated)
    return attributes, body


def _is_plain(name: str, column: Column) -> bool:
    """Whether a double attribute can carry the column to the bit."""
    if column.dtype != "<f8" or len(column.data) != 8 or column.labels is not None:
        return False
    if not name or name in wire.RESERVED:
        return False
    return column.data == _NAN or not math.isnan(column.first())


def _column(column: Column) -> Value:
    packed: dict[str, Value] = {"dtype": column.dtype, "data": column.data}
    if column.labels is not None:
        packed["labels"] = list(column.labels)
    return packed


def _plain(value: object) -> Value:
    if isinstance(value, Enum):
        plain: Value = value.value
        return plain
    built: Value = msgspec.to_builtins(value, builtin_types=(bytes,))
    return list(built) if isinstance(built, tuple) else built
