"""Envs that step slowly or not at all. A whole lane that is slow is the lane's matter, not its envs'."""

from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch.diagnose.factor import SOFT_CAP, Factor
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.robust import median_of
from overwatch.diagnose.usual import Pace, pace_of
from overwatch.state.arrays import Floats
from overwatch.state.env_tables import MEASURES
from overwatch.state.envs import Envs

WITH_LANE = 0.4
"""Weight of a symptom: enough to be seen within its lane, never a finding."""
LEAST_GAPS: Final = 3
"""Gaps between an env's records from which on it has a rhythm."""
ENOUGH_GAPS: Final = 16
"""From which on its own rhythm is all that counts."""
UNEVEN: Final = 3.0
"""Longest gap over the mean one, as far as it makes more patient."""
OF_STEPS: Final = tuple(name for name in MEASURES if name not in ("return", "metric"))
"""Measures that an env reports while it steps."""
OF_EPISODES: Final = 10.0
"""Times its longest episode that an env may take which reports nothing else."""


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
    """Other envs report, this one does not, for longer than its own rhythm allows."""
    envs, silences = fleet.state.envs, fleet.state.envs.silences
    # No env has been quiet for longer than the quietest one when this second began.
    if not fleet.n or (silences.clock_ns - fleet.usual.oldest_ns) / 1e9 < limits.silent_s:
        return None
    quiet_s = fleet.quiet_s
    mute = (quiet_s >= limits.silent_s) & (envs.crashed_at[: fleet.n] == 0) & (envs.born_at[: fleet.n] > 0)
    if not mute.any():
        return None
    patience_s = np.maximum(patience_of(envs), limits.silent_s)
    mute &= quiet_s >= patience_s
    if not mute.any():
        return None
    return Factor(
        name="silent",
        status="stalled",
        weight=np.where(mute, np.minimum(1.0 + quiet_s / (4 * patience_s), SOFT_CAP), 0.0),
        say=lambda row: f"silent for {quiet_s[row]:.0f}s while others step",
        tell=lambda row: f"for {quiet_s[row]:.0f}s while others step",
    )


def patience_of(envs: Envs) -> Floats:
    """Seconds of silence that each env's rhythm allows, shape (n,); infinite while no rhythm is known.

    An even rhythm allows twice its longest gap, an uneven one more. An env that reports only the ends of its
    episodes gets far more: longer episodes are often what learning brings.
    """
    n, silences = envs.n, envs.silences
    longest_s, gaps = silences.longest_s[:n], silences.gaps[:n]
    known = gaps >= LEAST_GAPS
    if not known.any():
        return np.full(n, np.inf)
    uneven = longest_s / np.where(known, silences.mean_s[:n], np.inf)
    steps = np.logical_or.reduce([envs.times[name][:n] > 0 for name in OF_STEPS])
    bare = ~steps & (envs.episodes[:n] >= gaps)
    times = np.where(bare, OF_EPISODES, 1.0 + np.clip(uneven, 1.0, UNEVEN))
    own_s: Floats = times * longest_s
    usual_s = median_of(own_s[known])
    # Few gaps are little: so long the fleet's rhythm counts too.
    return np.where(gaps >= ENOUGH_GAPS, own_s, np.maximum(own_s, usual_s))


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
