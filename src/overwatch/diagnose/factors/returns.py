"""Envs whose finished episodes earn far less than the fleet's, and than their own did."""

from typing import Final

import numpy as np

from overwatch.diagnose.factor import SOFT_CAP, Factor
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.returns import Returns
from overwatch.diagnose.robust import NORMAL, far

LEAST_ENVS: Final = 8
"""Fewer envs have no distribution to stand out from."""


def reward_collapse(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Far below the fleet and below its own earlier episodes, four of the last five times (at first of four).

    The limit grows with the size of the fleet. Says nothing about single envs when many fall at once.
    """
    returns = fleet.returns
    if returns is None:
        return None
    num_judged = int(returns.judged.sum())
    if num_judged < LEAST_ENVS:
        return None
    limit = far(num_judged, limits.margin)
    low = (returns.usual - returns.recent) / returns.spread
    own = (returns.earlier - returns.recent) / max(returns.spread, returns.noise)
    lasting = (returns.usual - returns.fourth) / returns.spread >= limit / 2
    with np.errstate(invalid="ignore"):
        fell = returns.judged & (low >= limit) & (own >= limits.own_drop) & lasting
    if not fell.any() or int(fell.sum()) > limits.crowd * num_judged:
        return None
    return Factor(
        name="reward collapse",
        status="degraded",
        weight=np.where(fell, np.minimum(1.0 + low / limit, SOFT_CAP), 0.0),
        say=lambda row: f"return {low[row] * NORMAL:.1f} mad low",
    )


def fleet_fell(returns: Returns, limits: AnomalyLimits) -> float | None:
    """By how many standard deviations the whole fleet's return fell, where that is a collapse.

    A few envs must fall further than many, up to twice as far for one alone.
    """
    scale = max(returns.spread, returns.noise, 0.05 * abs(returns.fleet_earlier))
    drop = (returns.fleet_earlier - returns.fleet_recent) / scale
    least = limits.fleet_drop * (1.0 + 1.0 / float(returns.judged.sum()) ** 0.5)
    return drop if drop >= least else None
