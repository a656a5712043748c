"""Where the numbers of a log record lie on the wire, and what each of them is called.

Rules: times, whole numbers, doubles and packed columns are slots; a whole number keeps its width, as the
lengths around it would change with another one. A name that is given twice, or a part that is not written in
the one plain way, has no slot or makes the record one that slots cannot tell. Must not know what a number
means.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from overwatch.otlp.elements import size_of
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
_INT, _DOUBLE, _LIST, _BYTES = 0x18, 0x21, 0x32, 0x3A
_PAIR: Final = 0x0A
_DEEPEST: Final = 6


class Kind(Enum):
    """How a number is written."""

    FIXED = auto()
    """Eight bytes, a whole number."""
    WHOLE = auto()
    """A varint."""
    DOUBLE = auto()
    PACKED = auto()
    """Bytes of any length."""


class Slot(NamedTuple):
    """One number, or one packed column."""

    path: Path
    kind: Kind
    start: int
    stop: int


class _Odd(Exception):  # noqa: N818 an answer, not a failure
    """A record that slots cannot tell."""


class _Part(NamedTuple):
    """A field: its tag, and where what it holds begins and ends."""

    tag: int
    start: int
    stop: int


def slots_of(record: bytes) -> list[Slot] | None:
    """The slots of a log record, in their order on the wire; `None` where slots cannot tell it."""
    try:
        found = list(_of_record(record))
    except _Odd:
        return None
    paths = [slot.path for slot in found]
    return found if len(set(paths)) == len(paths) and TIME in paths else None


def _of_record(record: bytes) -> Iterator[Slot]:
    bodies = 0
    for tag, start, stop in _parts(record, 0, len(record)):
        if tag in (_TIME, _OBSERVED):
            yield Slot(TIME if tag == _TIME else OBSERVED, Kind.FIXED, start, stop)
        elif tag == _ATTRIBUTE:
            yield from _of_pair(record, start, stop, (ATTRIBUTE,))
        elif tag == _BODY:
            # Bodies that come twice are merged, which no slot could tell.
            bodies += 1
            if bodies > 1:
                raise _Odd
            yield from _of_value(record, start, stop, (BODY,))


def _of_pair(record: bytes, at: int, end: int, path: Path) -> Iterator[Slot]:
    """The slots within a key and its value."""
    parts = list(_parts(record, at, end))
    if [part.tag for part in parts] != [_KEY, _VALUE]:
        return
    key, value = parts
    try:
        name = record[key.start : key.stop].decode()
    except UnicodeDecodeError:
        raise _Odd from None
    yield from _of_value(record, value.start, value.stop, (*path, name))


def _of_value(record: bytes, at: int, end: int, path: Path) -> Iterator[Slot]:
    if len(path) > _DEEPEST:
        return
    parts = list(_parts(record, at, end))
    if len(parts) != 1:
        return
    ((tag, start, stop),) = parts
    if tag == _INT and stop - start <= LONGEST:
        yield Slot(path, Kind.WHOLE, start, stop)
    elif tag == _DOUBLE:
        yield Slot(path, Kind.DOUBLE, start, stop)
    elif tag == _BYTES:
        yield Slot(path, Kind.PACKED, start, stop)
    elif tag == _LIST:
        for pair in _parts(record, start, stop):
            if pair.tag == _PAIR:
                yield from _of_pair(record, pair.start, pair.stop, path)


def _parts(record: bytes, at: int, end: int) -> Iterator[_Part]:
    while at < end:
        tag, at = read_varint(record, at, end)
        size, stop = size_of(tag & 7, record, at, end)
        # A varint's field begins where it is read, and all others behind their length.
        start = at if tag & 7 == 0 else stop
        stop = stop if tag & 7 == 0 else stop + size
        if stop > end or tag & 7 in (3, 4):
            raise _Odd
        yield _Part(tag, start, stop)
        at = stop
