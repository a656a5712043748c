"""One update that moved the policy far more than its neighbours do: a spike of KL, told for a few updates.

A single update is no trend, so a spike is told as info; one that left the target far behind is a warning.
Pure.
"""

from collections.abc import Iterator
from typing import Final

from overwatch.catalog import KL
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.diagnose.converged import is_warm
from overwatch.diagnose.problem import UPDATES, Problem
from overwatch.state.arrays import median
from overwatch.state.run import RunState

SPIKE: Final = 5.0
"""Times the run's own median from which an update stands out."""
EXTREME: Final = 20.0
"""Times its target from which one update may have undone many."""
LATELY: Final = 5
"""Updates for which a spike is told."""
CODE: Final = "kl-spike"


def kl_spike(state: RunState) -> Iterator[Problem]:
    """The largest of the newest updates, where it stands out from the run and its target."""
    series = state.policy.get(KL.name)
    if series is None or not is_warm(state):
        return
    limit = state.limits(KL).warning
    if limit is None:
        return
    usual = median(series.window.items)
    newest = [value for value in series.history.items[-LATELY:] if value is not None]
    largest = max(newest, default=0.0)
    if usual is None or largest <= max(SPIKE * usual, limit.value) or _was_stopped(state, largest):
        return
    yield _spike(largest, usual, limit.value, series.at)


def _was_stopped(state: RunState, largest: float) -> bool:
    """Whether a stop lately kept it near its target."""
    update = state.update or 0
    return any(
        update - stop.update < LATELY and max(stop.kl_divergence, largest) <= STOPPED_WITHIN * stop.target
        for stop in state.early_stops.items
    )


def _spike(largest: float, usual: float, target: float, at: int) -> Problem:
    extreme = largest > EXTREME * target
    times = f"{largest / usual:.0f} times its usual" if usual > 0 else "where it was 0"
    return Problem(
        code=CODE,
        severity="warning" if extreme else "info",
        scope="policy",
        subject=KL.short,
        at=at,
        message=f"KL spiked to {largest:.3f}, {times}" + (", far beyond its target" if extreme else ""),
        hint="one update moved the policy far: look at its batch; set target_kl to stop such updates",
        patience=UPDATES,
    )
