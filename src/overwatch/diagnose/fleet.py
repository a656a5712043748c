"""What the rules know of the fleet at one tick: facts that need all envs at once, worked out once."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch.diagnose.returns import Returns, returns_of
from overwatch.diagnose.robust import median_of
from overwatch.state.arrays import Floats, Ints
from overwatch.state.ring import median
from overwatch.state.run import RunState

LEAST_REPORTING: Final = 4
"""Fewer envs have no fleet to differ from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The envs of one run at one tick; arrays have shape (n,)."""

    state: RunState
    n: int
    ids: Ints
    lane: Ints
    """Index into the run's lane names; -1 unknown."""
    newest_at: int
    """Producer's time of the newest env record; 0 when there is none."""
    lively_at: int
    """When the most talkative eighth of the living envs had spoken; 0 when there is none."""
    step_time: Floats
    """Seconds; NaN where not measured."""
    median_step_time: float | None
    """`None` where the column is absent or equal for all envs."""
    lane_step_time: dict[str, float]
    """Median step of each named lane that reports steps, seconds."""
    lane_pace: dict[str, float]
    """Each lane's median step over that of the other lanes of its kind; only where there are others."""
    returns: Returns | None
    """`None` while no env has finished enough episodes."""

    def on_lane(self, name: str) -> npt.NDArray[np.bool_]:
        """Which envs are on a lane."""
        code = self.state.lane_names.codes.get(name, -2)
        on: npt.NDArray[np.bool_] = self.lane == code
        return on


def fleet_of(state: RunState) -> Fleet:
    """Gather the fleet's facts."""
    envs = state.envs
    step_time = envs.values["step_time"][: envs.n].copy()
    alive = envs.seen_at[: envs.n]
    if (crashed := envs.crashed_at[: envs.n] > 0).any():
        alive = alive[~crashed]
    lanes = _lane_medians(state, step_time)
    return Fleet(
        state=state,
        n=envs.n,
        ids=envs.ids[: envs.n],
        lane=envs.lane[: envs.n],
        newest_at=int(envs.seen_at[: envs.n].max()) if envs.n else 0,
        lively_at=_lively_at(alive),
        step_time=step_time,
        median_step_time=_telling_median(step_time),
        lane_step_time=lanes,
        lane_pace=_paces(lanes),
        returns=returns_of(envs),
    )


def _lively_at(seen_at: Ints) -> int:
    """One env that speaks alone does not make the others silent; an eighth of the fleet does."""
    place = seen_at.size - 1 - seen_at.size // 8
    return int(np.partition(seen_at, place)[place]) if seen_at.size else 0


def kind_of(lane: str) -> str:
    """A lane's name without number and node: lanes of one kind do the same work and can be compared."""
    return lane.partition("@")[0].rstrip("0123456789")


def _telling_median(values: Floats) -> float | None:
    """The median, unless too few envs report or all report the same."""
    known = values[np.isfinite(values)]
    if known.size < LEAST_REPORTING or known.min() == known.max():
        return None
    return median_of(known)


def _lane_medians(state: RunState, step_time: Floats) -> dict[str, float]:
    rows, found = state.envs.by_lane(), {}
    for code, name in enumerate(state.lane_names.words):
        if code not in rows:
            continue
        told = step_time[rows[code]]
        known = np.isfinite(told) & (told > 0)
        if known.any():
            found[name] = median_of(told[known])
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
