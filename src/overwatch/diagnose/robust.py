"""Statistics that a few bad envs cannot move, and limits that grow with the number of envs.

Pure. Only + − × ÷, square roots, sorts and sums, so every machine gets the same bits.
"""

from typing import Final

import numpy as np

from overwatch.state.arrays import NORMAL, Floats

SMALL: Final = 2048
"""Up to so many values a sort costs less than a partition and a maximum."""
_TAIL: Final = 1.2816
"""Standard deviations between the median and the outermost tenth, for normal data."""
_MANY: Final = 50
"""Events from which on their number gives the rate."""
_LN2: Final = 0.6931471805599453


def ln_above(n: int) -> float:
    """A number no smaller than ln n and at most ln 2 larger, for n ≥ 1."""
    return (n - 1).bit_length() * _LN2


def far(n: int, margin: float) -> float:
    """How many standard deviations the worst of n healthy envs may lie from the middle, and `margin` more."""
    return float((2.0 * ln_above(max(2, n))) ** 0.5) + margin


def median_of(values: Floats) -> float:
    """Median of at least one finite value, shape (k,)."""
    half = values.size // 2
    parted = values.copy()
    if values.size <= SMALL:
        parted.sort()
        low = parted.item(half - 1)
    else:
        parted.partition(half)
        low = np.maximum.reduce(parted[:half]).item()
    high: float = parted.item(half)
    # Two zeros are equal, so how they are sorted is up to the machine: the sum has one sign.
    return (high if values.size % 2 else (low + high) / 2) + 0.0


def spread_low(values: Floats) -> float:
    """Standard deviation of at least two finite values, told by their middle and their lower side.

    Where the outermost tenth on the low side begins counts too, so that a long tail is no outlier of its own.
    """
    ordered = np.sort(values)
    half = ordered.size // 2
    centre = float(ordered[half]) if ordered.size % 2 else float(ordered[half - 1] + ordered[half]) / 2
    mad = median_of(np.abs(ordered - centre))
    tenth = float(ordered[-(-ordered.size // 10)])
    return max(NORMAL * mad, (centre - tenth) / _TAIL)


def spread_high(values: Floats) -> float:
    """As `spread_low`, by the upper side."""
    return spread_low(-values)


def most_events(mean: float, n: int) -> int:
    """The least count that not one in a hundred fleets of n envs reaches by chance around `mean`."""
    budget = 0.01 / n
    if mean > 50:
        return int(mean + (far(n, 3.0)) * mean**0.5) + 1
    term = _fading(mean)
    tail, count = 1.0, 0
    while tail > budget and count < 1_000:
        tail -= term
        count += 1
        term *= mean / count
        if tail < 1e-9:
            break
    return count


def most_events_after(known: int, times: float, n: int) -> int:
    """As `most_events`, where the mean is known by `known` events in so many times as long.

    What a few events give is an interval and no rate.
    """
    if known > _MANY:
        return most_events(known / times, n)
    budget, fresh = 0.01 / n, 1.0 / (1.0 + times)
    term = 1.0
    for _ in range(known + 1):
        term *= 1.0 - fresh
    tail, count = 1.0, 0
    while tail > budget and count < 1_000:
        tail -= term
        term *= fresh * (known + 1 + count) / (count + 1)
        count += 1
    return count


def _fading(x: float) -> float:
    """Exponential of −x for 0 ≤ x ≤ 50, by squaring; the same bits on every machine."""
    small = 1.0 - x / 4096.0 + (x / 4096.0) * (x / 4096.0) / 2.0
    for _ in range(12):
        small *= small
    return small
