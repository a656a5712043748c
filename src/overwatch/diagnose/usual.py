"""What is usual in the fleet, worked out once a second: medians and scatters that need every env at once.

Kept between the fast ticks, so that one of them costs few passes over the envs: these only look for an env
beyond what is usual, and who finds one works out the fleet's facts of this very tick. Pure; must not know
what is too far.
"""

from typing import Final

import msgspec
import numpy as np

from overwatch.diagnose.returns import Earnings, earnings_of
from overwatch.diagnose.robust import median_of
from overwatch.state.arrays import Floats, median
from overwatch.state.envs import Envs
from overwatch.state.run import RunState

LEAST_REPORTING: Final = 4
"""Fewer envs have no fleet to differ from."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long steps take, seconds."""

    median: float | None = None
    """Of all envs; `None` where too few tell it, or all the same."""
    lanes: dict[str, float] = {}
    """Median of each named lane that reports steps."""
    times: dict[str, float] = {}
    """Each lane's median over that of the other lanes of its kind; only where there are others."""


class Usual(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet at one tick."""

    pace: Pace = Pace()
    earnings: Earnings | None = None
    """`None` while no env has finished enough episodes."""
    rent: float | None = None
    """Median of what envs pay that measure something; `None` where too few do."""
    oldest_ns: int = 0
    """When the env that is quiet for longest last reported, on the fleet's clock; 0 where there is none."""


def usual_of(state: RunState) -> Usual:
    """What is usual now."""
    envs = state.envs
    paid = paid_rents(envs)
    return Usual(
        pace=pace_of(state),
        earnings=earnings_of(envs),
        rent=median_of(paid) if paid.size >= LEAST_REPORTING else None,
        oldest_ns=int(envs.silences.last_ns[: envs.n].min()) if envs.n else 0,
    )


def kind_of(lane: str) -> str:
    """A lane's name without number and node: lanes of one kind do the same work and can be compared."""
    return lane.partition("@")[0].rstrip("0123456789")


def pace_of(state: RunState) -> Pace:
    """How long steps take now."""
    envs = state.envs
    step_time = envs.values["step_time"][: envs.n]
    lanes = _lane_medians(state, step_time)
    return Pace(median=_telling_median(step_time), lanes=lanes, times=_paces(lanes))


def paid_rents(envs: Envs) -> Floats:
    """The newest rent of each env that pays one and measures something, in table order."""
    rent = envs.values["rent"][: envs.n]
    paid: Floats = rent[np.isfinite(rent) & (envs.times["metric"][: envs.n] > 0)]
    return paid


def _telling_median(values: Floats) -> float | None:
    """The median, unless too few envs report or all report the same."""
    known = values[np.isfinite(values)]
    if known.size < LEAST_REPORTING or known.min() == known.max():
        return None
    return median_of(known)


def _lane_medians(state: RunState, step_time: Floats) -> dict[str, float]:
    rows, found = state.envs.by_lane(), {}
    known = (step_time > 0) & (step_time < np.inf)
    whole = bool(known.all())
    for code, name in enumerate(state.lane_names.words):
        if code not in rows:
            continue
        told = step_time[rows[code]] if whole else step_time[rows[code]][known[rows[code]]]
        if told.size:
            found[name] = median_of(told)
    return found


def _paces(lanes: dict[str, float]) -> dict[str, float]:
    kinds: dict[str, dict[str, float]] = {}
    for name, step in lanes.items():
        kinds.setdefault(kind_of(name), {})[name] = step
    paces = {}
    for alike in kinds.values():
        for name, own in alike.items():
            usual = median([step for other, step in alike.items() if other != name])
            if usual is not None:
                paces[name] = own / usual
    return paces
