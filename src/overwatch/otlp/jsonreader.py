"""Many lines of OTLP/JSON of few shapes: each log record is read by its likeness to an earlier one.

One exporter says the same things for hours, in batches that are never alike: of a request with log records
the text around them is one shape, and each record another. Lines of other signals are one shape each.

Rules: exactly what `from_json` gives, or its error; learning and what is kept are bounded, and stop where
nothing comes again. Must not know what a line means.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs

from overwatch.journal import Signal
from overwatch.otlp.jsonl import MalformedJson, from_json
from overwatch.otlp.likeness import SOME, Shape, Value, shape_of, skeleton_of, values_in
from overwatch.otlp.varint import varint

MAX_BYTES: Final = 1 << 20
"""Longest text of which a shape is kept."""
MAX_SHAPES: Final = 64
"""Of records, and as many of whole lines and of what is around records."""
_MAX_SEEN: Final = 512
"""Texts that are remembered until they come again."""
_FIRST_SHAPES: Final = 128
_HITS_A_SHAPE: Final = 20
"""So many shapes are learned without return; more only where so many texts were read by those known."""
_TRIED: Final = 2000

_Record: TypeAlias = bytes
"""The protobuf message of one log record."""
_RECORD: Final = b"\x12"
"""Tag of a log record within its scope."""


class _Scope(msgspec.Struct):
    logRecords: list[msgspec.Raw]  # noqa: N815 as OTLP/JSON writes it


class _Resource(msgspec.Struct):
    scopeLogs: list[_Scope]  # noqa: N815


class _Logs(msgspec.Struct):
    resourceLogs: list[_Resource]  # noqa: N815


_SPLIT: Final = msgspec.json.Decoder(_Logs)
_LISTED: Final = msgspec.json.Decoder(list[msgspec.Raw])


class _Seen(msgspec.Struct):
    """A text that was read the general way."""

    told: list[bytes]
    """Its values."""
    named: set[int]
    """Places of those that are known to vary, of kinds that mostly do not."""
    tried: bool = False
    """Whether its shape was looked for, with these varying..."""
    shape: Shape | None = None
    """...and what was found."""


class _Shapes:
    """Shapes of one sort of text, the one used last first."""

    def __init__(self) -> None:
        self.known: list[Shape] = []
        self._seen: dict[int, _Seen] = {}
        self._last: Shape | None = None
        self._after: dict[int, Shape] = {}
        """What came after each shape when it last came: what is said comes mostly in the same order."""
        self.texts = self.learned = self.hits = 0

    def read(self, text: bytes, at: int = 0, *, whole: bool = False) -> tuple[bytes, int] | None:
        """The message of a text that begins at a place, and where it ends; `whole` where it must be all."""
        self.texts += 1
        expected = self._after.get(id(self._last))
        found = None if expected is None else expected.read(text, at)
        if found is None or expected is None:
            found = self._search(text, at)
        else:
            self._last = expected
        if found is None or (whole and found[1] != len(text)):
            return None
        self.hits += 1
        return found

    def _search(self, text: bytes, at: int) -> tuple[bytes, int] | None:
        for place, shape in enumerate(self.known):
            found = shape.read(text, at)
            if found is not None:
                if place:
                    self.known.insert(0, self.known.pop(place))
                self._after[id(self._last)] = shape
                self._last = shape
                return found
        return None

    def miss(self, text: bytes, parse: Callable[[bytes], bytes]) -> None:
        """Note a text that no shape knew; its like is learned when it comes again."""
        if len(text) > MAX_BYTES or not self._is_worth_it():
            return
        values = values_in(text)
        key, told = skeleton_of(text, values), [text[value.start : value.stop] for value in values]
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _MAX_SEEN:
                self._let_go(next(iter(self._seen)))
            self._seen[key] = _Seen(told=told, named=set())
            return
        named = seen.named | _differing(values, seen.told, told)
        is_there = seen.shape is None or seen.shape in self.known
        if seen.tried and is_there and named == seen.named:
            return
        self._let_go(key)
        self.learned += 1
        shape = shape_of(text, values, parse, named)
        self._seen[key] = _Seen(told=told, named=named, tried=True, shape=shape)
        if shape is not None:
            self.known.insert(0, shape)
            del self.known[MAX_SHAPES:]
            self._after.clear()

    def _let_go(self, key: int) -> None:
        shape = self._seen.pop(key).shape
        if shape in self.known:
            self.known.remove(shape)
            self._after.clear()

    def _is_worth_it(self) -> bool:
        """Whether texts come again here, so that learning and looking for more is paid back."""
        is_varied = self.texts > _TRIED and self.hits < self.texts // 8
        return not is_varied and self.learned < _FIRST_SHAPES + self.hits // _HITS_A_SHAPE


def _differing(values: list[Value], before: list[bytes], now: list[bytes]) -> set[int]:
    """Places of values that vary, of kinds that mostly do not."""
    return {at for at, value in enumerate(values) if value.kind in SOME and before[at] != now[at]}


class _Frame:
    """What is around the records of a request with one resource and one scope."""

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head, self.tail = head, tail
        request = ExportLogsServiceRequest.FromString(self.general(b""))
        (resource,) = request.resource_logs
        (scope,) = resource.scope_logs
        self._inner = ScopeLogs(scope=scope.scope if scope.HasField("scope") else None).SerializeToString()
        self._inner_end = ScopeLogs(schema_url=scope.schema_url).SerializeToString()
        outer = ResourceLogs(resource=resource.resource if resource.HasField("resource") else None)
        self._outer = outer.SerializeToString()
        self._outer_end = ResourceLogs(schema_url=resource.schema_url).SerializeToString()
        self._alone = -1, b"", b""
        """Bytes of the one record that was written last, and what was before and behind it."""

    def general(self, records: bytes) -> bytes:
        """The body of a request with these records, read the general way. Raises `MalformedJson`."""
        return from_json(Signal.LOGS, self.head + records + self.tail)

    def record(self, text: bytes) -> _Record:
        """One record, read the general way. Raises `MalformedJson`."""
        request = ExportLogsServiceRequest.FromString(self.general(text))
        return request.resource_logs[0].scope_logs[0].log_records[0].SerializeToString()

    def body(self, records: list[_Record]) -> bytes:
        """The body of a request with these records."""
        if len(records) != 1:
            return self._written(records)
        (record,) = records
        size, before, behind = self._alone
        if size != len(record):
            whole = self._written(records)
            start = len(whole) - len(self._outer_end) - len(self._inner_end) - len(record)
            self._alone = len(record), whole[:start], whole[start + len(record) :]
            return whole
        return b"".join((before, record, behind))

    def _written(self, records: list[_Record]) -> bytes:
        parts = [self._inner]
        for record in records:
            parts += (_RECORD, varint(len(record)), record)
        parts.append(self._inner_end)
        scope = b"".join(parts)
        parts = [self._outer, b"\x12", varint(len(scope)), scope, self._outer_end]
        resource = b"".join(parts)
        return b"".join((b"\x0a", varint(len(resource)), resource))


class JsonReader:
    """`from_json` for many lines of few shapes. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._records = _Shapes()
        self._lines = {signal: _Shapes() for signal in Signal}
        self._frames: list[_Frame] = []
        self._tried = 0
        """Frames that were looked for."""

    @property
    def hits(self) -> int:
        """Records and lines that were read by their likeness."""
        return self._records.hits + sum(lines.hits for lines in self._lines.values())

    @property
    def kept(self) -> int:
        """Shapes that are known now."""
        return len(self._records.known) + sum(len(lines.known) for lines in self._lines.values())

    def read(self, signal: Signal, line: bytes) -> bytes:
        """The protobuf body of one line of OTLP/JSON; raises `MalformedJson`."""
        if signal is Signal.LOGS:
            frame = self._frame(line)
            body = None if frame is None else self._body(frame, line)
            return from_json(signal, line) if body is None else body
        lines = self._lines[signal]
        found = lines.read(line, whole=True)
        if found is not None:
            return found[0]
        body = from_json(signal, line)
        lines.miss(line, partial(from_json, signal))
        return body

    def _frame(self, line: bytes) -> _Frame | None:
        for place, frame in enumerate(self._frames):
            if line.startswith(frame.head) and line.endswith(frame.tail):
                if place:
                    self._frames.insert(0, self._frames.pop(place))
                return frame
        if self._tried > _FIRST_SHAPES + self._records.hits // _HITS_A_SHAPE:
            return None
        self._tried += 1
        found = _frame_of(line)
        if found is not None:
            self._frames.insert(0, found)
            del self._frames[MAX_SHAPES:]
        return found

    def _body(self, frame: _Frame, line: bytes) -> bytes | None:
        """The body of a line within a frame; `None` where the general way must say."""
        records: list[_Record] = []
        at, end = len(frame.head), len(line) - len(frame.tail)
        while at < end:
            found = self._records.read(line, at)
            if found is None or found[1] > end:
                break
            record, at = found
            records.append(record)
            if at == end:
                return frame.body(records)
            if line[at] != _COMMA:
                return None
            at += 1
        try:
            rest = [bytes(text) for text in _LISTED.decode(b"[%b]" % line[at:end])]
            records += [self._record(frame, text) for text in rest]
        except (msgspec.DecodeError, MalformedJson, RecursionError):
            return None
        return frame.body(records) if records else None

    def _record(self, frame: _Frame, text: bytes) -> _Record:
        """A record by itself. Raises `MalformedJson`."""
        found = self._records.read(text, whole=True)
        if found is not None:
            return found[0]
        record = frame.record(text)
        self._records.miss(text, frame.record)
        return record


_COMMA: Final = ord(",")


def _frame_of(line: bytes) -> _Frame | None:
    """What is around the records of a line; `None` where that is not one resource with one scope."""
    try:
        (resource,) = _SPLIT.decode(line).resourceLogs
        (scope,) = resource.scopeLogs
        records = [bytes(text) for text in scope.logRecords]
        if not records:
            return None
        inner = b",".join(records)
        at = line.find(inner)
        frame = _Frame(line[:at], line[at + len(inner) :])
        whole = from_json(Signal.LOGS, line)
        return frame if at > 0 and frame.body([frame.record(text) for text in records]) == whole else None
    except (msgspec.DecodeError, MalformedJson, ValueError, RecursionError):
        return None
