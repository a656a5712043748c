"""Log records as bytes: those that OpenTelemetry's encoder writes, in a fraction of its time.

Rules: what describes the producer is encoded by OpenTelemetry, once, for it is the same in every request; of
records plain values are written here, and a batch that holds anything else is OpenTelemetry's. Must not know
what records mean.
"""

import functools
import struct
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
from opentelemetry.sdk._logs import ReadableLogRecord

from overwatch.otlp.varint import varint

_ALL_BITS: Final = (1 << 64) - 1
_LIMIT: Final = 1 << 63
_double: Final = struct.Struct("<cd").pack
_fixed64: Final = struct.Struct("<cQ").pack
_fixed32: Final = struct.Struct("<cI").pack
_TROUBLE: Final = (ValueError, TypeError, AttributeError, OverflowError, struct.error)
"""What is raised where a value is none that is written here."""


class LogBytes:
    """Encodes batches."""

    def __init__(self) -> None:
        self._known: ReadableLogRecord | None = None
        """One of the producer whose description is kept."""
        self._frame = (b"", b"", b"", b"")
        """What stands before and behind the scope's records, within the resource and within the scope."""

    def encode(self, batch: Sequence[ReadableLogRecord]) -> bytes:
        """A request of at least one record; raises what OpenTelemetry's encoder raises."""
        try:
            records = b"".join([_part(b"\x12", _record(one)) for one in batch])
        except _TROUBLE:
            return _plain(batch)
        if self._known is None or not _is_of(batch[0], self._known):
            self._learn(batch[0])
        if not all(_is_of(one, batch[0]) for one in batch):
            return _plain(batch)
        before, scope, scope_end, behind = self._frame
        inner = _part(b"\x12", scope + records + scope_end)
        return _part(b"\x0a", before + inner + behind)

    def _learn(self, record: ReadableLogRecord) -> None:
        (of,) = encode_logs([record]).resource_logs
        (inner,) = of.scope_logs
        self._known = record
        self._frame = (
            ResourceLogs(resource=of.resource).SerializeToString(),
            ScopeLogs(scope=inner.scope).SerializeToString(),
            ScopeLogs(schema_url=inner.schema_url).SerializeToString(),
            ResourceLogs(schema_url=of.schema_url).SerializeToString(),
        )


def _plain(batch: Sequence[ReadableLogRecord]) -> bytes:
    return encode_logs(batch).SerializeToString()


def _is_of(one: ReadableLogRecord, other: ReadableLogRecord) -> bool:
    """Whether both are of one producer; equal ones that are not the same are not looked into."""
    return one.resource is other.resource and one.instrumentation_scope is other.instrumentation_scope


def _record(readable: ReadableLogRecord) -> bytes:
    """A record's fields in the order of their numbers."""
    said = readable.log_record
    pieces = [_fixed64(b"\x09", said.timestamp)] if said.timestamp else []
    if said.severity_number is not None and said.severity_number.value:
        pieces.append(b"\x10" + varint(said.severity_number.value))
    if said.severity_text:
        pieces.append(_part(b"\x1a", said.severity_text.encode()))
    pieces.append(_part(b"\x2a", _value(said.body)))
    pieces += [_part(b"\x32", _pair(key, value)) for key, value in (said.attributes or {}).items()]
    if readable.dropped_attributes:
        pieces.append(b"\x38" + varint(readable.dropped_attributes))
    if said.trace_flags:
        pieces.append(_fixed32(b"\x45", said.trace_flags))
    if said.trace_id:
        pieces.append(b"\x4a\x10" + said.trace_id.to_bytes(16, "big"))
    if said.span_id:
        pieces.append(b"\x52\x08" + said.span_id.to_bytes(8, "big"))
    if said.observed_timestamp:
        pieces.append(_fixed64(b"\x59", said.observed_timestamp))
    if said.event_name:
        pieces.append(_part(b"\x62", said.event_name.encode()))
    return b"".join(pieces)


def _part(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def _pair(key: str, value: object) -> bytes:
    return _key(key) + _part(b"\x12", _value(value))


@functools.lru_cache(maxsize=2048)
def _key(key: str) -> bytes:
    return _part(b"\x0a", key.encode()) if key else b""


def _value(value: object) -> bytes:
    """A value of exactly one of the plain types; raises `TypeError` for any other."""
    if type(value) is float:
        return _double(b"\x21", value)
    if type(value) is str:
        return _part(b"\x0a", value.encode())
    if type(value) is bytes:
        return _part(b"\x3a", value)
    if type(value) is dict:
        return _part(b"\x32", b"".join([_part(b"\x0a", _pair(key, one)) for key, one in value.items()]))
    if type(value) is int:
        if not -_LIMIT <= value < _LIMIT:
            raise ValueError(f"{value} has more than 64 bits")
        return b"\x18" + varint(value & _ALL_BITS)
    if type(value) is bool:
        return b"\x10\x01" if value else b"\x10\x00"
    if type(value) is list or type(value) is tuple:
        return _part(b"\x2a", b"".join([_part(b"\x0a", _value(one)) for one in value]))
    if value is None:
        return b""
    raise TypeError(f"a {type(value).__name__} is not written here")
