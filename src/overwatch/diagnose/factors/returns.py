"""Envs whose finished episodes earn far less than the fleet's, and than their own did."""

from typing import Final

import numpy as np

from overwatch.diagnose.factor import SOFT_CAP, Factor
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.returns import Returns, earnings_of
from overwatch.diagnose.robust import far
from overwatch.state.arrays import NORMAL

LEAST_ENVS: Final = 8
"""Fewer envs have no distribution to stand out from."""


def reward_collapse(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Far below the fleet and below its own earlier episodes, four of the last five times (at first of four).

    The limit grows with the size of the fleet. Says nothing about single envs when many fall at once.
    """
    returns = fleet.returns
    if returns is None or not _may_stand_out(returns, limits):
        return None
    # One may have fallen; or all have, since this second began.
    usual = earnings_of(fleet.state.envs)
    if usual is None or usual.num < LEAST_ENVS:
        return None
    earned, n = fleet.state.envs.sums(), fleet.n
    limit = far(usual.num, limits.margin)
    low = (usual.usual - returns.recent) / usual.spread
    own = (earned.earlier[:n] - returns.recent) / max(usual.spread, usual.noise)
    lasting = (usual.usual - earned.lasting[:n]) / usual.spread >= limit / 2
    with np.errstate(invalid="ignore"):
        fell = returns.judged & (low >= limit) & (own >= limits.own_drop) & lasting
    if not fell.any() or int(fell.sum()) > limits.crowd * usual.num:
        return None
    return Factor(
        name="reward collapse",
        status="degraded",
        weight=np.where(fell, np.minimum(1.0 + low / limit, SOFT_CAP), 0.0),
        say=lambda row: f"return {low[row] * NORMAL:.1f} mad low",
    )


def _may_stand_out(returns: Returns, limits: AnomalyLimits) -> bool:
    """Whether the lowest env is far below what was usual when this second began."""
    fleet, lowest = returns.fleet, float(np.fmin.reduce(returns.recent))
    return (fleet.usual - lowest) / fleet.spread >= far(fleet.num, limits.margin)


def fleet_fell(returns: Returns, limits: AnomalyLimits) -> float | None:
    """By how many standard deviations the whole fleet's return fell, where that is a collapse.

    A few envs must fall further than many, up to twice as far for one alone.
    """
    fleet = returns.fleet
    scale = max(fleet.spread, fleet.noise, 0.05 * abs(fleet.earlier))
    drop = (fleet.earlier - fleet.recent) / scale
    least = limits.fleet_drop * (1.0 + 1.0 / float(fleet.num) ** 0.5)
    return drop if drop >= least else None
