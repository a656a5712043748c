"""Finished episodes of the fleet: each env's recent return, its earlier ones, and what is usual.

All envs share one policy, so most of their differences are luck: an env is compared with the fleet and with
itself, by medians over several episodes. Pure.
"""

import sys
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.diagnose.robust import median_of, spread_low
from overwatch.state.arrays import NORMAL, Floats
from overwatch.state.env_tables import Earned
from overwatch.state.envs import Envs

TELLING: Final = 10
"""Earlier episodes of all such envs together, below which their scatter is luck itself."""


class Earnings(msgspec.Struct, frozen=True, kw_only=True):
    """What the fleet earns."""

    num: int
    """Envs with enough finished episodes."""
    usual: float
    """The fleet's middle; the lower one of recent episodes and of each env's very last."""
    recent: float
    """Middle of the envs' recent returns."""
    earlier: float
    """Middle of their earlier ones."""
    spread: float
    """Standard deviation of the recent returns over healthy envs, robust."""
    noise: float
    """Standard deviation of single episodes, robust."""


class Returns(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet's episodes at one tick; arrays have shape (n,), NaN where an env has too few episodes."""

    judged: npt.NDArray[np.bool_]
    """Envs with enough finished episodes."""
    recent: Floats
    """Middle of the newest."""
    fleet: Earnings
    """What is usual."""


def returns_of(envs: Envs, fleet: Earnings) -> Returns | None:
    """The episodes of each env, beside what is usual; `None` where no env finished enough of them."""
    latest, n = envs.newest_sums(), envs.n
    judged = latest.judged[:n]
    return Returns(judged=judged, recent=latest.recent[:n], fleet=fleet) if judged.any() else None


def earnings_of(envs: Envs) -> Earnings | None:
    """What is usual; `None` where no env finished enough episodes, or all earned the same."""
    latest, earned, n = envs.newest_sums(), envs.sums(), envs.n
    judged = latest.judged[:n]
    if not judged.any():
        return None
    earlier = earned.earlier[:n]
    known = earlier[np.isfinite(earlier)]
    noise = _noise(earned, n)
    if noise < sys.float_info.min or not known.size:
        # Nor is a scale what no longer can be halved.
        return None
    recent = latest.recent[:n][judged]
    middle = median_of(recent)
    # A median of five scatters by about half of what one episode does.
    spread = max(spread_low(recent) if recent.size > 1 else 0.0, noise / 2)
    return Earnings(
        num=int(recent.size),
        usual=min(middle, median_of(earned.last[:n][judged])),
        recent=middle,
        earlier=median_of(known),
        spread=spread,
        noise=noise,
    )


def _noise(earned: Earned, n: int) -> float:
    """Scatter of one env's episodes: the fleet's median of it, else of all episodes together."""
    scatter = earned.scatter[:n]
    own = scatter[np.isfinite(scatter)]
    if own.size:
        before = int(earned.before[:n][np.isfinite(scatter)].sum())
        typical = NORMAL * median_of(own) if before >= TELLING else 0.0
        if typical > 0:
            return typical
    # Few episodes, or most of them equal (sparse, saturated rewards): the rare ones set the scale.
    count = earned.count[:n]
    known = count > 0
    count, centre, squares = count[known], earned.centre[:n][known], earned.squares[:n][known]
    total, apart = float(count.sum()), centre - centre[0]
    apart = apart - float((count * apart).sum()) / total
    variance = float((squares + count * apart * apart).sum()) / total
    return float(variance**0.5)
