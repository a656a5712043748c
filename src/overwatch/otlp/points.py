"""Metrics of foreign producers as measurements, by the names and aliases of the catalogue.

Rules: metrics of Overwatch's own SDK are for third parties and yield nothing here; points of one moment
and the same subjects become one `Measured`, so one export of a policy is one update; a non-finite value
of a critical row adds `NonFiniteSeen`; an env's point without a recorded value ends that value of the env;
the sum of a delta is refused, since its value is a change. Must not know who sent the request.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    NumberDataPoint,
)

from overwatch import catalog
from overwatch.catalog import Kind, NonFinite, Scope
from overwatch.events import Column, EnvsRemoved, Measured, NonFiniteSeen, Origin, Record
from overwatch.otlp import wire
from overwatch.otlp.origin import Resource, resource_of, run_id_of, with_run
from overwatch.otlp.result import DETAILED, Decoded, Problem
from overwatch.otlp.value import Value, attributes_to_python

MAX_OFFENDERS: Final = 16
_LAST_TIME: Final = (1 << 63) - 1
_DELTA: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_STALE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_TOTALS: Final = {"system.memory.usage": ("system.memory.state", "used")}
"""Host rows that come split by an attribute, and the part that is meant."""
_SPLITS: Final = frozenset({"cpu", "cpu.mode", "cpu.logical_number", "state", "system.memory.state"})

Subject: TypeAlias = tuple[int | str, ...]
"""Ids of what a point speaks of; of an env its id and, where the point names one, its lane."""
_Moment: TypeAlias = tuple[Origin, int, Scope, int]
"""Points of one moment also say equally much of their subjects: the last part is how many ids."""


def decode_points(message: ExportMetricsServiceRequest) -> Decoded:
    """The measurements in a metrics request."""
    gathering = _Gathering()
    for resource_metrics in message.resource_metrics:
        resource = resource_of(resource_metrics.resource)
        if resource.origin.ours:
            continue
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                gathering.add(resource, metric)
    return gathering.result()


def count_points(metric: Metric) -> int:
    """How many data points a metric of any kind holds."""
    kind = metric.WhichOneof("data")
    return 0 if kind is None else len(getattr(metric, kind).data_points)


class _Gathering:
    """Points of one request, by moment, then by metric, then by subject."""

    def __init__(self) -> None:
        self._moments: dict[_Moment, dict[str, dict[Subject, float]]] = {}
        self._ended: dict[tuple[Origin, int], dict[str, list[int]]] = {}
        """Envs whose value has no more points, by moment, then by metric."""
        self._problems: list[Problem] = []
        self._unattributed = 0
        self._unmapped = 0

    def add(self, resource: Resource, metric: Metric) -> None:
        """Gather one metric's points."""
        row = catalog.find(metric.name)
        is_delta = metric.WhichOneof("data") == "sum" and metric.sum.aggregation_temporality == _DELTA
        for point in _numbers(metric):
            run_id = run_id_of(resource, point.attributes)
            if run_id is None:
                self._unattributed += 1
            elif row is None or row.kind is Kind.STATE:
                self._unmapped += 1
            elif is_delta:
                # A change is no value, and without every point of before there is no sum to add it to.
                fix = "set OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative"
                self._reject("delta", f"{row.name} came as a delta; {fix}")
            elif not point.flags & _STALE:
                self._add_point(with_run(resource, run_id), row, point, resource.attributes)
            elif row.scope is Scope.ENV:
                self._add_end(with_run(resource, run_id), row, point, resource.attributes)
        self._add_unreadable(resource, metric)

    def _add_unreadable(self, resource: Resource, metric: Metric) -> None:
        """Histograms and summaries have no row to go to."""
        if metric.WhichOneof("data") in ("gauge", "sum"):
            return
        if resource.origin.run_id:
            self._unmapped += count_points(metric)
        else:
            self._unattributed += count_points(metric)

    def _add_point(
        self, origin: Origin, row: catalog.Metric, point: NumberDataPoint, shared: dict[str, Value]
    ) -> None:
        attributes = attributes_to_python(point.attributes)
        if not _is_meant(row, attributes):
            self._unmapped += 1
            return
        if not 0 < point.time_unix_nano <= _LAST_TIME:
            self._reject("no_time", f"{row.name} has time {point.time_unix_nano}; set TimeUnixNano")
            return
        value = _number(point)
        subject = _subject(row.scope, {**shared, **attributes})
        if value is None:
            self._reject("malformed", f"{row.name} has a point without a value")
        elif subject is None:
            self._reject("malformed", f"{row.name} needs {_NEEDS[row.scope]} on its points")
        else:
            key = (origin, point.time_unix_nano, row.scope, len(subject))
            moment = self._moments.setdefault(key, {})
            moment.setdefault(row.name, {})[subject] = value

    def _add_end(
        self, origin: Origin, row: catalog.Metric, point: NumberDataPoint, shared: dict[str, Value]
    ) -> None:
        subject = _subject(row.scope, {**shared, **attributes_to_python(point.attributes)})
        if not 0 < point.time_unix_nano <= _LAST_TIME:
            self._reject("no_time", f"{row.name} has time {point.time_unix_nano}; set TimeUnixNano")
        elif subject is None:
            self._reject("malformed", f"{row.name} needs {_NEEDS[row.scope]} on its points")
        else:
            moment = self._ended.setdefault((origin, point.time_unix_nano), {})
            moment.setdefault(row.name, []).append(int(subject[0]))

    def _reject(self, reason: str, detail: str) -> None:
        known = self._problems[-1] if len(self._problems) >= DETAILED else None
        self._problems.append(known or Problem(reason=reason, detail=detail))

    def result(self) -> Decoded:
        """Everything gathered, in order of first sight."""
        records = [
            record for moment, metrics in self._moments.items() for record in _records(moment, metrics)
        ]
        for (origin, at), ended in self._ended.items():
            records += (Record(origin=origin, event=event) for event in _ends(at, ended))
        return Decoded(
            records=tuple(records),
            problems=tuple(self._problems),
            unattributed=self._unattributed,
            unmapped=self._unmapped,
        )


_NEEDS: Final = {
    Scope.ENV: f"{wire.ENV_ID} (an integer)",
    Scope.SLOT: f"{wire.ENV_ID} (an integer) and {wire.SLOT_ID}",
    Scope.GPU: f"{wire.LANE_ID} or hw.id",
}


def _subject(scope: Scope, attributes: dict[str, Value]) -> Subject | None:
    """What a point speaks of; `()` where its scope has one subject, `None` when it does not say."""
    if scope is Scope.GPU:
        lane = attributes.get(wire.LANE_ID) or attributes.get("hw.id")
        return (lane,) if isinstance(lane, str) else None
    if scope not in (Scope.ENV, Scope.SLOT):
        return ()
    env_id = attributes.get(wire.ENV_ID)
    if isinstance(env_id, bool) or not isinstance(env_id, int):
        return None
    if scope is Scope.ENV:
        lane = attributes.get(wire.LANE_ID)
        return (env_id, lane) if isinstance(lane, str) and lane else (env_id,)
    slot = attributes.get(wire.SLOT_ID)
    return (env_id, slot) if isinstance(slot, str) else None


def _is_meant(row: catalog.Metric, attributes: dict[str, Value]) -> bool:
    """Whether a point of the row's name is what the row asks: not a part, not another device's."""
    if any(attributes.get(name, value) != value for name, value in row.attributes.items()):
        return False
    if row.scope is not Scope.HOST:
        return True
    part = _TOTALS.get(row.name)
    if part is not None and attributes.get(part[0]) == part[1]:
        return True
    return not _SPLITS & attributes.keys()


def _numbers(metric: Metric) -> Iterable[NumberDataPoint]:
    match metric.WhichOneof("data"):
        case "gauge":
            return metric.gauge.data_points
        case "sum":
            return metric.sum.data_points
        case _:
            return ()


def _number(point: NumberDataPoint) -> float | None:
    match point.WhichOneof("value"):
        case "as_double":
            return point.as_double
        case "as_int":
            return float(point.as_int)
        case _:
            return None


def _records(moment: _Moment, metrics: dict[str, dict[Subject, float]]) -> Iterator[Record]:
    origin, at, scope, num_ids = moment
    alike: dict[tuple[Subject, ...], dict[str, Column]] = {}
    for name, points in metrics.items():
        alike.setdefault(tuple(points), {})[name] = Column.of(list(points.values()))
    for subjects, values in alike.items():
        keys = _keys(scope, subjects)
        if scope is Scope.ENV and num_ids > 1:
            values["lane"] = Column.of_labels([str(subject[1]) for subject in subjects])
        yield Record(origin=origin, event=Measured(at=at, scope=scope, values=values, keys=keys))
    for name, points in metrics.items():
        seen = _non_finite(at, scope, name, points)
        if seen is not None:
            yield Record(origin=origin, event=seen)


def _ends(at: int, ended: dict[str, list[int]]) -> Iterator[EnvsRemoved]:
    """The values that ended at one moment, those of the same envs together."""
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, env_ids in ended.items():
        alike.setdefault(tuple(sorted(set(env_ids))), []).append(name)
    for envs, names in alike.items():
        yield EnvsRemoved(at=at, env_id=Column.of(envs), metrics=tuple(names))


def _keys(scope: Scope, subjects: tuple[Subject, ...]) -> dict[str, Column]:
    match scope:
        case Scope.GPU:
            return {"gpu_id": Column.of_labels([str(subject[0]) for subject in subjects])}
        case Scope.ENV:
            return {"env_id": Column.of([int(subject[0]) for subject in subjects])}
        case Scope.SLOT:
            return {
                "env_id": Column.of([int(subject[0]) for subject in subjects]),
                "slot": Column.of_labels([str(subject[1]) for subject in subjects]),
            }
        case _:
            return {}


def _non_finite(at: int, scope: Scope, name: str, points: dict[Subject, float]) -> NonFiniteSeen | None:
    row = catalog.BY_NAME[name]
    bad = {subject: value for subject, value in points.items() if not math.isfinite(value)}
    if not bad or row.non_finite is not NonFinite.CRITICAL:
        return None
    envs = [subject[0] for subject in bad if subject]
    return NonFiniteSeen(
        at=at,
        scope=scope,
        metric=name,
        kind="nan" if any(math.isnan(value) for value in bad.values()) else "inf",
        count=len(bad),
        env_ids=tuple(env for env in dict.fromkeys(envs) if isinstance(env, int))[:MAX_OFFENDERS],
    )
