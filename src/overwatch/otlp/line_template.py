"""Log records of one shape as OTLP/JSON, many at once: the same text but for numbers and words.

Of a record that the general path has written, a template keeps what every byte must be, where its numbers
and words lie, and the text around them. What lies where is not believed: records with all of it changed are
written both ways when a template is learned, and must come out the same.

Rules: a template gives exactly the text that the general path would, or none: a word that has to be escaped,
a time that is none, another byte are left to the general path. Must not know what a record means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overwatch.otlp.frames import OddError
from overwatch.otlp.jsonl import text_of
from overwatch.otlp.mask import Bytes
from overwatch.otlp.record_slots import LONGEST, Kind, Part, Slot, parts_of
from overwatch.otlp.rows import RowShape

MOST_SLOTS: Final = 64
_TIME, _BODY, _ATTRIBUTE, _OBSERVED = 0x09, 0x2A, 0x32, 0x59
_KEY, _VALUE = 0x0A, 0x12
_STRING, _INT, _DOUBLE = 0x0A, 0x18, 0x21
_TIMES: Final = {_TIME: b"timeUnixNano", _OBSERVED: b"observedTimeUnixNano"}
_encode: Final = msgspec.json.Encoder().encode

_Piece: TypeAlias = bytes | Slot
"""Of a line: text, or what is between two of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LineTemplate:
    """What records of one shape are as text."""

    shape: RowShape
    text: bytes
    """With a `%b` or `%d` for each slot."""

    @property
    def length(self) -> int:
        """Bytes of a record."""
        return self.shape.length

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""
        return self.shape.cost + len(self.text)

    def read(self, rows: Bytes) -> list[bytes | None]:
        """The texts of records, one a row; `None` where one is not certainly of this shape."""
        fits, columns = self.shape.read(rows)
        told = [_told(slot, column) for slot, column in zip(self.shape.slots, columns, strict=True)]
        values = zip(*told, strict=True) if told else [()] * len(rows)
        text = self.text
        return [text % these if fit else None for fit, these in zip(fits.tolist(), values, strict=True)]


def _told(slot: Slot, column: np.ndarray) -> list[int] | list[bytes]:
    """What stands in the text of each row."""
    values: list[int] | list[bytes] = column.tolist()
    return _encode(values)[1:-1].split(b",") if slot.kind is Kind.DOUBLE else values


def learn_line(record: bytes) -> LineTemplate | None:
    """The template of a log record; `None` where it cannot be told so."""
    try:
        pieces = list(_pieces(record))
    except (OddError, DecodeError, IndexError, UnicodeDecodeError):
        return None
    slots = [piece for piece in pieces if isinstance(piece, Slot)]
    if len(slots) > MOST_SLOTS:
        return None
    shape = RowShape.of(record, slots)
    template = LineTemplate(shape=shape, text=b"".join(map(_format, pieces)))
    records = [record, *(shape.altered(record, turn) for turn in range(2))]
    rows = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), len(record))
    general = [text_of(LogRecord.FromString(one)) for one in records]
    return template if template.read(rows) == general else None


def _pieces(record: bytes) -> Iterator[_Piece]:
    """The text of a record in pieces; fields in the order of their numbers. Raises `OddError`."""
    yield b"{"
    last = 0
    for number, part in enumerate(parts_of(record, 0, len(record))):
        tag = part.tag
        if tag < last or (tag == last and tag != _ATTRIBUTE):
            raise OddError
        if last == _ATTRIBUTE != tag:
            yield b"]"
        if number:
            yield b","
        if tag == _ATTRIBUTE and tag != last:
            yield b'"attributes":['
        yield from _field(record, part)
        last = tag
    yield b"]}" if last == _ATTRIBUTE else b"}"


def _field(record: bytes, part: Part) -> Iterator[_Piece]:
    tag, start, stop, begin = part
    if tag in _TIMES:
        yield from (b'"%b":"' % _TIMES[tag], Slot((), Kind.FIXED, start, stop), b'"')
    elif tag == _BODY and (slot := _slot(record, start, stop)):
        yield from (b'"body":{', *_valued(slot), b"}")
    elif tag == _ATTRIBUTE:
        yield from _attribute(record, part)
    else:
        text = text_of(LogRecord.FromString(record[begin:stop]))[1:-1]
        if not text:
            raise OddError
        yield text


def _attribute(record: bytes, part: Part) -> Iterator[_Piece]:
    parts = list(parts_of(record, part.start, part.stop))
    if [one.tag for one in parts] == [_KEY, _VALUE] and (
        slot := _slot(record, parts[1].start, parts[1].stop)
    ):
        key = record[parts[0].start : parts[0].stop].decode()
        yield from (b'{"key":%b,"value":{' % _encode(key), *_valued(slot), b"}}")
        return
    text = text_of(LogRecord.FromString(record[part.begin : part.stop]))
    yield text.removeprefix(b'{"attributes":[').removesuffix(b"]}")


def _slot(record: bytes, start: int, stop: int) -> Slot | None:
    """Where the number or the word of a value lies; `None` of any other."""
    parts = list(parts_of(record, start, stop))
    if len(parts) != 1:
        return None
    ((tag, begin, end, _),) = parts
    if tag == _INT and end - begin <= LONGEST:
        return Slot((), Kind.WHOLE, begin, end)
    if tag == _DOUBLE:
        return Slot((), Kind.DOUBLE, begin, end)
    return Slot((), Kind.TEXT, begin, end) if tag == _STRING and end > begin else None


def _valued(slot: Slot) -> Sequence[_Piece]:
    if slot.kind is Kind.DOUBLE:
        return b'"doubleValue":', slot
    name = b"intValue" if slot.kind is Kind.WHOLE else b"stringValue"
    return b'"%b":"' % name, slot, b'"'


def _format(piece: _Piece) -> bytes:
    if isinstance(piece, bytes):
        return piece.replace(b"%", b"%%")
    return b"%d" if piece.kind in (Kind.FIXED, Kind.WHOLE) else b"%b"
