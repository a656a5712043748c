"""Metrics of foreign producers by the catalogue's names and aliases: gauges as values, the rest as series.

A request is parsed down to its points, each of which comes as bytes: by a schema that differs from OTLP's in
that alone and means the same on the wire. SDKs write the times and the value of a number first and its
attributes behind them. The numbers are unpacked, and what the attributes mean is remembered by their bytes,
since a fleet's points have the same ones in every request. A point that is written in another way is parsed.

Rules: metrics of Overwatch's own SDK are for third parties and yield nothing here; a point that breaks what
OTLP states MUST hold is a problem; a point without a recorded value ends the value. What is remembered is
bounded, never changes what a request means, and is safe from any thread. What sums and distributions come to
is settled later. Must not know who sent a request.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from overwatch import catalog
from overwatch.catalog import Kind
from overwatch.catalog.tallies import is_tally, meant_labels
from overwatch.events import Origin
from overwatch.otlp import wire
from overwatch.otlp.distribution import MAX_BUCKETS, Distribution, Explicit, Exponential, Given
from overwatch.otlp.moments import NEEDS, Moments, Subject, is_meant, subject_of
from overwatch.otlp.origin import NO_RUN, OF_A_TRAINER, Resource, resource_of, run_id_in, with_run
from overwatch.otlp.protobuf import varint
from overwatch.otlp.result import (
    EARLIEST,
    LATEST,
    UNTIMED,
    Decoded,
    Point,
    Problem,
    RejectedError,
    Series,
    SeriesKey,
    checked_time,
    reject,
)
from overwatch.otlp.value import Value, attributes_to_python

MOST_BYTES: Final = 32 << 20
"""Memory of what is remembered, about; beyond it all is forgotten."""
LONGEST: Final = 1 << 10
"""Bytes of the longest attributes that are remembered."""
_LONGEST_RESOURCE: Final = 16 << 10
_ENTRY_BYTES: Final = 512
"""That what attributes mean takes beside twice their bytes."""
_RESOURCE_TIMES: Final = 16
"""As many times its bytes a resource takes that was read."""
_FARTHEST: Final = 1 << 31
"""Number of the first bucket that does not fit into 32 bits."""
_DEEP: Final = 128
"""Bytes from which on a point may be nested deeper than a parser allows: two a level."""

_DELTA: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_STALE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_START, _TIME, _DOUBLE, _INT = 0x11, 0x19, 0x21, 0x31
"""Tags of a number's fields."""
_NUMBER: Final = struct.Struct("<BQBd")
_WHOLE: Final = struct.Struct("<q")
_TIMES: Final = struct.pack("<BQBQ", _START, 1, _TIME, 1)

SpreadPoint: TypeAlias = HistogramDataPoint | ExponentialHistogramDataPoint | SummaryDataPoint
_AnyPoint: TypeAlias = NumberDataPoint | SpreadPoint
Plain: TypeAlias = tuple[int, int, float, bytes]
"""A number that is written plainly: its start, its time, its value, and what follows them in the bytes."""
_POINTS: Final[dict[str, type[_AnyPoint]]] = {
    "gauge": NumberDataPoint,
    "sum": NumberDataPoint,
    "histogram": HistogramDataPoint,
    "exponential_histogram": ExponentialHistogramDataPoint,
    "summary": SummaryDataPoint,
}


def _request_of_raw_points() -> Any:
    """The message of a metrics request whose points are bytes: both are written with a length before them."""
    pool = descriptor_pool.DescriptorPool()
    for module in (common_pb2, resource_pb2, metrics_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for field in (field for message in file.message_type for field in message.field):
            if field.name == "data_points":
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                field.ClearField("type_name")
        pool.Add(file)
    service = descriptor_pb2.FileDescriptorProto()
    ExportMetricsServiceRequest.DESCRIPTOR.file.CopyToProto(service)
    pool.Add(service)
    name = ExportMetricsServiceRequest.DESCRIPTOR.full_name
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


_RawRequest: Final = _request_of_raw_points()


def decode_points(body: bytes) -> Decoded:
    """What a metrics request reports; records where it has gauges only, else series to settle.

    Raises `MalformedBody`.
    """
    gathering = _Gathering()
    try:
        for part in _RawRequest.FromString(body).resource_metrics:
            producer = _MEMORY.producer(part.resource.SerializeToString())
            for scope in part.scope_metrics:
                for metric in scope.metrics:
                    gathering.take(producer, metric)
    except DecodeError as error:
        raise wire.malformed(ExportMetricsServiceRequest, body, error) from None
    return gathering.result()


def count_points(metric: Metric) -> int:
    """How many data points a metric of any kind holds."""
    kind = metric.WhichOneof("data")
    return 0 if kind is None else len(getattr(metric, kind).data_points)


class Lost(Enum):
    """Why a point has no value for a run."""

    UNATTRIBUTED = auto()
    """It names no run."""
    UNMAPPED = auto()
    """No row is meant by it."""


class PointSubject(msgspec.Struct, frozen=True, kw_only=True):
    """Of which run, row and subject a point is a value."""

    origin: Origin
    row: catalog.Metric
    subject: Subject
    scale: float = 1.0
    """What its value is multiplied by to be in the row's unit."""


Outcome: TypeAlias = PointSubject | SeriesKey | Lost
"""What a point is by its attributes alone: of a gauge its subject, of anything else its series."""


class _Reported(NamedTuple):
    """What a metric is beside its points."""

    name: str
    kind: str
    changes: bool
    rises: bool


def _point_of(key: SeriesKey, start: int, at: int, value: float | Distribution) -> Point:
    """A point of a series, of a time and since a start, Unix nanoseconds; raises `RejectedError`."""
    if not isinstance(value, Distribution):
        name = key.row.name
        _check_window(name, start, at)
        if key.changes and not math.isfinite(value):
            raise RejectedError("malformed", f"{name} changed by {value}, which has no total")
        if key.is_tally and not math.isfinite(value):
            raise RejectedError("malformed", f"{name} is {value}; a counter is finite")
        if key.rises and value < 0:
            raise RejectedError("malformed", f"{name} only rises, and its point is {value}")
    return Point(key, start, at, value)


class _Producer:
    """A resource, and what the attributes of its points mean."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self._known: dict[_Reported, dict[bytes, Outcome]] = {}

    def known(self, reported: _Reported) -> dict[bytes, Outcome]:
        """By the bytes behind a number: what they mean in a metric."""
        found = self._known.get(reported)
        if found is None:
            _MEMORY.spend(len(reported.name) + _ENTRY_BYTES)
            found = self._known[reported] = {}
        return found


class _Memory:
    """Producers that came before, by the bytes of their resource; safe from any thread."""

    def __init__(self) -> None:
        self.producers: dict[bytes, _Producer] = {}
        self._bytes = 0

    def producer(self, data: bytes) -> _Producer:
        """The producer of a resource; raises `DecodeError`."""
        known = self.producers.get(data)
        if known is None:
            known = _Producer(resource_of(ResourceMessage.FromString(data)))
            if len(data) <= _LONGEST_RESOURCE:
                self.spend(_RESOURCE_TIMES * len(data) + _ENTRY_BYTES)
                self.producers[data] = known
        return known

    def spend(self, cost: int) -> None:
        """Count what is remembered now; where it is too much all is forgotten, before that."""
        self._bytes += cost
        if self._bytes > MOST_BYTES:
            self.producers.clear()
            self._bytes = 0


_MEMORY: Final = _Memory()


class _Gathering:
    """Points of one request."""

    def __init__(self) -> None:
        self._items = 0
        """Points that came, whatever became of them."""
        self._moments = Moments()
        self._series: list[Point] = []
        self._problems: list[Problem] = []
        self._unattributed = 0
        self._unmapped = 0
        self._untimed = 0
        self._is_scaled = False

    def take(self, producer: _Producer, metric: Any) -> None:
        """Gather one metric's points; of those that Overwatch's own SDK sends only how many there are."""
        kind = metric.WhichOneof("data")
        if kind is None:
            return
        data = getattr(metric, kind)
        raws: list[bytes] = data.data_points[:]
        self._items += len(raws)
        if producer.resource.origin.ours:
            for raw in raws:
                _parsed(kind, raw)
            return
        changes = kind not in {"gauge", "summary"} and data.aggregation_temporality == _DELTA
        reported = _Reported(metric.name, kind, changes, kind == "sum" and data.is_monotonic)
        if _POINTS[kind] is NumberDataPoint:
            self._take_numbers(producer, reported, raws)
        else:
            for raw in raws:
                self._take_parsed(producer, reported, raw)

    def _take_numbers(self, producer: _Producer, reported: _Reported, raws: Sequence[bytes]) -> None:
        known = producer.known(reported)
        last: tuple[object, ...] = ()
        values: dict[Subject, float] = {}
        for raw in raws:
            plain = unpacked(raw)
            if plain is None:
                self._take_parsed(producer, reported, raw)
                continue
            start, at, value, rest = plain
            outcome = known.get(rest)
            if outcome is None:
                self._take_parsed(producer, reported, raw, rest)
            elif isinstance(outcome, PointSubject):
                # Points of one gauge are mostly of one moment.
                origin, row, subject = outcome.origin, outcome.row, outcome.subject
                if (place := (at, len(subject), row.name, origin)) != last:
                    last, values = place, self._moments.name(origin, at, row.scope, row.name, subject)
                    self._is_scaled |= outcome.scale != 1.0
                values[subject] = value * outcome.scale
            elif isinstance(outcome, SeriesKey):
                try:
                    self._series.append(_point_of(outcome, start, at, value))
                except RejectedError as rejected:
                    reject(self._problems, rejected)
            else:
                self._lose(outcome)

    def _take_parsed(
        self, producer: _Producer, reported: _Reported, raw: bytes, rest: bytes | None = None
    ) -> None:
        """Gather a point by the parser; remember what `rest` means, if it is what follows its numbers."""
        try:
            self._add(producer, reported, _parsed(reported.kind, raw), rest)
        except RejectedError as rejected:
            reject(self._problems, rejected)

    def _add(self, producer: _Producer, reported: _Reported, point: _AnyPoint, rest: bytes | None) -> None:
        at = checked_time(reported.name, point.time_unix_nano)
        stale = bool(point.flags & _STALE)
        spread = None if stale or isinstance(point, NumberDataPoint) else _distribution(reported.name, point)
        outcome = _outcome_of(producer.resource, reported, attributes_to_python(point.attributes))
        if rest is not None and len(rest) <= LONGEST and is_only_attributes(rest):
            _MEMORY.spend(2 * len(rest) + _ENTRY_BYTES)
            producer.known(reported)[rest] = outcome
        if isinstance(outcome, Lost):
            self._lose(outcome)
            return
        self._untimed += at == UNTIMED
        if stale:
            self._moments.end(outcome.origin, at, outcome.row, outcome.subject)
            return
        value = _number(outcome.row.name, point) if isinstance(point, NumberDataPoint) else spread
        # A total of nothing has no value; of changes the window after them follows on theirs.
        is_nothing = spread is not None and not spread.count and not reported.changes
        if isinstance(outcome, PointSubject) and isinstance(value, float):
            self._moments.put(outcome.origin, at, outcome.row, outcome.subject, value * outcome.scale)
            self._is_scaled |= outcome.scale != 1.0
        elif isinstance(outcome, SeriesKey) and value is not None and not is_nothing:
            self._series.append(_point_of(outcome, point.start_time_unix_nano, at, value))

    def _lose(self, why: Lost) -> None:
        self._unattributed += why is Lost.UNATTRIBUTED
        self._unmapped += why is Lost.UNMAPPED

    def result(self) -> Decoded:
        """Everything gathered, in order of first sight."""
        points = tuple(self._series)
        series = Series(moments=self._moments, points=points) if points else None
        return Decoded(
            items=self._items,
            records=() if points else tuple(self._moments.records()),
            problems=tuple(self._problems),
            unattributed=self._unattributed,
            unmapped=self._unmapped,
            untimed=self._untimed,
            is_scaled=self._is_scaled,
            series=series,
        )


def unpacked(raw: bytes) -> Plain | None:
    """A number whose times and value come first, and whose time can be; `None` for any other."""
    try:
        tag, at, value_tag, value = _NUMBER.unpack_from(raw)
        start, stop = 0, _NUMBER.size
        if tag == _START:
            start, stop = at, stop + 9
            tag, at, value_tag, value = _NUMBER.unpack_from(raw, 9)
    except struct.error:
        return None
    if tag != _TIME or not EARLIEST <= at <= LATEST:
        return None
    if value_tag == _INT:
        value = float(_WHOLE.unpack_from(raw, stop - _WHOLE.size)[0])
    elif value_tag != _DOUBLE:
        return None
    return start, at, value, raw[stop:]


def is_only_attributes(rest: bytes) -> bool:
    """Whether nothing behind a number takes the place of it, of its times or of its flags."""
    # A time of 0 that is written out takes the place of the one before it.
    point = NumberDataPoint.FromString(_TIMES + rest)
    is_timed = point.time_unix_nano == 1 and point.start_time_unix_nano == 1
    return is_timed and not point.flags and point.WhichOneof("value") is None


def _parsed(kind: str, raw: bytes) -> _AnyPoint:
    """A point by itself; raises `DecodeError`, also where it is nested too deep for a request."""
    if len(raw) >= _DEEP:
        field = metrics_pb2.Metric.DESCRIPTOR.fields_by_name[kind].number
        whole = raw
        for number in (1, field, 2, 2, 1):
            whole = bytes((number << 3 | 2,)) + varint(len(whole)) + whole
        ExportMetricsServiceRequest.FromString(whole)
    return _POINTS[kind].FromString(raw)


def _outcome_of(resource: Resource, reported: _Reported, attributes: dict[str, Value]) -> Outcome:
    """What a point with these attributes is about; raises `RejectedError`."""
    run_id = run_id_in(resource, attributes.get(wire.RUN_ID))
    row, scale = catalog.meaning(reported.name, library=resource.library) or (None, 1.0)
    row = row or catalog.find_split(reported.name, attributes)
    if row is None or row.kind is Kind.STATE or not is_meant(row, attributes):
        return Lost.UNATTRIBUTED if run_id is None else Lost.UNMAPPED
    if scale != 1.0 and reported.kind != "gauge":
        # A total or a distribution in another unit: nothing is made of it.
        return Lost.UNATTRIBUTED if run_id is None else Lost.UNMAPPED
    if run_id is None:
        if row.scope in OF_A_TRAINER:
            raise RejectedError("no_run", f"{reported.name} {NO_RUN}")
        return Lost.UNATTRIBUTED
    origin, tallied = with_run(resource, run_id), _is_tallied(row, reported)
    if tallied:
        labels = meant_labels(row, attributes)
        subject: Subject | None = tuple(word for pair in labels.items() for word in pair)
    else:
        subject = subject_of(row.scope, {**resource.attributes, **attributes})
    if subject is None:
        raise RejectedError("malformed", f"{row.name} needs {NEEDS[row.scope]} on its points")
    of = PointSubject(origin=origin, row=row, subject=subject, scale=scale)
    if reported.kind == "gauge":
        return of
    return SeriesKey(
        origin=origin,
        row=row,
        subject=subject,
        group=_group(of, f"{reported.kind} {'changes' if reported.changes else 'totals'}"),
        part=_part(attributes),
        changes=reported.changes,
        rises=reported.rises,
        is_tally=tallied,
    )


def _is_tallied(row: catalog.Metric, reported: _Reported) -> bool:
    """Whether a row that is counted by labels came as its own kind; anything else is a value of it."""
    if not is_tally(row):
        return False
    if row.kind is Kind.COUNTER:
        return reported.kind == "sum" and reported.rises
    return reported.kind in ("histogram", "exponential_histogram")


def _check_window(name: str, start: int, at: int) -> None:
    if start > at != UNTIMED:
        raise RejectedError("malformed", f"{name} begins at {start}, after its time {at}")


def _distribution(name: str, point: SpreadPoint) -> Distribution:
    _check_window(name, point.start_time_unix_nano, point.time_unix_nano)
    try:
        return _distribution_of(point)
    except ValueError as error:
        raise RejectedError("malformed", f"{name}: {error}") from None


def _number(name: str, point: NumberDataPoint) -> float:
    match point.WhichOneof("value"):
        case "as_double":
            return point.as_double
        case "as_int":
            return float(point.as_int)
        case _:
            raise RejectedError("malformed", f"{name} has a point without a value")


def _group(of: PointSubject, kind: str) -> str:
    """What adds up to one value: one producer, metric, subject, and kind of point."""
    origin = of.origin
    key = (origin.role, origin.rank, origin.epoch, of.row.name, kind, *of.subject)
    return msgspec.json.encode(key).decode()


def _part(attributes: Mapping[str, Value]) -> str:
    """The series by all its attributes; NaN and bytes are as good as any."""
    if not attributes:
        return ""
    return msgspec.json.encode(sorted(attributes.items()), enc_hook=str).decode()


def _distribution_of(point: SpreadPoint) -> Distribution:
    """What a point holds; raises `ValueError` on one that breaks OTLP's rules."""
    match point:
        case HistogramDataPoint():
            return _explicit(point)
        case ExponentialHistogramDataPoint():
            return _exponential(point)
        case SummaryDataPoint():
            return _summary(point)
        case _:
            assert_never(point)


def _explicit(point: HistogramDataPoint) -> Distribution:
    if len(point.bucket_counts) > MAX_BUCKETS or len(point.explicit_bounds) > MAX_BUCKETS:
        raise ValueError(f"{len(point.bucket_counts)} buckets are more than {MAX_BUCKETS}")
    shape = None
    if point.bucket_counts:
        shape = Explicit(bounds=tuple(point.explicit_bounds), counts=tuple(point.bucket_counts))
    elif point.explicit_bounds:
        raise ValueError(f"{len(point.explicit_bounds)} bounds have no buckets")
    return Distribution(count=point.count, shape=shape, **_extent(point))


def _exponential(point: ExponentialHistogramDataPoint) -> Distribution:
    if point.zero_threshold < 0 or math.isnan(point.zero_threshold):
        raise ValueError(f"zero_threshold {point.zero_threshold} is below 0")
    shape = Exponential(
        scale=point.scale,
        zero=point.zero_count,
        positive=_buckets(point.positive.offset, point.positive.bucket_counts),
        negative=_buckets(point.negative.offset, point.negative.bucket_counts),
    )
    return Distribution(count=point.count, shape=shape, **_extent(point))


def _buckets(offset: int, counts: Sequence[int]) -> dict[int, int]:
    if len(counts) > MAX_BUCKETS:
        raise ValueError(f"{len(counts)} buckets are more than {MAX_BUCKETS}")
    if offset + len(counts) > _FARTHEST:
        raise ValueError(f"{len(counts)} buckets from {offset} on go beyond 32 bits")
    return {offset + place: count for place, count in enumerate(counts) if count}


def _summary(point: SummaryDataPoint) -> Distribution:
    given = [(one.quantile, one.value) for one in point.quantile_values]
    if len(given) > MAX_BUCKETS:
        raise ValueError(f"{len(given)} quantiles are more than {MAX_BUCKETS}")
    for which, _ in given:
        if not 0 <= which <= 1:
            raise ValueError(f"quantile {which} is not in 0..1")
    return Distribution(count=point.count, sum=point.sum, shape=Given(quantiles=tuple(sorted(given))))


def _extent(point: HistogramDataPoint | ExponentialHistogramDataPoint) -> dict[str, float | None]:
    """The fields that may be left out."""
    return {
        "sum": point.sum if point.HasField("sum") else None,
        "low": point.min if point.HasField("min") else None,
        "high": point.max if point.HasField("max") else None,
    }
