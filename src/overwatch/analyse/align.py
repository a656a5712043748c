"""Two curves along one axis: by update, by time since each run began, or by env steps. Pure."""

from dataclasses import dataclass

import numpy as np

from overwatch.analyse.curves import Axis, Curve
from overwatch.analyse.effect import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Values of two curves at the same places; arrays of one length."""

    x: Floats
    a: Floats
    b: Floats


def aligned(first: Curve, second: Curve, axis: Axis) -> Aligned:
    """By update, what both have; else at the places of the sparser one, each with its newest value by then.

    Only where both have begun and neither is over. Of a place that was told twice, as after a restart from a
    checkpoint, the later value counts.
    """
    (xa, a), (xb, b) = along(first, axis), along(second, axis)
    if axis == "update":
        x, at_a, at_b = np.intersect1d(xa, xb, assume_unique=True, return_indices=True)
        return Aligned(x=x, a=a[at_a], b=b[at_b])
    if not len(xa) or not len(xb):
        return Aligned(x=np.zeros(0), a=np.zeros(0), b=np.zeros(0))
    low, high = max(xa[0], xb[0]), min(xa[-1], xb[-1])
    counts = [int(np.count_nonzero((x >= low) & (x <= high))) for x in (xa, xb)]
    grid = xa if counts[0] <= counts[1] else xb
    x = grid[(grid >= low) & (grid <= high)]
    return Aligned(x=x, a=_held(xa, a, x), b=_held(xb, b, x))


def along(curve: Curve, axis: Axis) -> tuple[Floats, Floats]:
    """Places and values of a curve, by rising place, each place once."""
    x, values = np.array(curve.along(axis)), np.array(curve.value)
    if axis == "update":
        x = np.round(x)
    backwards, first = np.unique(x[::-1], return_index=True)
    return backwards, values[::-1][first]


def _held(x: Floats, values: Floats, wanted: Floats) -> Floats:
    held: Floats = values[np.searchsorted(x, wanted, side="right") - 1]
    return held
