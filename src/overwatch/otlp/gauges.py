"""Metrics requests of any shape in one pass over their bytes: attributes that came before are not read again.

A fleet's points come in another order, or other ones of them, and still have the same attributes. Of a gauge
whose points are written plainly (times and value first, the rest behind) only the numbers are read; what the
rest of its bytes means is remembered by those bytes. Any other metric goes the general way, alone.

Rules: gives exactly what the general path would, or nothing. Bounded in memory; safe from any thread, as
what is remembered is never changed. Must not know what a request tells beyond its points.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from overwatch.otlp.frames import OddError, fields_of, size_at
from overwatch.otlp.origin import Resource, resource_of
from overwatch.otlp.points import LAST_TIME, Gathering, Outcome, RejectedError, outcome_of
from overwatch.otlp.result import Decoded

MOST_BYTES: Final = 32 << 20
"""Memory of what is remembered, about; beyond it all is forgotten."""
_SET_COST: Final = 256
"""Bytes that a remembered set takes beside its own."""
LONGEST_SET: Final = 1 << 10
"""Bytes of the longest attribute set that is remembered."""
_FIRST, _SECOND, _SCHEMA, _GAUGE, _POINT = 0x0A, 0x12, 0x1A, 0x2A, 0x0A
_START, _TIME, _DOUBLE, _INT = 0x11, 0x19, 0x21, 0x31
_AS_DOUBLE: Final = struct.Struct("<BQBd")
_AS_INT: Final = struct.Struct("<q")
_NUMBERS: Final = 18
"""Bytes of a time and a value, with their tags."""
_START_BYTES: Final = 9

_Sets: TypeAlias = dict[bytes, Outcome]
"""By the bytes behind a point's numbers: whom it speaks of."""
_Told: TypeAlias = tuple[Outcome, int, float]
"""Of whom a point is, its time in Unix nanoseconds, its value."""


class _Part(NamedTuple):
    """A metric in a request."""

    resource: bytes
    start: int
    stop: int


class GaugeReader:
    """Reads metrics requests; remembers attributes."""

    def __init__(self) -> None:
        self._sets: dict[tuple[bytes, bytes], _Sets] = {}
        """By resource, and by what a metric is beside its points."""
        self._bytes = 0

    def read(self, body: bytes) -> Decoded | None:
        """As `decode` reads it; `None` where the request is not written plainly, or is none."""
        gathering = Gathering()
        resources: dict[bytes, Resource] = {}
        try:
            for part in _metrics(body):
                resource = resources.get(part.resource)
                if resource is None:
                    resource = resource_of(ResourceMessage.FromString(part.resource))
                    resources[part.resource] = resource
                if resource.origin.ours or not self._add(gathering, resource, body, part):
                    gathering.take(resource, Metric.FromString(body[part.start : part.stop]))
        except (OddError, DecodeError):
            return None
        return gathering.result()

    def _add(self, gathering: Gathering, resource: Resource, body: bytes, part: _Part) -> bool:
        """Gather a gauge whose points are written plainly; `False` without a trace for any other metric."""
        try:
            head, begin, end = _gauge(body, part.start, part.stop)
            sets = self._sets.get((part.resource, head))
            whose = _Whose(resource, head)
            if sets is None:
                whose.check()
                sets = {}
            before = len(sets)
            told = _points(body, begin, end, sets, whose)
        except (OddError, RejectedError, IndexError, struct.error):
            return False
        if len(sets) > before or not before:
            self._remember((part.resource, head), sets, whose.cost)
        gathering.take_gauge(told)
        return True

    def _remember(self, metric: tuple[bytes, bytes], sets: _Sets, cost: int) -> None:
        if metric not in self._sets:
            cost += sum(map(len, metric)) + _SET_COST
        self._bytes += cost
        if self._bytes > MOST_BYTES:
            self._sets, self._bytes = {}, cost
        self._sets[metric] = sets


class _Whose:
    """What attributes mean, of points of one metric."""

    def __init__(self, resource: Resource, head: bytes) -> None:
        self._resource = resource
        self._head = head
        self._metric: Metric | None = None
        self.cost = 0
        """Bytes that it takes to remember what was asked."""

    def check(self) -> Metric:
        """What the metric is beside its points; raises `OddError` where it has others."""
        if self._metric is None:
            self._metric = Metric.FromString(self._head)
            if self._metric.WhichOneof("data") is not None:
                raise OddError
        return self._metric

    def outcome(self, rest: bytes) -> Outcome:
        """Whom a point with these bytes behind its numbers speaks of; raises `RejectedError`, `OddError`."""
        point = NumberDataPoint.FromString(rest)
        is_plain = not point.flags and not point.time_unix_nano and not point.start_time_unix_nano
        if not is_plain or point.WhichOneof("value") is not None:
            raise OddError
        self.cost += len(rest) + _SET_COST
        return outcome_of(self._resource, self.check().name, point)


def _points(body: bytes, at: int, end: int, sets: _Sets, whose: _Whose) -> list[_Told]:
    """The points of a gauge; raises `OddError` and others where one is not written plainly."""
    told: list[_Told] = []
    while at < end:
        if body[at] != _POINT:
            raise OddError
        size, at = body[at + 1], at + 2
        if size > 0x7F:
            size, at = size_at(body, at - 1, end)
        stop = at + size
        if body[at] == _START:
            at += _START_BYTES
        time_tag, time, tag, value = _AS_DOUBLE.unpack_from(body, at)
        if tag == _INT:
            value = float(_AS_INT.unpack_from(body, at + _NUMBERS - 8)[0])
        elif tag != _DOUBLE:
            raise OddError
        at += _NUMBERS
        if time_tag != _TIME or at > stop or stop > end or not 0 < time <= LAST_TIME:
            raise OddError
        rest = body[at:stop]
        whom = sets.get(rest)
        if whom is None:
            whom = whose.outcome(rest)
            if len(rest) <= LONGEST_SET:
                sets[rest] = whom
        told.append((whom, time, value))
        at = stop
    return told


def _gauge(body: bytes, start: int, stop: int) -> tuple[bytes, int, int]:
    """What a metric is beside its points, and where these begin and end; raises `OddError`."""
    head, found = b"", None
    at = start
    for tag, begin, end in fields_of(body, start, stop):
        if tag == _GAUGE:
            if found is not None:
                raise OddError
            found = begin, end
        else:
            head += body[at:end]
        at = end
    if found is None:
        raise OddError
    return head, *found


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
