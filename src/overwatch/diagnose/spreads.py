"""How long steps and updates take on each lane: the median and the slow end, over the newest times. Pure."""

from typing import Final

import msgspec
import numpy as np

from overwatch.diagnose.cycle import update_times
from overwatch.state.arrays import Floats, Ints
from overwatch.state.places import num_of
from overwatch.state.run import RunState

MOST: Final = 16_384
"""Times of one lane that are looked at; of more every n-th env counts."""
LEAST: Final = 3
_NONE: Final[Ints] = np.zeros(0, dtype=np.int64)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds; by nearest rank, so each is a time that was measured."""

    p50: float
    p95: float


def step_spreads(state: RunState) -> dict[str, Spread]:
    """Of the steps of the envs on each lane that tell how long theirs take, over the newest dozen seconds."""
    envs, found = state.envs, dict[str, Spread]()
    times, by_lane = envs.trends.values["step_time"][: envs.n], envs.by_lane()
    for code, name in enumerate(state.lane_names.words):
        rows = by_lane.get(code, _NONE)
        every = max(1, -(-num_of(rows) * times.shape[1] // MOST))
        told = times[rows.start : rows.stop : every] if isinstance(rows, slice) else times[rows[::every]]
        spread = _spread(told.ravel())
        if spread is not None:
            found[name] = spread
    return found


def update_spreads(state: RunState) -> dict[int, Spread]:
    """Of the updates of each rank: by its phases, else by what the run tells of its updates' time."""
    found = {rank: _spread(np.array(update_times(phases))) for rank, phases in state.phases.items()}
    told = state.policy.get("overwatch.policy.update_time")
    leader = state.ranks.leader
    if told is not None and leader is not None and found.get(leader) is None:
        found[leader] = _spread(np.array([value for value in told.history.items if value is not None]))
    return {rank: spread for rank, spread in found.items() if spread is not None}


def _spread(times: Floats) -> Spread | None:
    known = times[(times > 0) & (times < np.inf)]
    known.sort()
    if known.size < LEAST:
        return None
    place = -(-95 * known.size // 100) - 1
    return Spread(p50=float(known[(known.size - 1) // 2]), p95=float(known[place]))
