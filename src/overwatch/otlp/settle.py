"""A request against what was sent before it: sums and distributions as values, entities that end.

Rules: a request is decoded without memory, so that any receiver may do it; what its series come to is decided
here, once, where requests are in order. Series of one producer that differ in other attributes alone add up.
Counters and histograms with labels are what their producer counted since it was first received: changes are
added, of totals what rose since the point before; a restart, a gap or a second writer never takes anything
off. Bounds of a histogram stay as they came; exponential buckets are put into the row's. Label sets beyond
those of the row are one, `other`. Must not know messages.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from overwatch.catalog import CUSTOM_PREFIX, Scope
from overwatch.catalog.tallies import OTHER, SERVICES, buckets_of
from overwatch.events import Buckets, LogLine, Origin, Record, Severity, Tallied, TallySeries
from overwatch.events.values import MOST_COUNT, MOST_SUM
from overwatch.otlp.distribution import Distribution, Explicit, Exponential, together, upper_ends
from overwatch.otlp.moments import Moments, Subject
from overwatch.otlp.result import Decoded, Point, Problem
from overwatch.otlp.totals import MAX_SERIES, Position, Step, Totals

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
        self._tallying = _Tallying(totals)
        self._disputes: list[Record] = []

    def take(self, point: Point) -> None:
        """Settle one point."""
        value = point.value
        if point.of.is_tally:
            step, first = self._tallying.take(point)
        elif isinstance(value, Distribution):
            spread = self._totals.observe(point.position, value, changes=point.of.changes)
            step, first = spread.step, spread.first
            if spread.newest is not None:
                place = point.of.origin, point.at, point.of.row.name, point.of.subject
                self._spreads.setdefault(place, (point, []))[1].append(spread.newest)
        else:
            if point.of.changes:
                step, total, first = self._totals.add(point.position, value)
            else:
                step, total, first = self._totals.watch(point.position, value, rises=point.of.rises)
            if total is not None:
                self._moments.put(point.of.origin, point.at, point.of.row, point.of.subject, total)
        self._steps[step] += 1
        if first:
            self._disputes.append(_dispute(point))

    def _spread(self, point: Point, newest: Distribution) -> None:
        """The mean of what is new as the row's value; where names may be added, about its quantiles too."""
        at = point.at
        if newest.mean is not None:
            self._moments.put(point.of.origin, at, point.of.row, point.of.subject, newest.mean)
        if point.of.row.scope not in _WHOLE:
            return
        for word, which in QUANTILES.items():
            value = newest.quantile(which)
            if value is not None:
                name = f"{CUSTOM_PREFIX}{point.of.row.short}_{word}"
                self._moments.name(point.of.origin, at, point.of.row.scope, name, ())[()] = value

    def result(self, decoded: Decoded) -> Decoded:
        """Everything, with an account of what the points were."""
        for point, newest in self._spreads.values():
            self._spread(point, together(newest))
        steps = self._steps
        problems = decoded.problems
        if steps[Step.NO_ROOM]:
            problem = Problem(
                reason="too_many_series", detail=f"more than {MAX_SERIES} series are sent at once"
            )
            problems += (problem,) * steps[Step.NO_ROOM]
        return msgspec.structs.replace(
            decoded,
            records=(*self._moments.records(), *self._tallying.records(), *self._disputes),
            problems=problems,
            series=None,
            late=steps[Step.LATE],
            resets=steps[Step.RESET],
            overlaps=steps[Step.OVERLAPPED],
        )


def _dispute(point: Point) -> Record:
    message = (
        f"two writers report {point.of.row.name} at once, as one producer: "
        "give each its own service.instance.id"
    )
    line = LogLine(at=point.at, severity=Severity.WARNING, message=message, subsystem="collector")
    return Record(origin=point.of.origin, event=line)


class Took(NamedTuple):
    """What became of a point."""

    step: Step
    first: bool
    """Whether it is the first time that two producers send its series."""


class _Tallying:
    """Points of one request on their way to one event a producer and scope."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._newest: dict[tuple[Origin, Scope], dict[str, Position]] = {}
        """The newest point of each group that counts anew."""

    def take(self, point: Point) -> Took:
        """Add one point up."""
        position, labels = self._placed(point)
        value = point.value
        if isinstance(value, Distribution):
            spread = self._totals.observe(position, value, changes=point.of.changes)
            step, first, more = spread.step, spread.first, spread.newest
        else:
            step, risen, first = self._totals.rise(position, value, changes=point.of.changes)
            more = None if risen is None else Distribution(count=0, sum=risen)
        if more is not None:
            group = self._totals.counted(position)
            known = group.tally or TallySeries(metric=point.of.row.name, labels=labels, sum=0.0)
            is_counter = not isinstance(value, Distribution)
            group.tally = _grown(known, more, None if is_counter else buckets_of(point.of.row))
            newest = self._newest.setdefault((point.of.origin, point.of.row.scope), {})
            before = newest.get(position.group)
            newest[position.group] = position if before is None or position.at >= before.at else before
        return Took(step, first)

    def _placed(self, point: Point) -> tuple[Position, dict[str, str]]:
        """Where a point counts, with its labels: with all others where its labels are one set too many."""
        words = [str(word) for word in point.of.subject]
        labels = dict(zip(words[::2], words[1::2], strict=True))
        if not labels or self._totals.has(point.position):
            return point.position, labels
        origin = point.of.origin
        key = msgspec.json.encode((origin.role, origin.rank, origin.epoch, point.of.row.name)).decode()
        sets = self._totals.label_sets.setdefault(point.of.origin.run_id, {})
        if sets.get(key, 0) < point.of.row.max_series:
            sets[key] = sets.get(key, 0) + 1
            return point.position, labels
        return point.position._replace(group=f"{key} {OTHER}"), dict.fromkeys(labels, OTHER)

    def records(self) -> Iterator[Record]:
        """What was counted, a record for each producer, scope and time."""
        for (origin, scope), groups in self._newest.items():
            by_time: dict[int, list[TallySeries]] = {}
            for position in groups.values():
                tally = self._totals.counted(position).tally
                if tally is not None:
                    by_time.setdefault(position.at, []).append(tally)
            for at, series in by_time.items():
                yield Record(origin=origin, event=Tallied(at=at, scope=scope, series=tuple(series)))


def _grown(known: TallySeries, more: Distribution, ends: tuple[float, ...] | None) -> TallySeries:
    """A series with what came anew; a counter where there are no ends of buckets."""
    total = None if known.sum is None or more.sum is None else known.sum + more.sum
    total = total if total is not None and abs(total) <= MOST_SUM else None
    if ends is None:
        return msgspec.structs.replace(known, sum=known.sum if total is None else total)
    had = known.count or 0
    if had + more.count > MOST_COUNT:
        return known
    buckets = None
    if more.shape is not None and (known.buckets is not None or not had):
        held = known.buckets or _empty(more, ends)
        buckets = held.plus(_buckets(more))
    return msgspec.structs.replace(known, sum=total, count=had + more.count, buckets=buckets)


def _empty(first: Distribution, ends: tuple[float, ...]) -> Buckets:
    """No values yet: explicit bounds as they came, else those of the row."""
    bounds = tuple(filter(math.isfinite, first.shape.bounds)) if isinstance(first.shape, Explicit) else ends
    return Buckets(bounds=bounds, counts=(0,) * (len(bounds) + 1))


def _buckets(more: Distribution) -> Buckets:
    """What came anew, between the bounds that it came with."""
    if not isinstance(more.shape, Explicit | Exponential):
        return Buckets(bounds=(), counts=(more.count,))
    pairs = upper_ends(more.shape)
    bounds = tuple(sorted({end for end, _ in pairs if math.isfinite(end)}))
    counts = [0] * (len(bounds) + 1)
    for end, count in pairs:
        counts[bisect_left(bounds, end)] += count
    return Buckets(bounds=bounds, counts=tuple(counts))
