"""Finished episodes of the fleet: each env's recent return, its earlier ones, and what is usual.

All envs share one policy, so most of their differences are luck: an env is compared with the fleet and with
itself, by medians over several episodes. Pure.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch.diagnose.robust import NORMAL, middle, spread_low, usable
from overwatch.state.arrays import Floats
from overwatch.state.envs import RETURNS, Envs

LEAST: Final = 5
"""Episodes of the present task from which on an env is judged."""
RECENT: Final = 5
"""Newest episodes that tell what an env earns now; while there are few in all, one less."""
EARLIER: Final = 5
"""Episodes before those from which on there are enough."""
TELLING: Final = 10
"""Earlier episodes of all such envs together, below which their scatter is luck itself."""
_MIDDLE: Final = 2
"""Place, from the lowest, of the recent return: the median of five, the upper one of four."""
_LASTING: Final = 3
"""Place of the one that must be low too: four of five, or all four."""


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
    comparable = (envs.episodes - envs.outdated)[: envs.n]
    judged = comparable >= LEAST
    if not judged.any():
        return None
    newest = usable(envs.newest_returns(RECENT))
    judged &= np.isfinite(newest).all(axis=1)
    if not judged.any():
        return None
    have = comparable[judged, None]
    num_recent = np.where(have < RECENT + EARLIER, RECENT - 1, RECENT)
    told = usable(envs.newest_returns(RETURNS)[judged])
    back = np.arange(RETURNS)
    ordered = np.sort(np.where(back < num_recent, told, np.nan)[:, :RECENT], axis=1)
    before = np.where((back >= num_recent) & (back < have), told, np.nan)
    recent, earlier = ordered[:, _MIDDLE], middle(before)
    noise = _noise(before, earlier, ordered)
    if noise <= 0 or not np.isfinite(earlier).any():
        return None
    shape = envs.n
    # A median of five scatters by about half of what one episode does.
    spread = max(spread_low(recent) if recent.size > 1 else 0.0, noise / 2)
    return Returns(
        judged=judged,
        recent=_scattered(shape, judged, recent),
        earlier=_scattered(shape, judged, earlier),
        usual=min(float(np.median(recent)), float(np.median(newest[judged][:, 0]))),
        fleet_recent=float(np.median(recent)),
        fleet_earlier=float(np.median(earlier[np.isfinite(earlier)])),
        spread=spread,
        noise=noise,
        fourth=_scattered(shape, judged, ordered[:, _LASTING]),
    )


def _noise(before: Floats, earlier: Floats, ordered: Floats) -> float:
    """Scatter of one env's episodes: the fleet's median of it, else of all episodes together."""
    counts = np.isfinite(before).sum(axis=1)
    long = counts >= EARLIER
    own = middle(np.abs(before - earlier[:, None]))[long]
    typical = NORMAL * float(np.median(own)) if int(counts[long].sum()) >= TELLING else 0.0
    if typical > 0:
        return typical
    # Few episodes, or most of them equal (sparse, saturated rewards): the rare ones set the scale.
    everything = np.concatenate([before[np.isfinite(before)], ordered[np.isfinite(ordered)]])
    centre = float(np.median(everything))
    apart = everything - centre
    return float(np.sqrt((apart * apart).sum() / everything.size))


def _scattered(n: int, judged: npt.NDArray[np.bool_], values: Floats) -> Floats:
    whole = np.full(n, np.nan)
    whole[judged] = values
    return whole
