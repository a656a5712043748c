"""Metrics requests of any shape in one pass over their bytes: attributes that came before are not read again.

A fleet's points come in another order, or other ones of them, and still have the same attributes. Of a gauge
or a sum whose points are written plainly (times and value first, the rest behind) only the numbers are read;
what the rest of its bytes means is remembered by those bytes. Any other metric goes the general way, alone.

Rules: gives exactly what the general path would, or nothing. Bounded in memory; safe from any thread, as
what is remembered is never changed. Must not know what a request tells beyond its points.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from overwatch.otlp.frames import OddError, fields_of, size_at
from overwatch.otlp.origin import Resource, resource_of
from overwatch.otlp.points import (
    Gathering,
    Lost,
    Outcome,
    SeriesKey,
    outcome_of,
    series_of,
)
from overwatch.otlp.result import Decoded, RejectedError, Rest
from overwatch.otlp.series import Point
from overwatch.otlp.times import EARLIEST, LATEST

MOST_BYTES: Final = 32 << 20
"""Memory of what is remembered, about; beyond it all is forgotten."""
_SET_COST: Final = 256
"""Bytes that a remembered set takes beside its own."""
LONGEST_SET: Final = 1 << 10
"""Bytes of the longest attribute set that is remembered."""
_FIRST, _SECOND, _SCHEMA, _GAUGE, _SUM, _POINT = 0x0A, 0x12, 0x1A, 0x2A, 0x3A, 0x0A
_START, _TIME, _DOUBLE, _INT = 0x11, 0x19, 0x21, 0x31
_TEMPORALITY, _RISES = 0x10, 0x18
_AS_DOUBLE: Final = struct.Struct("<BQBd")
_STARTED: Final = struct.Struct("<BQBQBd")
_AS_INT: Final = struct.Struct("<q")
_TIMES: Final = struct.pack("<BQBQ", _START, 1, _TIME, 1)
_STRETCH: Final = 16
"""Attribute sets between two rests."""

_Of = TypeVar("_Of")
_Metric: TypeAlias = tuple[bytes, bytes, bytes, int]
"""Bytes of a resource, and of what a metric is beside its points, before, behind and by its tag."""


class _Part(NamedTuple):
    """A metric in a request."""

    resource: bytes
    start: int
    stop: int


class _Points(NamedTuple):
    """What a metric is beside its points, and where these begin and end."""

    head: bytes
    tail: bytes
    """Of a sum: how it counts."""
    tag: int
    begin: int
    end: int


class OnePass:
    """Reads metrics requests; remembers attributes."""

    def __init__(self) -> None:
        self._gauges: dict[_Metric, dict[bytes, Outcome]] = {}
        self._sums: dict[_Metric, dict[bytes, SeriesKey | Lost]] = {}
        """By the bytes behind a point's numbers: whom it speaks of."""
        self._bytes = 0

    def read(self, body: bytes, rest: Rest = None) -> Decoded | None:
        """As `decode` reads it; `None` where the request is not written plainly, or is none.

        Who is in no hurry calls `rest` between attributes that did not come before.
        """
        gathering = Gathering()
        resources: dict[bytes, Resource] = {}
        try:
            for part in _metrics(body):
                resource = resources.get(part.resource)
                if resource is None:
                    resource = resource_of(ResourceMessage.FromString(part.resource))
                    resources[part.resource] = resource
                if resource.origin.ours or not self._add(gathering, _Asked(resource, rest), body, part):
                    gathering.take(resource, Metric.FromString(body[part.start : part.stop]))
        except (OddError, DecodeError):
            return None
        return gathering.result()

    def _add(self, gathering: Gathering, asked: "_Asked", body: bytes, part: _Part) -> bool:
        """Gather a metric whose points are written plainly; `False` without a trace for any other."""
        try:
            points = _points_of(body, part.start, part.stop)
            if points.tag == _GAUGE:
                gauge = self._told(self._gauges, _Whose(asked, part, points, outcome_of), body)
                gathering.take_gauge(gauge)
            else:
                told = self._told(self._sums, _Whose(asked, part, points, series_of), body)
                gathering.take_series([_counted(*each) for each in told])
        except (OddError, RejectedError, IndexError, struct.error):
            return False
        return True

    def _told(
        self, known: dict[_Metric, dict[bytes, _Of]], whose: "_Whose[_Of]", body: bytes
    ) -> list[tuple[_Of, int, int, float]]:
        """Of whom each point is, its start and time in Unix nanoseconds, its value; raises as `_read`."""
        sets = known.get(whose.metric)
        is_new = sets is None
        if sets is None:
            whose.check()
            sets = {}
        before = len(sets)
        told = _read(body, sets, whose)
        if is_new or len(sets) > before:
            self._remember(known, whose.metric, sets, whose.cost)
        return told

    def _remember(
        self, known: dict[_Metric, dict[bytes, _Of]], metric: _Metric, sets: dict[bytes, _Of], cost: int
    ) -> None:
        if metric not in known:
            cost += sum(map(len, metric[:-1])) + _SET_COST
        self._bytes += cost
        if self._bytes > MOST_BYTES:
            # With what was remembered last: it may be all of it, of one metric.
            self._gauges.clear()
            self._sums.clear()
            self._bytes = 0
            return
        known[metric] = sets


class _Asked(NamedTuple):
    """Whose points are read, and who goes first meanwhile."""

    resource: Resource
    rest: Rest


class _Whose(Generic[_Of]):
    """What attributes mean, of points of one metric."""

    def __init__(
        self,
        asked: _Asked,
        part: _Part,
        points: _Points,
        meant: Callable[[Resource, Metric, NumberDataPoint], _Of],
    ) -> None:
        self._asked = asked
        self._times = 0
        self._meant = meant
        self._told: Metric | None = None
        self.points = points
        self.metric: _Metric = (part.resource, points.head, points.tail, points.tag)
        self.cost = 0
        """Bytes that it takes to remember what was asked."""

    def check(self) -> Metric:
        """What the metric is beside its points; raises `OddError` where it has others."""
        if self._told is None:
            self._told = Metric.FromString(self.points.head)
            if self._told.WhichOneof("data") is not None:
                raise OddError
            if self.points.tag == _SUM:
                self._told.sum.MergeFromString(self.points.tail)
                self._told.sum.SetInParent()
        return self._told

    def outcome(self, rest: bytes) -> _Of:
        """Whom a point with these bytes behind its numbers speaks of; raises `RejectedError`, `OddError`."""
        self._times += 1
        if self._asked.rest is not None and not self._times % _STRETCH:
            self._asked.rest()
        point = NumberDataPoint.FromString(rest)
        is_plain = not point.flags and not point.time_unix_nano and not point.start_time_unix_nano
        # A time of 0 that is written out takes the place of the one before it.
        timed = NumberDataPoint.FromString(_TIMES + rest)
        is_plain &= bool(timed.time_unix_nano and timed.start_time_unix_nano)
        if not is_plain or point.WhichOneof("value") is not None:
            raise OddError
        self.cost += len(rest) + _SET_COST
        return self._meant(self._asked.resource, self.check(), point)


def _counted(whose: SeriesKey | Lost, start: int, at: int, value: float) -> Point | Lost:
    """A point of a sum; raises `RejectedError`."""
    return whose if isinstance(whose, Lost) else whose.point(start, at, value)


def _read(body: bytes, sets: dict[bytes, _Of], whose: _Whose[_Of]) -> list[tuple[_Of, int, int, float]]:
    """The points of a metric; raises `OddError` and others where one is not written plainly."""
    told: list[tuple[_Of, int, int, float]] = []
    at, end = whose.points.begin, whose.points.end
    while at < end:
        if body[at] != _POINT:
            raise OddError
        size, at = body[at + 1], at + 2
        if size > 0x7F:
            size, at = size_at(body, at - 1, end)
        stop = at + size
        if body[at] == _START:
            _, start, time_tag, time, tag, value = _STARTED.unpack_from(body, at)
            at += _STARTED.size
        else:
            start = 0
            time_tag, time, tag, value = _AS_DOUBLE.unpack_from(body, at)
            at += _AS_DOUBLE.size
        if tag == _INT:
            value = float(_AS_INT.unpack_from(body, at - _AS_INT.size)[0])
        elif tag != _DOUBLE:
            raise OddError
        if time_tag != _TIME or at > stop or stop > end or not EARLIEST <= time <= LATEST:
            raise OddError
        rest = body[at:stop]
        whom = sets.get(rest)
        if whom is None:
            whom = whose.outcome(rest)
            if len(rest) <= LONGEST_SET:
                sets[rest] = whom
        told.append((whom, start, time, value))
        at = stop
    return told


def _points_of(body: bytes, start: int, stop: int) -> _Points:
    """Where the points of a gauge or a sum are; raises `OddError`."""
    head, found = b"", None
    at = start
    for tag, begin, end in fields_of(body, start, stop):
        if tag in {_GAUGE, _SUM}:
            if found is not None:
                raise OddError
            found = tag, begin, end
        else:
            head += body[at:end]
        at = end
    if found is None:
        raise OddError
    tag, begin, end = found
    tail = end if tag == _GAUGE else _tail(body, begin, end)
    return _Points(head, body[tail:end], tag, begin, tail)


def _tail(body: bytes, begin: int, end: int) -> int:
    """Where what a sum is beside its points begins, as all write it who write points first.

    A guess: who is wrong about it finds no point where one should be.
    """
    if end - begin >= 4 and body[end - 4] == _TEMPORALITY and body[end - 2] == _RISES:
        return end - 4
    if end - begin >= 2 and body[end - 2] in {_TEMPORALITY, _RISES}:
        return end - 2
    return end


def _metrics(body: bytes) -> Iterator[_Part]:
    """The metrics of a request; raises `OddError`."""
    for tag, start, stop in fields_of(body, 0, len(body)):
        if tag != _FIRST:
            raise OddError
        resource = b""
        for place, (inner, begin, end) in enumerate(fields_of(body, start, stop)):
            if inner == _FIRST and not place:
                resource = body[begin:end]
            elif inner == _SECOND:
                yield from _of_scope(body, begin, end, resource)
            elif inner != _SCHEMA or not body[begin:end].isascii():
                raise OddError
        ResourceMessage.FromString(resource)


def _of_scope(body: bytes, start: int, stop: int, resource: bytes) -> Iterator[_Part]:
    for place, (tag, begin, end) in enumerate(fields_of(body, start, stop)):
        if tag == _FIRST and not place:
            InstrumentationScope.FromString(body[begin:end])
        elif tag == _SECOND:
            yield _Part(resource, begin, end)
        elif tag != _SCHEMA or not body[begin:end].isascii():
            raise OddError
