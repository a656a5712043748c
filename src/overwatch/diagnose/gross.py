"""Breaches so large that no warm-up and no long hold is waited for.

Two rules. A value is gross by its own size (more than a nat of KL), whatever the run is like; after the
warm-up it is large from several times its critical limit on. Two of the newest three such updates are enough.
Several rows that are critical in the same updates count together, each for less. Pure.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from overwatch.catalog import BY_NAME, KL, Limit, Limits, Metric, Side
from overwatch.catalog.policy import CLIP_FRACTION, ENTROPY
from overwatch.state.arrays import median
from overwatch.state.policy import MEDIAN_NEEDS, Series, Status
from overwatch.state.run import RunState

NEWEST: Final = 3
NEEDED: Final = 2
"""Of the newest updates."""
TIMES: Final = 4.0
"""Of the critical limit, or one part in so many where less is worse."""
TOGETHER: Final = 2
"""Rows that are critical in each of the newest updates."""
ROUNDING: Final = 1e-6
GROSS: Final[Mapping[str, Limit]] = MappingProxyType(
    {
        KL.name: Limit(side=Side.ABOVE, value=1.0),
        CLIP_FRACTION.name: Limit(side=Side.ABOVE, value=0.8),
        ENTROPY.name: Limit(side=Side.BELOW, value=0.01),
    }
)
"""By name of a row; only where the preset judges it."""


def is_gross(row: Metric, series: Series, limits: Limits, *, warm: bool) -> bool:
    """Whether two of the newest three updates were far beyond any doubt."""
    if series.value is None or series.judgement is None or row.mean_of > 1:
        return False
    bounds = _bounds(row, series, limits, warm=warm)
    newest = [value for value in series.history.items[-NEWEST:] if value is not None]
    if row is ENTROPY and min(newest) < -ROUNDING:
        # No share is below 0: it is in another unit, and its limits mean nothing.
        return False
    return sum(any(bound.side.crossed(value, bound.value) for bound in bounds) for value in newest) >= NEEDED


def _bounds(row: Metric, series: Series, limits: Limits, *, warm: bool) -> list[Limit]:
    """Numbers in the row's unit beyond which no hold is waited for."""
    judged = any(side.warning or side.critical for side in limits.sides)
    found = [GROSS[row.name]] if judged and row.name in GROSS else []
    if not warm:
        return found
    usual = median(series.window.items) if len(series.window.items) >= MEDIAN_NEEDS else None
    for critical in (side.critical for side in limits.sides):
        value = None if critical is None else critical.threshold(usual)
        if critical is not None and value is not None and value > 0:
            more = critical.side in (Side.ABOVE, Side.AT_OR_ABOVE)
            found.append(Limit(side=critical.side, value=value * TIMES if more else value / TIMES))
    return found


def critical_together(state: RunState) -> frozenset[str]:
    """Rows that were critical in each of the newest updates, where they are several; by full name.

    A multiple of a median that is young means nothing alone.
    """
    found = {
        name
        for name, series in state.policy.items()
        if name in BY_NAME
        and len(series.statuses.items) >= NEWEST
        and all(status == Status.CRITICAL for status in series.statuses.items[-NEWEST:])
    }
    absolute = [name for name in found if not _is_relative(state.limits(BY_NAME[name]))]
    return frozenset(found) if len(found) >= TOGETHER and absolute else frozenset()


def _is_relative(limits: Limits) -> bool:
    return any(side.critical is not None and side.critical.relative for side in limits.sides)
