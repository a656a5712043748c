"""Whether a policy earns what it should: its returns are at their best, or rise. Pure.

Rules: one update is luck, a median of several is not; a run that reports no returns neither rises nor earns
its best.
"""

import itertools
from collections.abc import Mapping
from typing import Final

from overwatch.catalog import BY_NAME
from overwatch.catalog.policy import RETURN
from overwatch.events.adding import added
from overwatch.state.judge import Status
from overwatch.state.policy import LEVEL, Health, Series
from overwatch.state.ring import NORMAL, median

NEAR_BEST: Final = 0.2
"""A return is at its best within this share of the best one, or of all that it gained."""
LUCK: Final = 3.0
"""Standard deviations of one update by which the level may lie below the best level, by chance."""
BAD_LUCK: Final = 4.0
"""Standard deviations by which one update may lie below it."""
STRETCHES: Final = (10, 20, 32)
"""Updates whose median is compared with that of as many before them: a steep rise, and slower ones."""
RISE: Final = 1.5
"""Standard deviations of one update by which medians of ten must differ: nearly three of their own."""
GAIN: Final = 0.1
"""Share of the return, or of all its range, by which they must differ besides."""
TROUBLE: Final = 3
"""Critical ones among a row's newest updates from which on the run is in trouble."""


def known_values(series: Series) -> list[float]:
    """The finite values of the newest updates, oldest first."""
    return [value for value in series.history.items if value is not None]


def at_its_best(returns: Series) -> bool:
    """Whether these returns are as high as they ever were, but for luck."""
    newest = known_values(returns)[-LEVEL:]
    level, before = median(newest), median(known_values(returns)[:LEVEL])
    if level is None:
        return False
    higher = before is not None and level > before
    return _is_near(returns, newest[-1], BAD_LUCK) and (higher or _is_near(returns, level, LUCK))


def rises(returns: Series) -> bool:
    """Whether these returns became higher lately, by more than luck."""
    values = returns.window.items
    return any(
        len(values) >= 2 * stretch
        and has_risen(returns, median(values[-2 * stretch : -stretch]) or 0.0, stretch)
        for stretch in STRETCHES
    )


def has_risen(returns: Series, before: float, stretch: int) -> bool:
    """Whether the median of so many newest updates is above that of as many `before`, by more than luck."""
    values = returns.window.items
    newest, now = median(values[-stretch:]), median(values[-LEVEL:])
    if newest is None or now is None:
        return False
    span = 0.0 if returns.highest is None or returns.lowest is None else returns.highest - returns.lowest
    luck = RISE * scatter(values)
    if now < newest - luck:
        # It rose, and fell since.
        return False
    # Medians of more updates scatter less.
    risen: bool = newest - before > max(luck * (STRETCHES[0] / stretch) ** 0.5, GAIN * max(abs(before), span))
    return risen


def health_of(policy: Mapping[str, Series]) -> Health:
    """How a run was before an update: well by its returns, or in trouble by a row that stays critical."""
    earned = policy.get(RETURN.name)
    if earned is not None and (at_its_best(earned) or rises(earned)):
        return Health.WELL
    critical = any(
        sum(status == Status.CRITICAL for status in series.statuses.items) >= TROUBLE
        for name, series in policy.items()
        if name in BY_NAME
    )
    return Health.TROUBLE if critical else Health.UNKNOWN


def scatter(values: list[float]) -> float:
    """Standard deviation of one update around its neighbours, robust; a steady slope is no scatter."""
    steps = [after - before for before, after in itertools.pairwise(values)]
    centre = median(steps)
    if centre is None:
        return 0.0
    # A step is the difference of two updates, so it scatters √2 times as much as one does.
    return NORMAL * (median([abs(step - centre) for step in steps]) or 0.0) / 2**0.5


def unrest(values: list[float]) -> float:
    """As `scatter`, with every outlier in it: what is mostly at its ceiling scatters by its dips alone."""
    steps = [after - before for before, after in itertools.pairwise(values)]
    return (added(step * step for step in steps) / (2 * len(steps))) ** 0.5 if steps else 0.0


def _is_near(returns: Series, value: float, deviations: float) -> bool:
    best = value if returns.highest_level is None else returns.highest_level
    gained = best - (best if returns.lowest is None else returns.lowest)
    return value >= best - max(NEAR_BEST * max(abs(best), gained), deviations * scatter(returns.window.items))
