"""Least squares with what else moved the values taken out, and a standard error that knows of echoes.

The slope of y on x beside other columns is that of what is left of both once the others are projected out
(Frisch and Waugh 1933). Updates that follow one another are alike, so the error grows as for as many fewer
values as their lag-1 autocorrelation leaves (Bayley and Hammersley 1946; Santer et al. 2000), which is itself
corrected for its bias in short series (Marriott and Pope 1954). Least squares and not Theil-Sen: with other
columns there is no median of slopes; an outlier makes the error larger with the slope, so that it silences
and does not alarm. Pure; + − × ÷ and square roots only.
"""

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

from overwatch.events.adding import added

NOTHING: Final = 1e-9
"""Share of a column's size that rounding may leave of it."""
FEWEST: Final = 3.0
"""Values that a series counts as, however alike they are."""


class Fit(NamedTuple):
    """A slope, and how sure it is."""

    slope: float
    error: float
    """Standard error of the slope."""
    scatter: float
    """Standard deviation of what the fit leaves."""

    @property
    def sure(self) -> float:
        """The slope in standard errors; what leaves nothing is as sure as can be."""
        if self.error > 0:
            return self.slope / self.error
        return 0.0 if not self.slope else CERTAIN if self.slope > 0 else -CERTAIN


CERTAIN: Final = 1e9
"""Standard errors of what leaves nothing to chance."""


class Beside:
    """The slope on `x`, with the `others` taken out of all of it."""

    def __init__(self, x: Sequence[float], others: Sequence[Sequence[float]] = ()) -> None:
        self._basis = _basis([[1.0] * len(x), *others])
        self._x = _left(x, self._basis)
        self._free = len(x) - len(self._basis) - 1

    def fit(self, y: Sequence[float]) -> Fit | None:
        """The slope of `y`; `None` where either is constant once the others are taken out, or few."""
        x, left = self._x, _left(y, self._basis)
        if self._free < 1 or x is None or left is None:
            return None
        square = _dot(x, x)
        slope = _dot(x, left) / square
        rest = [value - slope * at for value, at in zip(left, x, strict=True)]
        scatter = (_dot(rest, rest) / self._free) ** 0.5
        if scatter <= NOTHING * _dot(left, left) ** 0.5:
            return Fit(slope, 0.0, 0.0)
        return Fit(slope, scatter / square**0.5 * _echo(rest), scatter)


def _echo(rest: Sequence[float]) -> float:
    """By how much the standard error grows, since each value echoes the one before it."""
    n = len(rest)
    alike = added(one * other for one, other in itertools.pairwise(rest)) / _dot(rest, rest)
    alike = min(max((n * alike + 2.0) / (n - 4.0), 0.0), 1.0) if n > 2 * FEWEST else 0.0
    worth = max(n * (1.0 - alike) / (1.0 + alike), FEWEST)
    return float(max(1.0, n / worth) ** 0.5)


def _basis(columns: Sequence[Sequence[float]]) -> list[list[float]]:
    """The columns, each at right angles to those before it; one that follows from them is left out."""
    basis: list[list[float]] = []
    for column in columns:
        left = _left(column, basis)
        if left is not None:
            basis.append(left)
    return basis


def _left(values: Sequence[float], basis: Sequence[Sequence[float]]) -> list[float] | None:
    """What is left of values once the basis is taken out; `None` for nothing but rounding."""
    left, size = list(values), _dot(values, values)
    for _ in range(2):  # What one pass leaves of large values by rounding, the second takes.
        for column in basis:
            share = _dot(left, column) / _dot(column, column)
            left = [value - share * one for value, one in zip(left, column, strict=True)]
    return left if _dot(left, left) > NOTHING * NOTHING * size else None


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return added(a * b for a, b in zip(one, other, strict=True))
