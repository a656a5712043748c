"""Where the numbers of a log record lie on the wire, and what each of them is called.

Rules: times, whole numbers, doubles, texts and packed columns are slots; a whole number keeps its width, as
the lengths around it would change with another one. A name that is given twice, or a part that is not written
in the one plain way, has no slot or makes the record one that slots cannot tell. Must not know what a number
means.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias, assert_never

import numpy as np

from overwatch.otlp.elements import size_of
from overwatch.otlp.frames import OddError
from overwatch.otlp.mask import Bytes
from overwatch.otlp.times import EARLIEST
from overwatch.otlp.varint import read_varint

Path: TypeAlias = tuple[str, ...]
"""How a number is called: `("seq",)` of an attribute, `("values", "<name>", "data")` within the body."""

TIME: Final = ("", "time")
OBSERVED: Final = ("", "observed")
ATTRIBUTE: Final = "attribute"
BODY: Final = "body"
"""Where a path begins, as an attribute and a part of the body may have the same name."""
LONGEST: Final = 9
"""Bytes of the longest whole number that is not negative."""

_TIME, _OBSERVED, _ATTRIBUTE, _BODY = 0x09, 0x59, 0x32, 0x2A
_KEY, _VALUE = 0x0A, 0x12
_STRING, _INT, _DOUBLE, _LIST, _BYTES = 0x0A, 0x18, 0x21, 0x32, 0x3A
_PAIR: Final = 0x0A
_DEEPEST: Final = 6
_NUMBER: Final = struct.Struct("<Q")
_REAL: Final = struct.Struct("<d")


class Kind(Enum):
    """How a number is written."""

    FIXED = auto()
    """Eight bytes, a whole number."""
    WHOLE = auto()
    """A varint."""
    DOUBLE = auto()
    PACKED = auto()
    """Bytes of any length."""
    TEXT = auto()


class Slot(NamedTuple):
    """One number, or one packed column."""

    path: Path
    kind: Kind
    start: int
    stop: int


class Part(NamedTuple):
    """A field: its tag, where what it holds begins and ends, and where itself begins."""

    tag: int
    start: int
    stop: int
    begin: int


def slots_of(record: bytes) -> list[Slot] | None:
    """The slots of a log record, in their order on the wire; `None` where slots cannot tell it."""
    try:
        found = list(_of_record(record))
    except OddError:
        return None
    paths = [slot.path for slot in found]
    return found if len(set(paths)) == len(paths) and TIME in paths else None


def _of_record(record: bytes) -> Iterator[Slot]:
    bodies = 0
    for tag, start, stop, _ in parts_of(record, 0, len(record)):
        if tag in (_TIME, _OBSERVED):
            yield Slot(TIME if tag == _TIME else OBSERVED, Kind.FIXED, start, stop)
        elif tag == _ATTRIBUTE:
            yield from _of_pair(record, start, stop, (ATTRIBUTE,))
        elif tag == _BODY:
            # Bodies that come twice are merged, which no slot could tell.
            bodies += 1
            if bodies > 1:
                raise OddError
            yield from _of_value(record, start, stop, (BODY,))


def _of_pair(record: bytes, at: int, end: int, path: Path) -> Iterator[Slot]:
    """The slots within a key and its value."""
    parts = list(parts_of(record, at, end))
    if [part.tag for part in parts] != [_KEY, _VALUE]:
        return
    key, value = parts
    try:
        name = record[key.start : key.stop].decode()
    except UnicodeDecodeError:
        raise OddError from None
    yield from _of_value(record, value.start, value.stop, (*path, name))


def _of_value(record: bytes, at: int, end: int, path: Path) -> Iterator[Slot]:
    if len(path) > _DEEPEST:
        return
    parts = list(parts_of(record, at, end))
    if len(parts) != 1:
        return
    ((tag, start, stop, _),) = parts
    if tag == _INT and stop - start <= LONGEST:
        yield Slot(path, Kind.WHOLE, start, stop)
    elif tag == _DOUBLE:
        yield Slot(path, Kind.DOUBLE, start, stop)
    elif tag == _STRING and stop > start:
        yield Slot(path, Kind.TEXT, start, stop)
    elif tag == _BYTES:
        yield Slot(path, Kind.PACKED, start, stop)
    elif tag == _LIST:
        for pair in parts_of(record, start, stop):
            if pair.tag == _PAIR:
                yield from _of_pair(record, pair.start, pair.stop, path)


def parts_of(record: bytes, at: int, end: int) -> Iterator[Part]:
    """The fields of a message, of any kind; raises `OddError`."""
    while at < end:
        begin = at
        tag, at = read_varint(record, at, end)
        size, stop = size_of(tag & 7, record, at, end)
        # A varint's field begins where it is read, and all others behind their length.
        start = at if tag & 7 == 0 else stop
        stop = stop if tag & 7 == 0 else stop + size
        if stop > end or tag & 7 in (3, 4):
            raise OddError
        yield Part(tag, start, stop, begin)
        at = stop


def bits_of(length: int, slots: Sequence[Slot]) -> Bytes:
    """Of every byte the bits that must be the same: of a whole number those that say where it ends."""
    bits = np.full(length, 0xFF, np.uint8)
    for slot in slots:
        bits[slot.start : slot.stop] = 0x80 if slot.kind is Kind.WHOLE else 0
    return bits


def other(known: bytes, kind: Kind, number: int, turn: int) -> bytes:
    """As many bytes for a slot, of another number: of a few slots and turns no two are alike."""
    size = len(known)
    match kind:
        case Kind.FIXED:
            return _NUMBER.pack(EARLIEST + (number << 32) + turn + 1)
        case Kind.DOUBLE:
            return _REAL.pack(number + 0.5)
        case Kind.WHOLE:
            low = number << 1 | turn
            return bytes(byte & 0x80 | low >> 7 * place & 0x7F for place, byte in enumerate(known))
        case Kind.PACKED:
            return (_NUMBER.pack(number << 8 | turn) * (size // 8 + 1))[:size]
        case Kind.TEXT:
            return (b"%d%c" % (number, 97 + turn) * size)[:size]
        case _:
            assert_never(kind)
