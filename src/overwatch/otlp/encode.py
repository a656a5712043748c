"""Events as OTLP log records, and these as the bytes that protobuf would write.

Rules: numbers of one subject are one double attribute each, everything wider travels packed in the body;
absent is left out. `decode` is the exact inverse. Must not know batching or transport.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Final

import msgspec

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
from overwatch.otlp.protobuf import varint
from overwatch.otlp.value import Value

_NAN: Final = struct.pack("<d", math.nan)
_DOUBLE: Final = struct.Struct("<Bd")
_LIMIT: Final = 1 << 63
_ALL_BITS: Final = (1 << 64) - 1


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """What a log record holds of one event; `seq` is the producer's to add."""

    event_name: str
    severity: int
    """OTLP severity number."""
    attributes: dict[str, Value]
    body: Value = None
    trace_id: bytes = b""
    """16 bytes of the span it was emitted in, or none."""
    span_id: bytes = b""


def encode(event: Event) -> Pieces:
    """The parts of the log record of `event`."""
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
    return b"".join(
        resource_logs({**origin_attributes(origin), **resource}, [log_record(record) for record in same])
        for origin, same in groupby(records, key=lambda record: record.origin)
    )


def resource_logs(attributes: Mapping[str, Value], records: Iterable[bytes], schema_url: str = "") -> bytes:
    """An ExportLogsServiceRequest of log records of one resource, which are bytes already."""
    scope = _part(b"\x0a", wire.OURS.encode()) + _part(b"\x12", overwatch.__version__.encode())
    inner = [_part(b"\x0a", scope), *(_part(b"\x12", record) for record in records)]
    inner.append(_part(b"\x1a", wire.SCHEMA_URL.encode()))
    logs = _part(b"\x0a", _pairs(b"\x0a", attributes)) + _part(b"\x12", b"".join(inner))
    return _part(b"\x0a", logs + (_part(b"\x1a", schema_url.encode()) if schema_url else b""))


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


def log_record(record: Record) -> bytes:
    """A record as a LogRecord message."""
    return as_bytes(encode(record.event), record.event.at, record.seq)


def as_bytes(pieces: Pieces, at: int, seq: int | None = None) -> bytes:
    """A LogRecord message of its pieces: what protobuf writes, field by field, in a fraction of its time.

    Raises `ValueError`, `TypeError` or `OverflowError` where a value has no place in it.
    """
    time = at.to_bytes(8, "little")
    parts = [b"\x09" + time] if at else []
    if pieces.severity:
        parts.append(b"\x10" + varint(pieces.severity))
    if pieces.body is not None:
        parts.append(_part(b"\x2a", _value(pieces.body)))
    parts.append(_pairs(b"\x32", pieces.attributes))
    if seq is not None:
        parts.append(_part(b"\x32", _pair(wire.SEQ, seq)))
    if pieces.trace_id:
        parts.append(_part(b"\x4a", pieces.trace_id))
    if pieces.span_id:
        parts.append(_part(b"\x52", pieces.span_id))
    if at:
        parts.append(b"\x59" + time)
    if pieces.event_name:
        parts.append(_part(b"\x62", pieces.event_name.encode()))
    return b"".join(parts)


def _part(tag: bytes, data: bytes) -> bytes:
    """A field that has a length."""
    return tag + varint(len(data)) + data


def _pairs(tag: bytes, values: Mapping[str, Value]) -> bytes:
    return b"".join([_part(tag, _pair(key, value)) for key, value in values.items()])


def _pair(key: str, value: Value) -> bytes:
    return _key(key) + _part(b"\x12", _value(value))


@lru_cache(maxsize=2048)
def _key(key: str) -> bytes:
    return _part(b"\x0a", key.encode()) if key else b""


def _value(value: Value) -> bytes:
    """An AnyValue message."""
    if isinstance(value, float):
        return _DOUBLE.pack(0x21, value)
    if isinstance(value, str):
        return _part(b"\x0a", value.encode())
    if isinstance(value, bytes):
        return _part(b"\x3a", value)
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        if not -_LIMIT <= value < _LIMIT:
            raise ValueError(f"{value} has more than 64 bits")
        return b"\x18" + varint(value & _ALL_BITS)
    if isinstance(value, Mapping):
        return _part(b"\x32", _pairs(b"\x0a", value))
    if value is None:
        return b""
    if isinstance(value, Sequence):
        return _part(b"\x2a", b"".join([_part(b"\x0a", _value(item)) for item in value]))
    raise TypeError(f"a {type(value).__name__} is no value of an attribute")


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
