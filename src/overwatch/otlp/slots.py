"""Where the numbers of a metrics request lie on the wire: found once, so that later requests need no parser.

Rules: only what has a fixed width is a slot: the times and the value of a point of a gauge or a sum. A body
with anything that could not be told by slots alone has none. Must not know what a number means.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from overwatch.otlp.elements import size_of
from overwatch.otlp.varint import read_varint

_FIXED64: Final = 1
_BYTES: Final = 2
_POINTS: Final = 0x0A
"""Tag of a data point within a gauge or a sum."""
_INNER: Final = {
    0: {0x0A: 1},  # resource_metrics of a request
    1: {0x12: 2},  # scope_metrics
    2: {0x12: 3},  # metrics
    3: {0x2A: 4, 0x3A: 4},  # gauge, sum
    4: {_POINTS: 5},
}
"""By level and tag: the level of the message inside."""
_METRIC, _DATA, _POINT = 3, 4, 5
_OTHER_DATA: Final = frozenset({0x4A, 0x52, 0x5A})
"""Tags of a metric's histogram, exponential histogram and summary."""
_START: Final = 2 << 3 | _FIXED64
_TIME: Final = 3 << 3 | _FIXED64
_DOUBLE: Final = 4 << 3 | _FIXED64
_INT: Final = 6 << 3 | _FIXED64
WIDTH: Final = 8
"""Bytes of a number."""


class Slot(NamedTuple):
    """Where one point's eight-byte numbers begin."""

    start: int | None
    """`None` where the point has no start."""
    time: int
    value: int
    is_int: bool


class _Odd(Exception):  # noqa: N818 an answer, not a failure
    """A body that slots cannot tell."""


def slots_of(body: bytes) -> list[Slot] | None:
    """The points of a metrics request, in their order on the wire; `None` where slots cannot tell them."""
    try:
        return list(_within(body, 0, len(body), 0))
    except _Odd:
        return None


def _within(body: bytes, at: int, end: int, level: int) -> Iterator[Slot]:
    if level == _POINT:
        yield _slot(body, at, end)
        return
    inner = _INNER[level]
    while at < end:
        tag, start, stop = _field(body, at, end)
        if level == _METRIC and tag in _OTHER_DATA:
            raise _Odd
        if tag in inner:
            yield from _within(body, start, stop, inner[tag])
        at = stop


def _slot(body: bytes, at: int, end: int) -> Slot:
    found: dict[int, int] = {}
    while at < end:
        tag, start, stop = _field(body, at, end)
        if tag in (_START, _TIME, _DOUBLE, _INT):
            if tag in found:
                raise _Odd
            found[tag] = start
        at = stop
    values = [tag for tag in (_DOUBLE, _INT) if tag in found]
    if _TIME not in found or len(values) != 1:
        raise _Odd
    (kind,) = values
    return Slot(found.get(_START), found[_TIME], found[kind], kind == _INT)


def _field(body: bytes, at: int, end: int) -> tuple[int, int, int]:
    """A field's tag, and where what it holds begins and ends."""
    tag, at = read_varint(body, at, end)
    size, at = size_of(tag & 7, body, at, end)
    if at + size > end:
        raise _Odd
    return tag, at, at + size
