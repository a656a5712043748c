"""Finished episodes of the fleet: each env's recent return, its earlier ones, and what is usual.

All envs share one policy, so most of their differences are luck: an env is compared with the fleet and with
itself, by medians over several episodes. Pure.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch.diagnose.robust import NORMAL, median_of, spread_low
from overwatch.state.arrays import Floats
from overwatch.state.earned import Earned
from overwatch.state.envs import Envs

TELLING: Final = 10
"""Earlier episodes of all such envs together, below which their scatter is luck itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    """The fleet's episodes at one tick; arrays have shape (n,), NaN where an env has too few episodes."""

    judged: npt.NDArray[np.bool_]
    """Envs with enough finished episodes."""
    recent: Floats
    """Middle of the newest."""
    earlier: Floats
    """Median of those before."""
    usual: float
    """The fleet's middle; the lower one of recent episodes and of each env's very last."""
    fleet_recent: float
    """Middle of `recent`."""
    fleet_earlier: float
    """Middle of `earlier`."""
    spread: float
    """Standard deviation of `recent` over healthy envs, robust."""
    noise: float
    """Standard deviation of single episodes, robust."""
    fourth: Floats
    """The fourth lowest of the newest."""


def returns_of(envs: Envs) -> Returns | None:
    """The fleet's episodes; `None` where no env finished enough of them, or all earned the same."""
    earned, n = envs.sums(), envs.n
    judged: npt.NDArray[np.bool_] = earned.count[:n] > 0
    if not judged.any():
        return None
    earlier = earned.earlier[:n]
    known = earlier[np.isfinite(earlier)]
    noise = _noise(earned, n)
    if noise <= 0 or not known.size:
        return None
    recent = earned.recent[:n][judged]
    fleet_recent = median_of(recent)
    # A median of five scatters by about half of what one episode does.
    spread = max(spread_low(recent) if recent.size > 1 else 0.0, noise / 2)
    return Returns(
        judged=judged,
        recent=earned.recent[:n],
        earlier=earlier,
        usual=min(fleet_recent, median_of(earned.last[:n][judged])),
        fleet_recent=fleet_recent,
        fleet_earlier=median_of(known),
        spread=spread,
        noise=noise,
        fourth=earned.lasting[:n],
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
