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

RECENT: Final = 5
"""Newest episodes whose median is an env's recent return."""
EARLIER: Final = 5
"""Least number of episodes before those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    """The fleet's episodes at one tick; arrays have shape (n,), NaN where an env has too few episodes."""

    judged: npt.NDArray[np.bool_]
    """Envs with enough finished episodes."""
    recent: Floats
    """Median of the newest five."""
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
    second_best: Floats
    """The second best of the newest five."""


def returns_of(envs: Envs) -> Returns | None:
    """The fleet's episodes; `None` where no env finished enough of them, or all earned the same."""
    comparable = (envs.episodes - envs.outdated)[: envs.n]
    judged = comparable >= RECENT + EARLIER
    if not judged.any():
        return None
    newest = usable(envs.newest_returns(RECENT))
    judged &= np.isfinite(newest).all(axis=1)
    if not judged.any():
        return None
    older = envs.newest_returns(RETURNS - RECENT, skip=RECENT)
    same_task = np.arange(RECENT, RETURNS) < comparable[:, None]
    before = usable(np.where(same_task, older, np.nan)[judged])
    ordered = np.sort(newest[judged], axis=1)
    recent, earlier = ordered[:, RECENT // 2], middle(before)
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
        second_best=_scattered(shape, judged, ordered[:, -2]),
    )


def _noise(before: Floats, earlier: Floats, ordered: Floats) -> float:
    """Scatter of one env's episodes: the fleet's median of it, else of all episodes together."""
    own = middle(np.abs(before - earlier[:, None]))
    known = own[np.isfinite(own)]
    typical = NORMAL * float(np.median(known)) if known.size else 0.0
    if typical > 0:
        return typical
    # Most episodes are equal: sparse or saturated rewards. The rare ones set the scale.
    everything = np.concatenate([before[np.isfinite(before)], ordered.ravel()])
    centre = float(np.median(everything))
    apart = everything - centre
    return float(np.sqrt((apart * apart).sum() / everything.size))


def _scattered(n: int, judged: npt.NDArray[np.bool_], values: Floats) -> Floats:
    whole = np.full(n, np.nan)
    whole[judged] = values
    return whole
