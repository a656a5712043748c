"""Requests of log records read record by record: those of known shapes by template, the others by the parser.

A request holds now two records and now five, but each of them is like one of before. The frame around them
(resources, scopes, where each record begins) is walked; what is written in any other than the one plain way
is left to the general path as a whole.

Rules: gives exactly what the general path would, or nothing. A request in which nothing is known is given
back after a few records. Must not know what a record says.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from overwatch.otlp.decode import LogGathering, Spoken
from overwatch.otlp.frames import OddError, fields_of
from overwatch.otlp.lengths import Lengths
from overwatch.otlp.origin import Resource, resource_of, scope_name_of
from overwatch.otlp.record_template import RecordTemplate, learn_record
from overwatch.otlp.result import Decoded, RejectedError

LEAST_BYTES: Final = 128
"""Smaller records are read as fast by the general path."""
LARGEST_RECORD: Final = 64 << 10
"""Larger ones are mostly columns, which the parser copies faster than a template compares what is between."""
LARGEST_BYTES: Final = 4 << 20
"""Larger requests are left to the general path, which may refuse them."""
PATIENCE: Final = 4
"""So many records may be strange before the first one that is known."""
MOST_STRANGE_BYTES: Final = 32 << 10
"""Bytes of strange records that are read beside known ones: who asks expects an answer at once."""
_FEW: Final = 16
"""Records of a request whose frame is remembered, at most."""
_MOST_WAITING: Final = 64
_MOST_FRAMES: Final = 256
_LONGEST_FRAME: Final = 8 << 10
_FIRST, _SECOND, _SCHEMA = 0x0A, 0x12, 0x1A

_Read = TypeVar("_Read")


class _Piece(NamedTuple):
    """One log record of a request."""

    resource: Resource
    scope: str
    """Its name."""
    start: int
    stop: int


def _is_small(piece: _Piece) -> bool:
    return piece.stop - piece.start <= LARGEST_RECORD


class _Frame(NamedTuple):
    """A request of few records: what is around them says where they lie."""

    length: int
    around: tuple[tuple[slice, bytes], ...]
    """Bytes before each record, and behind the last one."""
    pieces: tuple[_Piece, ...]

    def fits(self, body: bytes) -> bool:
        """Whether the records of a request lie where those of this one do."""
        return len(body) == self.length and all(body[here] == known for here, known in self.around)


class RecordTemplates:
    """Reads requests of log records whose shapes are known."""

    def __init__(self, most_bytes: int) -> None:
        self._shapes: Lengths[RecordTemplate] = Lengths(most_bytes)
        self._strange: deque[bytes] = deque(maxlen=_MOST_WAITING)
        """Records of requests that are known for the most part, until somebody learns."""
        self._resources = _Interned(_resource)
        self._scopes = _Interned(_scope)
        self._frame: _Frame | None = None

    @property
    def learned(self) -> int:
        """Templates made so far."""
        return self._shapes.learned

    def read(self, body: bytes) -> Decoded | None:
        """As `decode` reads it, where templates can read some of its records; else `None`."""
        if not self.learned or len(body) > LARGEST_BYTES:
            return None
        gathering, known, strange, size = LogGathering(), 0, 0, 0
        try:
            framed = self._as_framed(body)
            if framed is not None:
                return framed
            for piece in self._framed(body):
                if not _is_small(piece):
                    return None
                record = body[piece.start : piece.stop]
                said = self._spoken(record)
                if said is not None:
                    known += 1
                    gathering.add_spoken(piece.resource, said)
                    continue
                strange, size = strange + 1, size + len(record)
                if size > MOST_STRANGE_BYTES or (not known and strange >= PATIENCE):
                    return None
                gathering.add(piece.resource, piece.scope, LogRecord.FromString(record))
                if len(record) >= LEAST_BYTES:
                    self._strange.append(record)
        except (OddError, DecodeError, RejectedError):
            return None
        return gathering.result() if known else None

    def _spoken(self, record: bytes) -> Spoken | None:
        for place, shape in enumerate(self._shapes.of(len(record))):
            said = shape.read(record)
            if said is not None:
                if place:
                    self._shapes.put_first(shape)
                return said
        return None

    def study(self, body: bytes, *, known: bool) -> None:
        """Take note of a request that could be read, by templates if `known`; learn what pays."""
        if known:
            while self._strange:
                self._note(self._strange.popleft())
            return
        try:
            for number, piece in enumerate(self._pieces(body)):
                if number >= _MOST_WAITING:
                    break
                if _is_small(piece):
                    self._note(body[piece.start : piece.stop])
        except (OddError, DecodeError):
            return

    def _note(self, record: bytes) -> None:
        if len(record) < LEAST_BYTES or any(shape.fits(record) for shape in self._shapes.of(len(record))):
            return
        made = learn_record(record) if self._shapes.is_due(len(record)) else None
        if made is not None:
            self._shapes.keep(made)

    def _as_framed(self, body: bytes) -> Decoded | None:
        """What a request of known records says that is framed as the one before."""
        if self._frame is None or not self._frame.fits(body):
            return None
        gathering = LogGathering()
        for piece in self._frame.pieces:
            said = self._spoken(body[piece.start : piece.stop])
            if said is None:
                return None
            gathering.add_spoken(piece.resource, said)
        return gathering.result()

    def _framed(self, body: bytes) -> Iterator[_Piece]:
        """As `_pieces`; what is around a few records is remembered."""
        pieces: list[_Piece] = []
        for piece in self._pieces(body):
            if len(pieces) <= _FEW:
                pieces.append(piece)
            yield piece
        if 0 < len(pieces) <= _FEW:
            self._frame = _frame_of(body, pieces)

    def _pieces(self, body: bytes) -> Iterator[_Piece]:
        """The log records of a request; raises `OddError`, or `DecodeError` where its frame is no message."""
        for tag, start, stop in fields_of(body, 0, len(body)):
            if tag != _FIRST:
                raise OddError
            resource = self._resources.of(b"")
            for place, (inner, begin, end) in enumerate(fields_of(body, start, stop)):
                if inner == _FIRST and not place:
                    resource = self._resources.of(body[begin:end])
                elif inner == _SECOND:
                    yield from self._of_scope(body, begin, end, resource)
                elif inner != _SCHEMA or not body[begin:end].isascii():
                    raise OddError

    def _of_scope(self, body: bytes, start: int, stop: int, resource: Resource) -> Iterator[_Piece]:
        scope = ""
        for place, (tag, begin, end) in enumerate(fields_of(body, start, stop)):
            if tag == _FIRST and not place:
                scope = self._scopes.of(body[begin:end])
            elif tag == _SECOND:
                yield _Piece(resource, scope, begin, end)
            elif tag != _SCHEMA or not body[begin:end].isascii():
                raise OddError


def _frame_of(body: bytes, pieces: Sequence[_Piece]) -> _Frame:
    starts = [0, *(piece.stop for piece in pieces)]
    stops = [*(piece.start for piece in pieces), len(body)]
    around = tuple((here, body[here]) for here in map(slice, starts, stops))
    return _Frame(len(body), around, tuple(pieces))


class _Interned(Generic[_Read]):
    """What some bytes say that come again and again; bounded."""

    def __init__(self, read: Callable[[bytes], _Read]) -> None:
        self._read = read
        self._known: dict[bytes, _Read] = {}

    def of(self, data: bytes) -> _Read:
        """What these bytes say; raises `DecodeError`."""
        found = self._known.get(data)
        if found is None:
            found = self._read(data)
            if len(data) <= _LONGEST_FRAME:
                if len(self._known) >= _MOST_FRAMES:
                    self._known = {}
                self._known[data] = found
        return found


def _resource(data: bytes) -> Resource:
    return resource_of(ResourceMessage.FromString(data))


def _scope(data: bytes) -> str:
    return scope_name_of(InstrumentationScope.FromString(data))
