"""A request against what was told before it: sums and distributions as values, entities that end.

Rules: a request is decoded without memory, so that any door may do it; what its series come to is decided
here, once, where requests are in order. Series of one producer that differ in other attributes alone add up.
Must not know messages.
"""

from typing import Final, TypeAlias

import msgspec

from overwatch.catalog import CUSTOM_PREFIX, Scope
from overwatch.catalog.tallies import SERVICES
from overwatch.events import LogLine, Origin, Record, Severity
from overwatch.otlp.distribution import Distribution, together
from overwatch.otlp.moments import Moments
from overwatch.otlp.result import Decoded, Problem
from overwatch.otlp.series import Point
from overwatch.otlp.subject import Subject
from overwatch.otlp.tallying import Tallying
from overwatch.otlp.totals import MAX_SERIES, Step, Totals

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""What is estimated of a distribution, by what it is called."""

_WHOLE: Final = frozenset({Scope.POLICY, *SERVICES})
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
        self._spreads: dict[_Place, tuple[Point, list[Distribution]]] = {}
        """What is new of one moment, and one point of it: put together once, as that costs by the buckets."""
        self._steps = dict.fromkeys(Step, 0)
        self._tallying = Tallying(totals)
        self._disputes: list[Record] = []

    def take(self, point: Point) -> None:
        """Settle one point."""
        value = point.value
        if point.is_tally:
            step, first = self._tallying.take(point)
        elif isinstance(value, Distribution):
            spread = self._totals.observe(point.position, value, changes=point.changes)
            step, first = spread.step, spread.first
            if spread.newest is not None:
                self._spreads.setdefault(_place(point), (point, []))[1].append(spread.newest)
        else:
            if point.changes:
                step, total, first = self._totals.add(point.position, value)
            else:
                step, total, first = self._totals.watch(point.position, value, rises=point.rises)
            if total is not None:
                self._moments.put(point.origin, point.position.at, point.row, point.subject, total)
        self._steps[step] += 1
        if first:
            self._disputes.append(_dispute(point))

    def _spread(self, point: Point, newest: Distribution) -> None:
        """The mean of what is new as the row's value; where names may be added, about its quantiles too."""
        at = point.position.at
        if newest.mean is not None:
            self._moments.put(point.origin, at, point.row, point.subject, newest.mean)
        if point.row.scope not in _WHOLE:
            return
        for word, which in QUANTILES.items():
            value = newest.quantile(which)
            if value is not None:
                name = f"{CUSTOM_PREFIX}{point.row.short}_{word}"
                self._moments.name(point.origin, at, point.row.scope, name, ())[()] = value

    def result(self, decoded: Decoded) -> Decoded:
        """Everything, with an account of what the points were."""
        for point, newest in self._spreads.values():
            self._spread(point, together(newest))
        steps = self._steps
        problems = decoded.problems
        if steps[Step.NO_ROOM]:
            told = Problem(reason="too_many_series", detail=f"more than {MAX_SERIES} series are told at once")
            problems += (told,) * steps[Step.NO_ROOM]
        return msgspec.structs.replace(
            decoded,
            records=(*self._moments.records(), *self._tallying.records(), *self._disputes),
            problems=problems,
            series=None,
            late=steps[Step.LATE],
            resets=steps[Step.RESET],
            overlaps=steps[Step.OVERLAPPED],
        )


def _place(point: Point) -> _Place:
    return point.origin, point.position.at, point.row.name, point.subject


def _dispute(point: Point) -> Record:
    said = (
        f"two writers tell {point.row.name} at once, as one producer: give each its own service.instance.id"
    )
    line = LogLine(at=point.position.at, severity=Severity.WARNING, message=said, subsystem="collector")
    return Record(origin=point.origin, event=line)
