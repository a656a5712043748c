"""Where two curves part: the first place from which their difference stands out of both curves' own noise.

Both are cut into the same blocks, at most `BLOCKS`, of at least `LEAST` values each. A block tells its
median. The noise of a curve is how much the medians of neighbouring blocks differ beyond its usual slope
(MAD). Two curves have parted at the first block where their medians differ by `APART` times the noise of both
together, to the same side, in it and in the blocks after it, `HOLD` in all. Pure.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from overwatch.analyse.align import Aligned
from overwatch.analyse.effect import Floats, noise

BLOCKS: Final = 40
LEAST: Final = 4
NEEDS: Final = 6
"""Blocks that are needed to know a curve's noise."""
APART: Final = 5.0
HOLD: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """How two curves go beside one another."""

    identical_until: float | None
    """Last place up to which every value is the same to the bit; `None` where the first are not."""
    identical: bool
    """Whether all of them are."""
    parted: tuple[float, float] | None = None
    """First and last place of the block in which they part; `None` where they do not."""
    from_start: bool = False
    """Whether that is the first block."""
    times_noise: float | None = None
    """How far apart they are there, in the noise of both."""
    why: str | None = None
    """Why it cannot be told."""


def divergence(pair: Aligned) -> Divergence:
    """Where the two part."""
    a, b = pair.a, pair.b
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    begun = int(np.argmin(same)) if len(same) and not same.all() else len(same)
    until = float(pair.x[begun - 1]) if begun else None
    identical = bool(len(same)) and bool(same.all())
    known = np.isfinite(a) & np.isfinite(b)
    x, a, b = pair.x[known], a[known], b[known]
    size = max(LEAST, -(-len(x) // BLOCKS))
    n = len(x) // size
    if n < NEEDS:
        why = f"{len(x)} values in common, it needs {NEEDS * LEAST}"
        return Divergence(identical_until=until, identical=identical, why=why)
    apart, first = _apart(a, b, size, n)
    if first is None:
        return Divergence(identical_until=until, identical=identical)
    return Divergence(
        identical_until=until,
        identical=identical,
        parted=(float(x[first * size]), float(x[first * size + size - 1])),
        from_start=first == 0,
        times_noise=round(abs(float(apart[first])), 2),
    )


def _apart(a: Floats, b: Floats, size: int, n: int) -> tuple[Floats, int | None]:
    """How far the blocks are apart, in noise, and the first that begins `HOLD` to one side."""
    medians = [np.median(side[: n * size].reshape(n, size), axis=1) for side in (a, b)]
    scale = float(np.max(np.abs(medians))) if n else 0.0
    both = math.hypot(noise(medians[0]), noise(medians[1]))
    apart: Floats = (medians[1] - medians[0]) / max(both, 1e-9 * scale, 1e-300)
    sides = np.where(apart >= APART, 1, np.where(apart <= -APART, -1, 0))
    for first in range(n - HOLD + 1):
        if sides[first] and (sides[first : first + HOLD] == sides[first]).all():
            return apart, first
    return apart, None
