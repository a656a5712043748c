"""A return that fell, by what the trainer itself sends of it: no env needs to be known.

A fall is large against all that the run ever gained and against its own scatter, and its newest updates lie
below all of those just before. Pure.
"""

import itertools
from typing import Final, NamedTuple

from overwatch.catalog.policy import RETURN
from overwatch.diagnose.converged import NEWEST
from overwatch.events.adding import added
from overwatch.state.arrays import median
from overwatch.state.policy import LEVEL, scatter
from overwatch.state.run import RunState

ALONE: Final = 0.5
"""Share of what was gained, or of the best level if that is more, whose loss is a collapse by itself."""
WITH_A_SIGN: Final = 0.3
"""The same where something else shows why."""
LATELY: Final = 20
"""Updates before the newest ones: the best level among them was usual."""
BELOW: Final = 10
"""Updates just before the newest ones, below all of which these must be."""
SCATTERS: Final = 4.0


class Fall(NamedTuple):
    """A return that fell."""

    usual: float
    """The best level lately."""
    now: float
    """Median of the newest updates."""


def newest_return(state: RunState) -> float | None:
    """Median of the newest updates; `None` where no return is sent."""
    series = state.policy.get(RETURN.name)
    return None if series is None else median(series.window.items[-NEWEST:])


def return_fall(state: RunState, share: float) -> Fall | None:
    """The fall that the newest updates show, where it is this share of what there was to lose."""
    series = state.policy.get(RETURN.name)
    if series is None or series.lowest is None or len(series.window.items) < BELOW + NEWEST:
        return None
    newest, before = series.window.items[-NEWEST:], series.window.items[:-NEWEST][-LATELY:]
    best = max(median(before[i : i + LEVEL]) or before[i] for i in range(len(before) - LEVEL + 1))
    # What was lowest before the fall: the fall itself is no gain.
    floor = min(series.window.items[:-NEWEST])
    floor = min(floor, series.lowest) if series.lowest < min(newest) else floor
    lost, now = best - max(newest), median(newest)
    if now is None or max(newest) >= min(before[-BELOW:]):
        return None
    usual = series.window.items[:-NEWEST]
    least = max(share * max(abs(best), best - floor), SCATTERS * max(scatter(before), _deviation(usual)))
    return Fall(best, now) if lost > 0 and lost >= least else None


def _deviation(values: list[float]) -> float:
    """Standard deviation of one update around its neighbours, rare ones counted too."""
    steps = [after - before for before, after in itertools.pairwise(values)]
    mean = added(steps) / len(steps)
    variance = added([(step - mean) * (step - mean) for step in steps]) / len(steps)
    return float((variance / 2) ** 0.5)
