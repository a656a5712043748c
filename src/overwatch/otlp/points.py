"""Metrics of foreign producers by the catalogue's names and aliases: gauges as values, the rest as series.

Rules: metrics of Overwatch's own SDK are for third parties and yield nothing here; a point that breaks what
OTLP says MUST hold is a problem; a point without a recorded value ends the value. A
request is read without memory: what sums and distributions come to is settled later. Must not know who sent
it.
"""

import math
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, TypeAlias

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    NumberDataPoint,
)

from overwatch import catalog
from overwatch.catalog import Kind
from overwatch.catalog.tallies import is_tally, meant_labels
from overwatch.events import Origin
from overwatch.otlp import wire
from overwatch.otlp.distribution import Distribution
from overwatch.otlp.histograms import Point as SpreadPoint
from overwatch.otlp.histograms import distribution_of
from overwatch.otlp.moments import Moments
from overwatch.otlp.origin import Resource, resource_of, run_id_in, with_run
from overwatch.otlp.result import DETAILED, Decoded, Problem, RejectedError
from overwatch.otlp.series import Point, Series
from overwatch.otlp.subject import NEEDS, Subject, is_meant, subject_of
from overwatch.otlp.times import UNTIMED, checked_time
from overwatch.otlp.totals import Position
from overwatch.otlp.unnamed import NO_RUN, OF_A_TRAINER
from overwatch.otlp.value import Value, attributes_to_python

_DELTA: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_STALE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK

_AnyPoint: TypeAlias = NumberDataPoint | SpreadPoint


def decode_points(message: ExportMetricsServiceRequest) -> Decoded:
    """What a metrics request tells; records where it has gauges only, else series to settle."""
    gathering = Gathering()
    for resource_metrics in message.resource_metrics:
        resource = resource_of(resource_metrics.resource)
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                gathering.take(resource, metric)
    return gathering.result()


def count_points(metric: Metric) -> int:
    """How many data points a metric of any kind holds."""
    kind = metric.WhichOneof("data")
    return 0 if kind is None else len(getattr(metric, kind).data_points)


class _Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a point speaks of."""

    origin: Origin
    row: catalog.Metric
    subject: Subject
    attributes: dict[str, Value]
    """The point's own."""

    @property
    def whom(self) -> "Whom":
        """The same without what tells points apart."""
        return Whom(origin=self.origin, row=self.row, subject=self.subject)


class Lost(Enum):
    """Why a point says nothing."""

    UNATTRIBUTED = auto()
    """It names no run."""
    UNMAPPED = auto()
    """No row is meant by it."""


class Whom(msgspec.Struct, frozen=True, kw_only=True):
    """Of whom a point is a value."""

    origin: Origin
    row: catalog.Metric
    subject: Subject

    def is_beside(self, other: "Whom") -> bool:
        """Whether another one's values of the same time are certainly kept in the same place."""
        same = self.origin is other.origin and self.row is other.row
        return same and len(self.subject) == len(other.subject)


Outcome: TypeAlias = Whom | Lost


class SeriesKey(msgspec.Struct, frozen=True, kw_only=True):
    """Of which series a point is, and how it counts."""

    whom: Whom
    group: str
    part: str
    changes: bool
    """Whether its points hold what is new since the one before, rather than everything."""
    rises: bool
    """Of a sum: whether it can never be less than before."""
    is_tally: bool = False
    """Whether it is counted process by process, by labels."""

    def point(self, start: int, at: int, value: float | Distribution) -> Point:
        """Its point of a time and since a start, Unix nanoseconds; raises `RejectedError`."""
        origin, name = self.whom.origin, self.whom.row.name
        if not isinstance(value, Distribution):
            _check_window(name, start, at)
            if self.changes and not math.isfinite(value):
                raise RejectedError("malformed", f"{name} changed by {value}, which has no total")
            if self.is_tally and not math.isfinite(value):
                raise RejectedError("malformed", f"{name} is {value}; a counter is finite")
            if self.rises and value < 0:
                raise RejectedError("malformed", f"{name} only rises, and its point is {value}")
        return Point(
            origin=origin,
            row=self.whom.row,
            subject=self.whom.subject,
            position=Position(origin.run_id, self.group, self.part, start, at),
            value=value,
            changes=self.changes,
            rises=self.rises,
            is_tally=self.is_tally,
        )


class Gathering:
    """Points of one request."""

    def __init__(self) -> None:
        self.items = 0
        """Points that came, whatever became of them."""
        self._moments = Moments()
        self._series: list[Point] = []
        self._problems: list[Problem] = []
        self._unattributed = 0
        self._unmapped = 0
        self._untimed = 0

    def take(self, resource: Resource, metric: Metric) -> None:
        """Gather one metric's points; of those that Overwatch's own SDK sends only how many there are."""
        self.items += count_points(metric)
        if not resource.origin.ours:
            self._add(resource, metric)

    def take_gauge(self, told: Sequence[tuple[Outcome, int, int, float]]) -> None:
        """Gather the points of a gauge: of whom, since when, when in Unix nanoseconds, and what."""
        last: Whom | None = None
        last_at, values = 0, dict[Subject, float]()
        self.items += len(told)
        for whom, _, at, value in told:
            if isinstance(whom, Lost):
                self._lose(whom)
                continue
            if at != last_at or last is None or not last.is_beside(whom):
                last, last_at = whom, at
                values = self._moments.name(whom.origin, at, whom.row.scope, whom.row.name, whom.subject)
            values[whom.subject] = value

    def take_series(self, told: Sequence[Point | Lost]) -> None:
        """Gather the points of a series."""
        self.items += len(told)
        for point in told:
            if isinstance(point, Lost):
                self._lose(point)
            else:
                self._series.append(point)

    def _lose(self, why: Lost) -> None:
        self._unattributed += why is Lost.UNATTRIBUTED
        self._unmapped += why is Lost.UNMAPPED

    def _add(self, resource: Resource, metric: Metric) -> None:
        row = catalog.find(metric.name)
        for point in _points(metric):
            try:
                self._add_point(resource, metric, row, point)
            except RejectedError as rejected:
                known = self._problems[-1] if len(self._problems) >= DETAILED else rejected.problem
                self._problems.append(known)

    def _add_point(
        self, resource: Resource, metric: Metric, row: catalog.Metric | None, point: _AnyPoint
    ) -> None:
        at = checked_time(metric.name, point.time_unix_nano)
        stale = bool(point.flags & _STALE)
        spread = None if stale or isinstance(point, NumberDataPoint) else _distribution(metric.name, point)
        meaning = _meant(resource, metric, point, row)
        if isinstance(meaning, Lost):
            self._lose(meaning)
            return
        self._untimed += at == UNTIMED
        if stale:
            self._moments.end(meaning.origin, at, meaning.row, meaning.subject)
        elif isinstance(point, NumberDataPoint):
            self._add_number(meaning, metric, point)
        elif spread is not None:
            key = _series_key(meaning, metric)
            # Changes of nothing are told too: the window after them follows on theirs.
            if spread.count or key.changes:
                self._series.append(key.point(point.start_time_unix_nano, point.time_unix_nano, spread))

    def _add_number(self, meaning: _Meaning, metric: Metric, point: NumberDataPoint) -> None:
        value = _number(point)
        if value is None:
            raise RejectedError("malformed", f"{meaning.row.name} has a point without a value")
        if metric.WhichOneof("data") == "gauge":
            self._moments.put(meaning.origin, point.time_unix_nano, meaning.row, meaning.subject, value)
            return
        key = _series_key(meaning, metric)
        self._series.append(key.point(point.start_time_unix_nano, point.time_unix_nano, value))

    def result(self) -> Decoded:
        """Everything gathered, in order of first sight."""
        points = tuple(self._series)
        series = Series(moments=self._moments, points=points) if points else None
        return Decoded(
            items=self.items,
            records=() if points else tuple(self._moments.records()),
            problems=tuple(self._problems),
            unattributed=self._unattributed,
            unmapped=self._unmapped,
            untimed=self._untimed,
            series=series,
        )


def outcome_of(resource: Resource, metric: Metric, point: NumberDataPoint) -> Outcome:
    """Of whom a point of this gauge is, by its attributes alone; raises `RejectedError`."""
    meaning = _meant(resource, metric, point, catalog.find(metric.name))
    return meaning if isinstance(meaning, Lost) else meaning.whom


def series_of(resource: Resource, metric: Metric, point: NumberDataPoint) -> SeriesKey | Lost:
    """Of which series a point of this sum is, by its attributes alone; raises `RejectedError`."""
    meaning = _meant(resource, metric, point, catalog.find(metric.name))
    return meaning if isinstance(meaning, Lost) else _series_key(meaning, metric)


def _meant(
    resource: Resource, metric: Metric, point: _AnyPoint, row: catalog.Metric | None
) -> _Meaning | Lost:
    """What a point of a metric is about; the name alone may give the `row`; raises `RejectedError`."""
    attributes = attributes_to_python(point.attributes)
    run_id = run_id_in(resource, attributes.get(wire.RUN_ID))
    row = row or catalog.find_split(metric.name, attributes)
    if row is None or row.kind is Kind.STATE or not is_meant(row, attributes):
        return Lost.UNATTRIBUTED if run_id is None else Lost.UNMAPPED
    if run_id is None:
        if row.scope in OF_A_TRAINER:
            raise RejectedError("no_run", f"{metric.name} {NO_RUN}")
        return Lost.UNATTRIBUTED
    origin = with_run(resource, run_id)
    if _is_tallied(row, metric):
        labels = meant_labels(row, attributes)
        subject: Subject = tuple(word for pair in labels.items() for word in pair)
        return _Meaning(origin=origin, row=row, subject=subject, attributes=attributes)
    return _meaning(resource, origin, row, attributes)


def _is_tallied(row: catalog.Metric, metric: Metric) -> bool:
    """Whether a row that is counted by labels came as its own kind; anything else is a value of it."""
    kind = metric.WhichOneof("data")
    if not is_tally(row):
        return False
    if row.kind is Kind.COUNTER:
        return kind == "sum" and bool(metric.sum.is_monotonic)
    return kind in ("histogram", "exponential_histogram")


def _points(metric: Metric) -> Iterable[_AnyPoint]:
    kind = metric.WhichOneof("data")
    found: Iterable[_AnyPoint] = () if kind is None else getattr(metric, kind).data_points
    return found


def _meaning(
    resource: Resource, origin: Origin, row: catalog.Metric, attributes: dict[str, Value]
) -> _Meaning:
    subject = subject_of(row.scope, ChainMap(attributes, resource.attributes))
    if subject is None:
        raise RejectedError("malformed", f"{row.name} needs {NEEDS[row.scope]} on its points")
    return _Meaning(origin=origin, row=row, subject=subject, attributes=attributes)


def _check_window(name: str, start: int, at: int) -> None:
    if start > at != UNTIMED:
        raise RejectedError("malformed", f"{name} begins at {start}, after its time {at}")


def _distribution(name: str, point: SpreadPoint) -> Distribution:
    _check_window(name, point.start_time_unix_nano, point.time_unix_nano)
    try:
        return distribution_of(point)
    except ValueError as error:
        raise RejectedError("malformed", f"{name}: {error}") from None


def _number(point: NumberDataPoint) -> float | None:
    match point.WhichOneof("value"):
        case "as_double":
            return point.as_double
        case "as_int":
            return float(point.as_int)
        case _:
            return None


def _series_key(meaning: _Meaning, metric: Metric) -> SeriesKey:
    kind = metric.WhichOneof("data") or ""
    data = getattr(metric, kind)
    changes = kind != "summary" and data.aggregation_temporality == _DELTA
    return SeriesKey(
        whom=meaning.whom,
        group=_group(meaning, f"{kind} {'changes' if changes else 'totals'}"),
        part=_part(meaning.attributes),
        changes=changes,
        rises=kind == "sum" and data.is_monotonic,
        is_tally=_is_tallied(meaning.row, metric),
    )


def _group(meaning: _Meaning, kind: str) -> str:
    """What adds up to one value: one producer, metric, subject, and way of telling."""
    origin = meaning.origin
    who = (origin.role, origin.rank, origin.epoch, meaning.row.name, kind, *meaning.subject)
    return msgspec.json.encode(who).decode()


def _part(attributes: Mapping[str, Value]) -> str:
    """The series by all its attributes; NaN and bytes are as good as any."""
    if not attributes:
        return ""
    return msgspec.json.encode(sorted(attributes.items()), enc_hook=str).decode()
