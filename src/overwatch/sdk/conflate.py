"""Many updates become one, and no breach is lost: what is kept of each name until it can be sent.

Owns the folding; pure. Of each name the number of values, the last, the finite extremes and how many were
beyond each absolute limit are kept; relative limits need the run's own median, which only the tower has.
Must not know where updates come from or where they go.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, assert_never

import msgspec

from overwatch.catalog import BY_NAME, Limit, Metric, NonFinite, Scope, Side, chosen_by
from overwatch.catalog.judging import run_limits
from overwatch.catalog.presets import DEFAULT
from overwatch.events import Column, Conflated, Measured, NonFiniteSeen, scalars

MAX_NAMES: Final = 1024
"""Names that one folding keeps; a run has fewer."""


class Count(NamedTuple):
    """How many updates: those of one number that follow one another are one."""

    n: int
    first: int | None
    """Number of the first; `None` where it has none."""
    last: int | None

    @classmethod
    def of(cls, indices: Sequence[int | None]) -> "Count":
        """Of calls with these numbers, at least one, in their order."""
        again = sum(index is not None and index == before for before, index in pairwise(indices))
        return cls(len(indices) - again, indices[0], indices[-1])

    def then(self, more: "Count") -> "Count":
        """These, and those that follow."""
        again = self.n > 0 and more.first is not None and more.first == self.last
        return Count(self.n + more.n - again, more.first if not self.n else self.first, more.last)


NO_UPDATES: Final = Count(0, None, None)


class Series(msgspec.Struct, kw_only=True):
    """What is kept of one name."""

    n: int = 0
    last: float = 0.0
    low: float | None = None
    high: float | None = None
    """Extremes of the finite values; `None` while there were none."""
    warnings: int = 0
    """Values beyond the warning limit and not the critical one."""
    criticals: int = 0
    nan: int = 0
    inf: int = 0


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """Several policy updates as one."""

    n: int
    """Calls."""
    at: int
    """Time of the last, Unix nanoseconds."""
    index: int | None = None
    """Number of the last."""
    first: int | None = None
    """Number of the first."""
    updates: int | None = None
    """How many updates these calls are; `None` where that is `n`."""
    values: dict[str, Series]

    def events(self) -> Iterator[Measured | NonFiniteSeen]:
        """As the tower takes them: one measurement for each set of names that came equally often.

        The first counts all updates, the others none. The last value of each name is in a measurement, also
        when it is not finite. Earlier ones that had to be finite and were not are one fact for each name.
        """
        count = Count(self.n if self.updates is None else self.updates, self.first, self.index)
        for n in sorted({series.n for series in self.values.values()}, reverse=True) or [self.n]:
            names = {name: series for name, series in self.values.items() if series.n == n}
            yield Measured(
                at=self.at,
                scope=Scope.POLICY,
                values=scalars({name: series.last for name, series in names.items()}),
                index=self.index,
                conflated=None if n == count.n == 1 else _conflated(n, names, count),
            )
            count = NO_UPDATES
        for name, series in self.values.items():
            row = BY_NAME.get(name)
            if row is not None and row.non_finite is NonFinite.CRITICAL:
                yield from self._non_finite(name, series)

    def _non_finite(self, name: str, series: Series) -> Iterator[NonFiniteSeen]:
        nan = series.nan - math.isnan(series.last)
        inf = series.inf - math.isinf(series.last)
        for kind, count in (("nan", nan), ("inf", inf)):
            if count:
                yield NonFiniteSeen(at=self.at, scope=Scope.POLICY, metric=name, kind=kind, count=count)


def _conflated(n: int, names: Mapping[str, Series], count: Count) -> Conflated:
    if n == 1:
        return Conflated(n=1, first=count.first, updates=count.n)
    judged = {name: series for name, series in names.items() if _has_limits(BY_NAME.get(name))}
    return Conflated(
        n=n,
        first=count.first,
        updates=count.n,
        low={name: Column.scalar(s.low) for name, s in judged.items() if s.low is not None},
        high={name: Column.scalar(s.high) for name, s in judged.items() if s.high is not None},
        warnings={name: s.warnings for name, s in judged.items() if s.warnings},
        criticals={name: s.criticals for name, s in judged.items() if s.criticals},
    )


def _has_limits(row: Metric | None) -> bool:
    return row is not None and bool(row.limits.warning or row.limits.critical or row.presets)


class Conflator:
    """Folds updates until they are taken, judged as a run of this preset and configuration is.

    Up to `together` updates of the same names are folded at once: each by itself costs several times as much.
    For one thread at a time.
    """

    def __init__(
        self, preset: str | None = "ppo", config: Mapping[str, str] | None = None, *, together: int = 1024
    ) -> None:
        """Without a preset the names choose it."""
        self._preset = preset
        self._config = config or {}
        self._together = together
        self._levels: dict[str, tuple[tuple[Limit, ...], tuple[Limit, ...]]] = {}
        """By name its absolute limits on either side, of warning and critical."""
        self._values: dict[str, Series] = {}
        self._at = 0
        self._count = NO_UPDATES
        self._names: tuple[str, ...] = ()
        self._rows: list[Sequence[float]] = []
        """Values of the updates of these names that are still to be folded."""
        self._indices: list[int | None] = []
        """Of the same."""
        self.n = 0
        """Calls that wait to be taken."""

    def add(self, at: int, values: Mapping[str, float], index: int | None = None) -> None:
        """Fold in one update under full names; of more than `MAX_NAMES` names the rest is left out."""
        self.add_row(tuple(values), tuple(values.values()), at, index)

    def add_row(self, names: tuple[str, ...], values: Sequence[float], at: int, index: int | None) -> None:
        """The same of an update whose values are in the order of their names."""
        # Of names that two sets have the last value counts, so those that came between are folded first.
        if names != self._names or len(self._rows) >= self._together:
            self._fold_rows()
            self._names = names
        self._rows.append(values)
        self._indices.append(index)
        self._at = at
        self.n += 1

    def _fold_rows(self) -> None:
        if not self._rows:
            return
        rows, indices, self._rows, self._indices = self._rows, self._indices, [], []
        self._count = self._count.then(Count.of(indices))
        for name, values in zip(self._names, zip(*rows, strict=True), strict=False):
            series = self._values.get(name)
            if series is None:
                if len(self._values) >= MAX_NAMES:
                    continue
                series = self._values[name] = Series()
            self._fold(name, series, values)

    def _fold(self, name: str, series: Series, values: Sequence[float]) -> None:
        """Fold in values; they are sorted and counted only where an extreme crosses a limit."""
        series.n += len(values)
        series.last = values[-1]
        # An infinity or NaN makes the sum one; so does a sum too large, which then costs time only.
        if not math.isfinite(sum(values)):
            series.nan += sum(map(math.isnan, values))
            series.inf += sum(map(math.isinf, values))
            values = [value for value in values if math.isfinite(value)]
            if not values:
                return
        low, high = min(values), max(values)
        series.low = low if series.low is None else min(series.low, low)
        series.high = high if series.high is None else max(series.high, high)
        warning, critical = self._levels.get(name) or self._levels_of(name)
        if _reaches(critical, low, high) or _reaches(warning, low, high):
            ordered = sorted(values)
            criticals = _beyond(critical, ordered)
            series.warnings += _beyond((*warning, *critical), ordered) - criticals
            series.criticals += criticals

    def _levels_of(self, name: str) -> tuple[tuple[Limit, ...], tuple[Limit, ...]]:
        if self._preset is None and (chosen := chosen_by((name,))) is not None:
            self._preset, self._levels = chosen, {}
        row = BY_NAME.get(name)
        limits = None if row is None else run_limits(row, self._preset or DEFAULT, self._config)
        # A row that is judged by the mean of many has no breaches of single values.
        sides = () if limits is None or (row is not None and row.mean_of > 1) else limits.sides
        found = _absolute(side.warning for side in sides), _absolute(side.critical for side in sides)
        if len(self._levels) < MAX_NAMES:
            self._levels[name] = found
        return found

    def flush(self) -> Folded | None:
        """Everything since the last time as one, `None` when there was nothing."""
        if not self.n:
            return None
        self._fold_rows()
        count = self._count
        folded = Folded(
            n=self.n, at=self._at, index=count.last, first=count.first, updates=count.n, values=self._values
        )
        self._values, self.n, self._count = {}, 0, NO_UPDATES
        return folded


def _reaches(limits: tuple[Limit, ...], low: float, high: float) -> bool:
    """Whether one of some values may cross a limit; these are their extremes."""
    for limit in limits:
        if limit.side.crossed(low, limit.value) or limit.side.crossed(high, limit.value):
            return True
    return False


def _beyond(limits: tuple[Limit, ...], values: Sequence[float]) -> int:
    """How many of some values, in ascending order, cross one limit or more."""
    below = above = 0
    for limit in limits:
        match limit.side:
            case Side.BELOW:
                below = max(below, bisect_left(values, limit.value))
            case Side.AT_OR_BELOW:
                below = max(below, bisect_right(values, limit.value))
            case Side.ABOVE:
                above = max(above, len(values) - bisect_right(values, limit.value))
            case Side.AT_OR_ABOVE:
                above = max(above, len(values) - bisect_left(values, limit.value))
            case _:
                assert_never(limit.side)
    return min(below + above, len(values))


def _absolute(limits: Iterable[Limit | None]) -> tuple[Limit, ...]:
    return tuple(limit for limit in limits if limit is not None and not limit.relative)
