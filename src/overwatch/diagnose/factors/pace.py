"""Envs that step slowly or not at all. A whole lane that is slow is the lane's matter, not its envs'."""

import numpy as np
import numpy.typing as npt

from overwatch.diagnose.factor import SOFT_CAP, Factor
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.usual import Pace, pace_of
from overwatch.state.arrays import Floats

WITH_LANE = 0.4
"""Weight of a symptom: enough to be seen within its lane, never a finding."""


def slow_step(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """A step takes far longer than the fleet's median, and than its own lane's where the lane is slow."""
    before = fleet.median_step_time
    if before is None or not float(np.fmax.reduce(fleet.step_time)) >= limits.slow_step * before > 0:
        return None
    # One may be slow; or all have been, since this second began.
    pace = pace_of(fleet.state)
    if pace.median is None or pace.median <= 0:
        return None
    times = fleet.step_time / pace.median
    slow = np.isfinite(times) & (times >= limits.slow_step)
    for lane in slow_lanes(pace, limits):
        slow &= ~fleet.on_lane(lane) | (fleet.step_time >= limits.slow_step * pace.lanes[lane])
    if not slow.any():
        return None
    return Factor(
        name="slow step",
        status="stalled",
        weight=np.where(slow, np.minimum(times / limits.slow_step, SOFT_CAP), 0.0),
        say=lambda row: f"step {times[row]:.1f}× the median",
        tell=lambda row: f"{times[row]:.1f}× the median",
    )


def slow_lane(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """The env is slow with its whole lane: a symptom, which leaves the env ok."""
    lanes = slow_lanes(fleet.usual.pace, limits)
    if not lanes:
        return None
    slow = with_slow_lane(fleet, limits)
    if not slow.any():
        return None
    return Factor(
        name="slow lane",
        status="ok",
        weight=np.where(slow, WITH_LANE, 0.0),
        say=lambda _row: "slow with their lane",
        tell=lambda _row: "all of its lane is slow",
    )


def silent(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Other envs speak, this one does not."""
    # Nobody has been quiet for longer than who was when this second began.
    if not fleet.n or (fleet.state.last_at - fleet.usual.oldest_at) / 1e9 < limits.silent_s:
        return None
    seen_at = fleet.state.envs.seen_at[: fleet.n]
    oldest_at = int(np.minimum.reduce(seen_at))
    if (fleet.newest_at - oldest_at) / 1e9 < limits.silent_s:
        return None
    quiet_s: Floats = (fleet.lively_at - seen_at) / 1e9
    mute = (quiet_s >= limits.silent_s) & (fleet.state.envs.crashed_at[: fleet.n] == 0)
    if not mute.any():
        return None
    return Factor(
        name="silent",
        status="stalled",
        weight=np.where(mute, np.minimum(1.0 + quiet_s / (4 * limits.silent_s), SOFT_CAP), 0.0),
        say=lambda row: f"silent for {quiet_s[row]:.0f}s while others step",
        tell=lambda row: f"for {quiet_s[row]:.0f}s while others step",
    )


def slow_lanes(pace: Pace, limits: AnomalyLimits) -> tuple[str, ...]:
    """Lanes whose usual step is well above that of the other lanes of their kind."""
    return tuple([lane for lane, times in pace.times.items() if times >= limits.slow_lane])


def with_slow_lane(fleet: Fleet, limits: AnomalyLimits) -> npt.NDArray[np.bool_]:
    """Envs that step as slowly as their slow lane does, shape (n,)."""
    slow = np.zeros(fleet.n, dtype=np.bool_)
    for lane in slow_lanes(fleet.usual.pace, limits):
        usual = fleet.lane_step_time[lane] / fleet.lane_pace[lane]
        slow |= fleet.on_lane(lane) & (fleet.step_time >= limits.slow_lane * usual)
    return slow
