"""Metrics requests of a shape that came before: the numbers are cut out of the bytes, nothing is parsed.

Theory. A trainer that exports through an OpenTelemetry SDK sends the same gauges and sums of the same
subjects every second, for hours. The SDK writes them in the same order, and a time and a value take eight
bytes whatever they are. So two requests of one shape are equal byte for byte, but for their numbers: all
names and attributes, and every length before them, are where they were, and mean what they meant.

A shape is learned from one request (`learn`):

1. Its points are found on the wire. Each has to be written plainly (`points.unpacked`), with nothing behind
   its numbers that could take their place. A request with a histogram, with a point of another form, or with
   a value in another unit than its row's has no shape.
2. Each value is replaced by its point's place (0, 1, 2, ...), and the general path (`points.decode_points`)
   reads that. What it finds shows where each value goes: a column that holds 3, 1, 2 is made of the values 3,
   1 and 2 of any request of this shape. So the general path decides what a request means, nothing here does.
3. All other bytes are kept, with a mask that is zero at the numbers.

A request is read (`Shape.read`) if it has the length of a shape and agrees with it in all bytes that are not
masked: one comparison at the speed of memory. Then its numbers are gathered by one index a column. For some
numbers the general path does something else: it rejects times that cannot be and sums that fall though they
only rise, it adds events for values that are not finite, and it puts points of one time together. A request
with such a number is left to it, and so is one in which points share a time that did not, or no longer do.

Why it stays beside the general path: reading alone it is fifty times as fast, and a whole collector, with its
journal and its fold, lands three times as many points and more for each second of CPU (`make bench-doors`).
`tests/overwatch/otlp/test_shapes.py` and `test_fuzz_streams.py` read everything in both ways.

Rules: a shape reads exactly what the general path would, or nothing. To learn one costs as much as some
parsing, so it is tried where a length came a few times, and ever more seldom where it is in vain; whoever
waits for an answer does not learn. Bounded in memory: the length that was not seen for longest is evicted
first. Safe from any thread. Must not know who sent a request, or what a name means.
"""

import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.events import Column, Measured, Origin, Record
from overwatch.otlp.points import decode_points, is_only_attributes, unpacked
from overwatch.otlp.protobuf import read_varint, size_of
from overwatch.otlp.result import EARLIEST, LATEST, Decoded, Point, Series

LEAST_BYTES: Final = 1024
"""Smaller requests are read as fast by the general path."""
MOST_BYTES: Final = 32 << 20
"""Memory of all shapes."""
LEARN_AT: Final = 3
"""How often a length must have come."""
MORE_SELDOM: Final = 4
"""How many times as many must come before the next try."""
MOST_LENGTHS: Final = 1024
MOST_OF_ONE: Final = 4
"""Shapes of one length: clients of one fleet send as many bytes under different names."""
MAX_POINTS: Final = 1 << 18
"""Points of the largest request that is read so."""
WIDTH: Final = 8
"""Bytes of a number."""
_PIECE: Final = 32 << 10
"""Bytes that are compared at once: they stay in the processor's cache."""
_INNER: Final = (
    {0x0A: 1},  # resource_metrics of a request
    {0x12: 2},  # scope_metrics
    {0x12: 3},  # metrics
    {0x2A: 4, 0x3A: 4},  # gauge, sum
    {0x0A: 5},  # data_points
)
"""By level and tag: the level of the message inside."""
_METRIC, _POINT = 3, 5
_OTHER_DATA: Final = frozenset({0x4A, 0x52, 0x5A})
"""Tags of a metric's histogram, exponential histogram and summary."""
_START, _INT = 0x11, 0x31

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Places: TypeAlias = npt.NDArray[np.intp]
_Values: TypeAlias = npt.NDArray[np.float64]
_Number = TypeVar("_Number", np.uint64, np.int64, np.float64)


class Slot(NamedTuple):
    """Where one point's eight-byte numbers begin."""

    start: int | None
    """`None` where the point has no start."""
    time: int
    value: int
    is_int: bool


class _Odd(Exception):  # noqa: N818 an answer, not a failure
    """A request that has no shape."""


def slots_of(body: bytes) -> list[Slot] | None:
    """The points of a metrics request, in their order on the wire; `None` where it has no shape."""
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
        tag, at = read_varint(body, at, end)
        size, start = size_of(tag & 7, body, at, end)
        at = start + size
        if at > end or (level == _METRIC and tag in _OTHER_DATA):
            raise _Odd
        if tag in inner:
            yield from _within(body, start, at, inner[tag])


def _slot(body: bytes, start: int, stop: int) -> Slot:
    plain = unpacked(body[start:stop])
    if plain is None or not is_only_attributes(plain[-1]):
        raise _Odd
    value = stop - len(plain[-1]) - WIDTH
    began = start + 1 if body[start] == _START else None
    return Slot(began, value - 1 - WIDTH, value, body[value - 1] == _INT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """The numbers of one request, a place a point."""

    starts: npt.NDArray[np.uint64]
    times: npt.NDArray[np.uint64]
    values: _Values

    @property
    def is_plain(self) -> bool:
        """Whether none of them changes what the general path does."""
        return self.is_timely and bool(np.isfinite(self.values).all())

    @property
    def is_timely(self) -> bool:
        """Whether no time is a reason to refuse its point."""
        times = self.times
        return bool(times.min() >= EARLIEST and times.max() <= LATEST and not (self.starts > times).any())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where the numbers lie in a request."""

    starts: _Places
    has_start: _Places
    """Places of the points that have one."""
    times: _Places
    values: _Places
    ints: _Places
    """Places of the points whose value is a whole number."""

    @classmethod
    def of(cls, slots: Sequence[Slot]) -> "_Layout":
        """Return the layout of these slots."""
        started = [(place, slot.start) for place, slot in enumerate(slots) if slot.start is not None]
        return cls(
            starts=_places([start for _, start in started]),
            has_start=_places([place for place, _ in started]),
            times=_places([slot.time for slot in slots]),
            values=_places([slot.value for slot in slots]),
            ints=_places([place for place, slot in enumerate(slots) if slot.is_int]),
        )

    def numbers(self, body: bytes) -> _Numbers:
        """The numbers of a request."""
        starts = np.zeros(len(self.times), np.uint64)
        starts[self.has_start] = _at(body, self.starts, np.uint64)
        values = _at(body, self.values, np.float64)
        if len(self.ints):
            values[self.ints] = _at(body, self.values[self.ints], np.int64)
        return _Numbers(starts=starts, times=_at(body, self.times, np.uint64), values=values)

    def mask(self, length: int) -> _Bytes:
        """Of every byte whether it must be the same: all ones where it must, zero in a number."""
        mask = np.full(length, 0xFF, np.uint8)
        for where in (self.starts, self.times, self.values):
            mask[where[:, None] + np.arange(WIDTH)] = 0
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """A measurement, with places instead of numbers."""

    origin: Origin
    moment: int
    """Which of the request's times it is of."""
    event: Measured
    """What is the same in every request."""
    places: dict[str, _Places]
    """By name: whose values are in its column."""

    def record(self, at: int, values: _Values) -> Record:
        """The measurement with these numbers."""
        columns = dict(self.event.values)
        for name, places in self.places.items():
            columns[name] = Column(dtype="<f8", data=values[places].tobytes())
        event = Measured(at=at, scope=self.event.scope, keys=self.event.keys, values=columns)
        return Record(origin=self.origin, event=event)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """What requests of one shape have in common, and what they hold."""

    mask: _Bytes
    fixed: _Bytes
    """The bytes that must be the same, zero in a number."""
    layout: _Layout
    moments: _Places
    """Of every point, which of the request's times it is of."""
    firsts: _Places
    """Of every one of these times the first point."""
    stated: Decoded
    """As the general path reads it, with places instead of numbers."""
    columns: tuple[_Columns, ...]
    rising: _Places
    """Points that must not be negative."""

    @property
    def length(self) -> int:
        """Bytes of a request."""
        return len(self.mask)

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""
        return 2 * self.length + 96 * len(self.moments)

    def fits(self, body: bytes) -> bool:
        """Whether a request is of this shape."""
        if len(body) != self.length:
            return False
        came, scratch = np.frombuffer(body, np.uint8), np.empty(_PIECE, np.uint8)
        for start in range(0, self.length, _PIECE):
            here = slice(start, start + _PIECE)
            masked = np.bitwise_and(came[here], self.mask[here], out=scratch[: self.length - start])
            if masked.tobytes() != self.fixed[here].tobytes():
                return False
        return True

    def read(self, body: bytes) -> Decoded | None:
        """What a request holds; `None` where it is of no such shape, or its numbers need the general path."""
        if not self.fits(body):
            return None
        numbers = self.layout.numbers(body)
        times = numbers.times[self.firsts]
        if not numbers.is_plain or len(set(times.tolist())) < len(times):
            return None
        if not np.array_equal(times[self.moments], numbers.times):
            return None
        if self.stated.series is not None:
            return self._series(self.stated.series, numbers)
        records = tuple(one.record(int(times[one.moment]), numbers.values) for one in self.columns)
        return msgspec.structs.replace(self.stated, records=records)

    def _series(self, series: Series, numbers: _Numbers) -> Decoded | None:
        """What is to be settled, with a request's numbers."""
        if (numbers.values[self.rising] < 0).any():
            return None
        values, times, starts = numbers.values.tolist(), numbers.times.tolist(), numbers.starts.tolist()
        points = []
        for point in series.points:
            place = _place(point)
            points.append(Point(point.of, starts[place], times[place], values[place]))
        moments = series.moments.placed(values, times)
        return msgspec.structs.replace(self.stated, series=Series(moments=moments, points=tuple(points)))


def learn(body: bytes) -> Shape | None:
    """The shape of a request that the general path can read; `None` where it has none."""
    slots = slots_of(body)
    if not slots or len(slots) > MAX_POINTS:
        return None
    layout = _Layout.of(slots)
    numbers = layout.numbers(body)
    if not numbers.is_timely:
        return None
    _, firsts, moments = np.unique(numbers.times, return_index=True, return_inverse=True)
    stated = decode_points(_with_places(body, slots))
    columns = None if stated.is_scaled else _columns(stated, moments)
    if columns is None:
        return None
    points, mask = () if stated.series is None else stated.series.points, layout.mask(len(body))
    return Shape(
        mask=mask,
        fixed=np.frombuffer(body, np.uint8) & mask,
        layout=layout,
        moments=moments.ravel(),
        firsts=firsts,
        stated=stated,
        columns=columns,
        rising=_places([_place(point) for point in points if point.of.rises]),
    )


def _place(point: Point) -> int:
    if not isinstance(point.value, float):
        raise TypeError(f"a point of {point.of.row.name} holds a distribution, which has no place")
    return int(point.value)


def _with_places(body: bytes, slots: Sequence[Slot]) -> bytes:
    """A request with every value replaced by its point's place."""
    made = bytearray(body)
    for place, slot in enumerate(slots):
        struct.pack_into("<q" if slot.is_int else "<d", made, slot.value, place)
    return bytes(made)


def _columns(stated: Decoded, moments: _Places) -> tuple[_Columns, ...] | None:
    """The measurements of a request that holds places; `None` where it holds anything else."""
    found: list[_Columns] = []
    for record in stated.records:
        event = record.event
        if not isinstance(event, Measured):
            return None
        numbers = {name: one.array() for name, one in event.values.items() if one.labels is None}
        places = {name: one.astype(np.intp) for name, one in numbers.items()}
        some = int(next(iter(places.values()))[0])
        found.append(_Columns(origin=record.origin, moment=int(moments[some]), event=event, places=places))
    return tuple(found)


def _places(numbers: Sequence[int]) -> _Places:
    return np.array(numbers, dtype=np.intp)


def _at(body: bytes, where: _Places, kind: type[_Number]) -> npt.NDArray[_Number]:
    """The eight-byte numbers that begin at these bytes."""
    dtype = np.dtype(kind).newbyteorder("<")
    every = np.ndarray((len(body) - WIDTH + 1,), dtype, body, strides=(1,))
    return every[where].astype(kind, copy=False)


@dataclass(slots=True)
class _Length:
    """What is known of one length."""

    strange: int = 0
    """How many requests came of a shape that is not known."""
    due: int = LEARN_AT
    """At how many of them a shape is learned."""
    shapes: tuple[Shape, ...] = ()
    """The one that fitted last is the first."""


class Shapes:
    """The shapes that came, by length."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._lengths: OrderedDict[int, _Length] = OrderedDict()
        self._bytes = 0
        self.learned = 0
        """Shapes learned so far."""

    def read(self, body: bytes) -> Decoded | None:
        """What a request holds, where its shape is known; else `None`."""
        for shape in self._of(len(body)):
            stated = shape.read(body)
            if stated is not None:
                self._put_first(shape)
                return stated
        return None

    def study(self, body: bytes) -> None:
        """Take note of a request that `read` could not read; learn its shape when that pays."""
        if len(body) < LEAST_BYTES or any(shape.fits(body) for shape in self._of(len(body))):
            return
        made = learn(body) if self._is_due(len(body)) else None
        if made is not None and made.cost <= self._most:
            self._keep(made)

    def _of(self, length: int) -> tuple[Shape, ...]:
        known = self._lengths.get(length)
        return () if known is None else known.shapes

    def _put_first(self, shape: Shape) -> None:
        with self._lock:
            known = self._lengths.get(shape.length)
            if known is not None and shape in known.shapes:
                self._lengths.move_to_end(shape.length)
                known.shapes = (shape, *(other for other in known.shapes if other is not shape))

    def _is_due(self, length: int) -> bool:
        with self._lock:
            known = self._known(length)
            known.strange += 1
            if known.strange < known.due:
                return False
            known.due = known.strange * MORE_SELDOM
            return True

    def _keep(self, shape: Shape) -> None:
        with self._lock:
            self.learned += 1
            known = self._known(shape.length)
            shapes = shape, *known.shapes
            known.shapes = shapes[:MOST_OF_ONE]
            self._bytes += shape.cost - sum(gone.cost for gone in shapes[MOST_OF_ONE:])
            while self._bytes > self._most:
                self._forget()

    def _known(self, length: int) -> _Length:
        known = self._lengths.setdefault(length, _Length())
        self._lengths.move_to_end(length)
        if len(self._lengths) > MOST_LENGTHS:
            self._forget()
        return known

    def _forget(self) -> None:
        """Let go of the length that was not seen for longest."""
        _, gone = self._lengths.popitem(last=False)
        self._bytes -= sum(shape.cost for shape in gone.shapes)
