"""How much two stretches of numbers differ, and how sure that is. Pure: the same numbers, the same answer.

Numbers of one run follow one another: neighbours are alike, so n of them are worth fewer than n. What is
concluded here counts with that (`worth`).
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Verdict = Literal["worse", "better", "higher", "lower", "same", "unclear", "no verdict"]
"""What there is to see first comes first."""

NEEDS: Final = 20
"""Values that each side needs for a verdict."""
NEEDS_WORTH: Final = 10.0
"""Independent values that each side needs to be worth."""
MATTERS: Final = 0.33
"""Cliff's delta from which a difference is more than small (Romano et al., 2006)."""
CONFIDENCE: Final = 0.99
"""Of the interval. With twenty numbers compared at 0.95 one would be wrong."""
_NOTHING: Final = 1e-24
MOST: Final = 400
"""Newest values of each side that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How far the second stretch lies from the first."""

    n: tuple[int, int]
    worth: tuple[float, float]
    """Independent values that they are worth."""
    median: tuple[float | None, float | None]
    delta: float | None = None
    """Cliff's delta, -1 to 1: how much more often the second is above the first than below."""
    interval: tuple[float, float] | None = None
    """Of delta."""
    g: float | None = None
    """Hedges' g: the difference of the means in pooled standard deviations; `None` where nothing scatters."""
    verdict: Verdict = "no verdict"
    why: str | None = None
    """Why there is no verdict."""


def change(first: float | None, second: float | None) -> str:
    """How much the second is more than the first, in per cent of it; a dash where that means nothing."""
    if first is None or second is None or not first or first * second < 0:
        return "–"
    share = second / first - 1
    return f"{share:+.1%}" if abs(share) < 10 else f"×{second / first:,.1f}"


def effect(first: Floats, second: Floats, direction: str | None, *, parted: bool = False) -> Effect:
    """Compare two stretches; `direction` is which way is good. Values that are not finite are left out.

    Too few independent values are enough where the curves have `parted` out of their noise, and all of one
    stretch is beyond all of the other.
    """
    a, b = (side[np.isfinite(side)][-MOST:] for side in (first, second))
    told = Effect(n=(len(a), len(b)), worth=(worth(a), worth(b)), median=(_median(a), _median(b)))
    if min(told.n) < NEEDS:
        return replace(told, why=f"{min(told.n)} values, a verdict needs {NEEDS} of each run")
    delta = cliffs_delta(a, b)
    interval = _interval(a, b, delta)
    told = replace(told, delta=delta, interval=interval, g=hedges_g(a, b))
    if np.array_equal(a, b):
        return replace(told, verdict="same", why="identical")
    if (parted and abs(delta) == 1) or (_still(a) and _still(b)):
        return replace(told, verdict=_called(delta, direction))
    if min(told.worth) < NEEDS_WORTH:
        few = f"{min(told.n)} values that follow one another are worth {min(told.worth):.1f}"
        return replace(told, why=f"{few}, a verdict needs {NEEDS_WORTH:g}")
    return replace(told, verdict=_verdict(delta, interval, direction))


def _verdict(delta: float, interval: tuple[float, float], direction: str | None) -> Verdict:
    low, high = interval
    if low > -MATTERS and high < MATTERS:
        return "same"
    if low * high <= 0 or abs(delta) < MATTERS:
        return "unclear"
    return _called(delta, direction)


def _called(delta: float, direction: str | None) -> Verdict:
    if direction is None:
        return "higher" if delta > 0 else "lower"
    return "better" if (delta > 0) == (direction == "up") else "worse"


def cliffs_delta(a: Floats, b: Floats) -> float:
    """Share of pairs in which the second is larger, less the share in which it is smaller."""
    return float(_signs(a, b).mean())


def hedges_g(a: Floats, b: Floats) -> float | None:
    """Difference of the means in pooled standard deviations, corrected for small samples."""
    rest = len(a) + len(b) - 2
    scatter = math.sqrt((np.var(a, ddof=1) * (len(a) - 1) + np.var(b, ddof=1) * (len(b) - 1)) / rest)
    if not scatter or not math.isfinite(scatter):
        return None
    return float((b.mean() - a.mean()) / scatter) * (1 - 3 / (4 * rest - 1))


def worth(values: Floats) -> float:
    """How many independent values as many in a row are worth, by how alike neighbours are.

    n over one plus twice the sum of autocorrelations around a straight line, up to the first that is not
    above 0. A stretch without scatter is worth one value.
    """
    n = len(values)
    if n < 4:
        return float(min(n, 1))
    middle = np.arange(n) - (n - 1) / 2
    apart = values - values.mean()
    apart = apart - middle * float(middle @ apart) / float(middle @ middle)
    whole = float(apart @ apart)
    if whole <= _NOTHING * float(values @ values):
        return 1.0
    alike = 0.0
    for lag in range(1, n - 1):
        share = float(apart[:-lag] @ apart[lag:]) / whole
        share += 2 * (1 + 2 * share) / n  # what taking a line away took with it (Marriott and Pope, 1954)
        if share <= 0:
            break
        alike += share
    return n / (1 + 2 * alike)


def noise(values: Floats) -> float:
    """Robust standard deviation of the noise around whatever way the values go."""
    if len(values) < 3:
        return 0.0
    hops = np.diff(values)
    return float(1.4826 * np.median(np.abs(hops - np.median(hops))) / math.sqrt(2))


def _still(values: Floats) -> bool:
    return bool(len(values)) and bool(values.min() == values.max())


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def _signs(a: Floats, b: Floats) -> Floats:
    signs: Floats = np.sign(b[None, :] - a[:, None])
    return signs


def _interval(a: Floats, b: Floats, delta: float) -> tuple[float, float]:
    """Of delta, by Feng and Cliff (2004): within -1 and 1. Each side counts what it is worth."""
    signs = _signs(a, b)
    mine, theirs = worth(a), worth(b)
    spreads = [float(np.var(signs.mean(axis=side), ddof=1)) for side in (1, 0)]
    spread = spreads[0] / mine + spreads[1] / theirs
    t = _student(max(1.0, mine + theirs - 2))
    if abs(delta) == 1:
        least = min(mine, theirs)
        inner = max(-1.0, (least - t * t) / (least + t * t))
        return (inner, 1.0) if delta > 0 else (-1.0, -inner)
    wide = t * t * spread
    middle, half = delta - delta**3, t * math.sqrt(spread) * math.sqrt((1 - delta * delta) ** 2 + wide)
    whole = 1 - delta * delta + wide
    return max(-1.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def _student(freedom: float) -> float:
    """Student's t at the two-sided `CONFIDENCE`, by the series of Cornish and Fisher."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
