"""A request against what was told before it: sums and distributions as values, entities that end.

Rules: a request is decoded without memory, so that any door may do it; what its series come to is decided
here, once, where requests are in order. Series of one producer that differ in other attributes alone add up.
Must not know messages.
"""

from typing import Final, TypeAlias

import msgspec

from overwatch.catalog import CUSTOM_PREFIX, Scope
from overwatch.events import LogLine, Origin, Record, Severity
from overwatch.events.adding import added
from overwatch.otlp.distribution import Distribution
from overwatch.otlp.moments import Moments
from overwatch.otlp.result import Decoded, Problem
from overwatch.otlp.series import Point
from overwatch.otlp.subject import Subject
from overwatch.otlp.totals import MAX_SERIES, Step, Totals

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""What is estimated of a distribution, by what it is called."""

_WHOLE: Final = frozenset({Scope.POLICY, Scope.LEARNER, Scope.ROLLOUTS})
"""Scopes of one subject, whose unknown names are shown."""

_Place: TypeAlias = tuple[Origin, int, str, Subject]


def settle(decoded: Decoded, totals: Totals) -> Decoded:
    """A decoded request with its series and entities settled, which continues them; it stays as it was."""
    if decoded.series is not None:
        settling = _Settling(decoded.series.moments.copy(), totals)
        for point in decoded.series.points:
            settling.take(point)
        decoded = settling.result(decoded)
    if decoded.alive or totals.entities.runs:
        records = totals.entities.follow(decoded.alive, decoded.records)
        return msgspec.structs.replace(decoded, records=records, alive=())
    return decoded


class _Settling:
    """One request on its way to records."""

    def __init__(self, moments: Moments, totals: Totals) -> None:
        self._moments = moments
        self._totals = totals
        self._sums: dict[_Place, dict[str, float]] = {}
        self._spreads: dict[_Place, Distribution] = {}
        self._steps = dict.fromkeys(Step, 0)
        self._disputes: list[Record] = []

    def take(self, point: Point) -> None:
        """Settle one point."""
        value = point.value
        if isinstance(value, Distribution):
            spread = self._totals.observe(point.told, value, changes=point.changes)
            step, first = spread.step, spread.first
            if spread.newest is not None:
                self._spread(point, spread.newest)
        elif point.changes:
            step, total, first = self._totals.add(point.told, value)
            if total is not None:
                self._moments.put(point.origin, point.told.at, point.row, point.subject, total)
        else:
            step, total, first = self._totals.watch(point.told, value, rises=point.rises)
            if total is not None:
                self._sum(point, total)
        self._steps[step] += 1
        if first:
            self._disputes.append(_dispute(point))

    def _sum(self, point: Point, total: float) -> None:
        """A total as its producer tells it: all parts of one moment together."""
        parts = self._sums.setdefault(_place(point), {})
        parts[point.told.part] = total
        value = total if len(parts) == 1 else added(parts.values())
        self._moments.put(point.origin, point.told.at, point.row, point.subject, value)

    def _spread(self, point: Point, newest: Distribution) -> None:
        """The mean of what is new as the row's value; where names may be added, about its quantiles too."""
        place, at = _place(point), point.told.at
        before = self._spreads.get(place)
        whole = self._spreads[place] = newest if before is None else before.plus(newest)
        if whole.mean is not None:
            self._moments.put(point.origin, at, point.row, point.subject, whole.mean)
        if point.row.scope not in _WHOLE:
            return
        for word, which in QUANTILES.items():
            value = whole.quantile(which)
            if value is not None:
                name = f"{CUSTOM_PREFIX}{point.row.short}_{word}"
                self._moments.name(point.origin, at, point.row.scope, name, ())[()] = value

    def result(self, decoded: Decoded) -> Decoded:
        """Everything, with an account of what the points were."""
        steps = self._steps
        problems = decoded.problems
        if steps[Step.NO_ROOM]:
            told = Problem(reason="too_many_series", detail=f"more than {MAX_SERIES} series are told at once")
            problems += (told,) * steps[Step.NO_ROOM]
        return msgspec.structs.replace(
            decoded,
            records=(*self._moments.records(), *self._disputes),
            problems=problems,
            series=None,
            late=steps[Step.LATE],
            resets=steps[Step.RESET],
            overlaps=steps[Step.OVERLAPPED],
        )


def _place(point: Point) -> _Place:
    return point.origin, point.told.at, point.row.name, point.subject


def _dispute(point: Point) -> Record:
    said = (
        f"two writers tell {point.row.name} at once, as one producer: give each its own service.instance.id"
    )
    line = LogLine(at=point.told.at, severity=Severity.WARNING, message=said, subsystem="collector")
    return Record(origin=point.origin, event=line)
