"""A metrics request read by its likeness to an earlier one: same bytes but for its numbers, same meaning.

One client sends one shape for hours. Of a body that the general path has read, a template keeps what every
byte must be, where the numbers lie, and where each of them goes: found by letting the general path read the
same body with every value replaced by its own place.

Rules: a template says exactly what the general path would, or nothing: any other byte, a number that is not
finite, a time that is none, points that were told at once and no longer are, are left to the general path.
Must not know who sent a body.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.events import Column, Measured, Origin, Record
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.mask import Bytes, Mask
from overwatch.otlp.result import Decoded
from overwatch.otlp.series import Point, Series
from overwatch.otlp.slots import WIDTH, Slot, slots_of
from overwatch.otlp.times import EARLIEST, LATEST

MAX_POINTS: Final = 1 << 18
"""Points of the largest body that is read so; more are no shape that repeats."""

_Places: TypeAlias = npt.NDArray[np.intp]
_Times: TypeAlias = npt.NDArray[np.uint64]
_Values: TypeAlias = npt.NDArray[np.float64]
_Number = TypeVar("_Number", np.uint64, np.int64, np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """The numbers of one body, a place a point."""

    starts: _Times
    times: _Times
    values: _Values

    @property
    def plain(self) -> bool:
        """Whether none of them changes what the general path does."""
        return self.timely and bool(np.isfinite(self.values).all())

    @property
    def timely(self) -> bool:
        """Whether no time is a reason to refuse its point."""
        times = self.times
        return bool(times.min() >= EARLIEST and times.max() <= LATEST and not (self.starts > times).any())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where the numbers lie in a body."""

    starts: _Places
    has_start: _Places
    """Places of the points that have one."""
    times: _Places
    values: _Places
    ints: _Places
    """Places of the points whose value is a whole number."""

    @classmethod
    def of(cls, slots: Sequence[Slot]) -> "_Layout":
        started = [(place, slot.start) for place, slot in enumerate(slots) if slot.start is not None]
        return cls(
            starts=_places([start for _, start in started]),
            has_start=_places([place for place, _ in started]),
            times=_places([slot.time for slot in slots]),
            values=_places([slot.value for slot in slots]),
            ints=_places([place for place, slot in enumerate(slots) if slot.is_int]),
        )

    def numbers(self, body: bytes) -> _Numbers:
        """The numbers of a body."""
        starts = np.zeros(len(self.times), np.uint64)
        starts[self.has_start] = _at(body, self.starts, np.uint64)
        values = _at(body, self.values, np.float64)
        if len(self.ints):
            values[self.ints] = _at(body, self.values[self.ints], np.int64)
        return _Numbers(starts=starts, times=_at(body, self.times, np.uint64), values=values)

    def mask(self, length: int) -> Bytes:
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
class Template:
    """What bodies of one shape say."""

    length: int
    mask: Mask
    """Everything but the numbers."""
    layout: _Layout
    moments: _Places
    """Of every point, which of the request's times it is of."""
    firsts: _Places
    """Of every one of these times the first point."""
    said: Decoded
    """As the general path says it, with places instead of numbers."""
    columns: tuple[_Columns, ...]
    rising: _Places
    """Points that must not be negative."""

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""
        return 2 * self.length + 96 * len(self.moments)

    def fits(self, body: bytes) -> bool:
        """Whether a body is of this shape."""
        return self.mask.fits(np.frombuffer(body, np.uint8))

    def read(self, body: bytes) -> Decoded | None:
        """What a body says; `None` where it is not of this shape, or its numbers need the general path."""
        if not self.fits(body):
            return None
        numbers = self.layout.numbers(body)
        times = numbers.times[self.firsts]
        if not numbers.plain or len(set(times.tolist())) < len(times):
            return None
        if not np.array_equal(times[self.moments], numbers.times):
            return None
        if self.said.series is not None:
            return self._series(self.said.series, numbers)
        records = tuple(one.record(int(times[one.moment]), numbers.values) for one in self.columns)
        return msgspec.structs.replace(self.said, records=records)

    def _series(self, series: Series, numbers: _Numbers) -> Decoded | None:
        """What is to be settled, with a body's numbers."""
        if (numbers.values[self.rising] < 0).any():
            return None
        values, times, starts = numbers.values.tolist(), numbers.times.tolist(), numbers.starts.tolist()
        points = tuple(_point(point, values, times, starts) for point in series.points)
        moments = series.moments.placed(values, times)
        return msgspec.structs.replace(self.said, series=Series(moments=moments, points=points))


def _point(point: Point, values: list[float], times: list[int], starts: list[int]) -> Point:
    place = _place(point)
    position = point.position._replace(at=times[place], start=starts[place])
    return msgspec.structs.replace(point, value=values[place], position=position)


def _place(point: Point) -> int:
    if not isinstance(point.value, float):
        raise TypeError(f"a point of {point.row.name} holds a distribution, which has no place")
    return int(point.value)


def learn(body: bytes) -> Template | None:
    """The template of a metrics body that the general path can read; `None` where it cannot be told so."""
    slots = slots_of(body)
    if not slots or len(slots) > MAX_POINTS:
        return None
    layout = _Layout.of(slots)
    numbers = layout.numbers(body)
    if not numbers.timely:
        return None
    _, firsts, moments = np.unique(numbers.times, return_index=True, return_inverse=True)
    said = decode(Signal.METRICS, _with_places(body, slots))
    columns = _columns(said, moments)
    if columns is None:
        return None
    points = () if said.series is None else said.series.points
    return Template(
        length=len(body),
        mask=Mask.of(body, layout.mask(len(body))),
        layout=layout,
        moments=moments.ravel(),
        firsts=firsts,
        said=said,
        columns=columns,
        rising=_places([_place(point) for point in points if point.rises]),
    )


def _with_places(body: bytes, slots: Sequence[Slot]) -> bytes:
    """A body with every value replaced by its point's place."""
    made = bytearray(body)
    for place, slot in enumerate(slots):
        struct.pack_into("<q" if slot.is_int else "<d", made, slot.value, place)
    return bytes(made)


def _columns(said: Decoded, moments: _Places) -> tuple[_Columns, ...] | None:
    """The measurements of a body that holds places; `None` where it tells anything else, or ends a value."""
    if said.series is not None and said.series.moments.ends:
        return None
    found: list[_Columns] = []
    for record in said.records:
        event = record.event
        if not isinstance(event, Measured):
            return None
        numbers = {name: one.array() for name, one in event.values.items() if one.labels is None}
        if not all(len(one) and np.isfinite(one).all() for one in numbers.values()):
            return None
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
