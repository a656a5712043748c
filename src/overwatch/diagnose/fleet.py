"""What the rules know of the fleet at one tick: facts that need all envs at once, worked out once."""

from dataclasses import dataclass

import numpy as np

from overwatch.state.arrays import Floats, Ints
from overwatch.state.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The envs of one run at one tick; arrays have shape (n,)."""

    state: RunState
    n: int
    ids: Ints
    newest_at: int
    """Producer's time of the newest env record; 0 when there is none."""
    step_time: Floats
    """Seconds; NaN where not measured."""
    median_step_time: float | None
    """`None` where the column is absent or equal for all envs."""


def fleet_of(state: RunState) -> Fleet:
    """Gather the fleet's facts."""
    envs = state.envs
    step_time = np.where(envs.times["step_time"][: envs.n] > 0, envs.values["step_time"][: envs.n], np.nan)
    return Fleet(
        state=state,
        n=envs.n,
        ids=envs.ids[: envs.n],
        newest_at=int(envs.seen_at[: envs.n].max()) if envs.n else 0,
        step_time=step_time,
        median_step_time=_telling_median(step_time),
    )


def _telling_median(values: Floats) -> float | None:
    """The median, unless too few envs report or all report the same."""
    known = values[np.isfinite(values)]
    if known.size < 4 or known.min() == known.max():  # noqa: PLR2004 fewer have no fleet to differ from
        return None
    return float(np.median(known))
