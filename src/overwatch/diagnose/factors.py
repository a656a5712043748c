"""The factors of the anomaly score, by what they look at: faults, actions, pace, returns, seeds.

Hard faults need no judgement, and nothing averages them away. Actions: envs that do the same thing over and
over, far longer than any env of the fleet. Pace: envs that step slowly or not at all; a whole lane that is
slow is the lane's matter, not its envs'. Returns: finished episodes that earn far less than the fleet's, and
than the env's own did. Seeds: culls and failed gates far above the fleet's, rent that buys nothing.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch.diagnose.factor import HARD, SOFT_CAP, AnomalyLimits, Factor
from overwatch.diagnose.fleet import (
    FEW,
    LEAST_REPORTING,
    Fleet,
    Pace,
    Returns,
    earnings_of,
    far,
    levels_of,
    ln_above,
    median_of,
    most_events,
    pace_of,
    paid_rents,
    spread_high,
)
from overwatch.state.arrays import NORMAL, Floats, Ints
from overwatch.state.env_tables import MEASURES, SAMPLES, WINDOW_S
from overwatch.state.envs import Envs


def crashed(fleet: Fleet, _limits: AnomalyLimits) -> Factor | None:
    """The env died and has not reported since."""
    envs = fleet.state.envs
    if not envs.crashes or not np.count_nonzero(envs.crashed_at[: fleet.n]):
        return None
    dead = envs.crashed_at[: fleet.n] > 0
    return Factor(
        name="crashed",
        status="crashed",
        weight=np.where(dead, HARD, 0.0),
        say=lambda row: envs.crashes[int(fleet.ids[row])],
        tell=lambda row: envs.crashes[int(fleet.ids[row])].removeprefix("crashed").lstrip(": "),
    )


def non_finite(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """A value of this env that must be finite was not, not long ago."""
    envs = fleet.state.envs
    if not envs.non_finite:
        return None
    seen = envs.non_finite_at[: fleet.n]
    recent = (seen > 0) & (fleet.state.last_at - seen <= int(limits.non_finite_hold_s * 1e9))
    if not recent.any():
        return None
    return Factor(
        name="non-finite",
        status="diverging",
        weight=np.where(recent, HARD - 1, 0.0),
        say=lambda row: f"non-finite: {envs.non_finite[int(fleet.ids[row])]}",
        tell=lambda row: envs.non_finite[int(fleet.ids[row])],
    )


LEAST_ENVS: Final = 8
"""Fewer envs have no usual length of a streak to differ from, and no distribution to stand out from."""
RARE: Final = 12.0
"""Means beyond 2 ln N: an exponential tail reaches that in no run."""


def action_collapse(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """The same operation for many more steps in a row than chance gives to any env of the fleet.

    All envs share one policy: where all repeat themselves, or the policy hardly ever does anything else, the
    usual length grows and the limit with it.
    """
    actions, n = fleet.state.envs.actions, fleet.n
    if not fleet.state.op_names.words:
        return None
    streak = actions.streak[:n]
    top = int(np.maximum.reduce(streak, initial=0))
    if top < limits.least_repeats:
        return None
    reported = int((streak > 0).sum())
    if reported < LEAST_ENVS:
        return None
    # The usual length is the mean of the others', so that one stuck env does not excuse itself.
    usual = float(streak.sum() - top) / (reported - 1)
    limit = max(float(limits.least_repeats), usual * (2.0 * ln_above(reported) + RARE))
    hit = streak >= limit
    if not hit.any():
        return None
    words = fleet.state.op_names.words

    def stated(row: int) -> str:
        op, _ = actions.last(row)
        return f"{words[op] if op >= 0 else 'no action'} {streak[row]}× in a row"

    return Factor(
        name="action collapse",
        status="degraded",
        weight=np.where(hit, np.minimum(streak / limit, SOFT_CAP), 0.0),
        say=stated,
        tell=lambda row: f"{stated(row)} (usual {usual:.1f})",
    )


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
    """A step takes far longer than the fleet's median, or what that was, and than its own slow lane's.

    Where hardly any env steps as before it is no matter of single ones.
    """
    before = fleet.median_step_time
    was = np.inf if fleet.past.step is None else fleet.past.step
    if (
        before is None
        or not float(np.fmax.reduce(fleet.step_time)) >= limits.slow_step * min(before, was) > 0
    ):
        return None
    # One may be slow; or all have been, since this second began.
    pace = pace_of(fleet.state)
    if pace.median is None or pace.median <= 0:
        return None
    times = fleet.step_time / min(pace.median, was)
    slow = np.isfinite(times) & (times >= limits.slow_step)
    if int((times < limits.slow_step).sum()) < max(2, fleet.n // FEW):
        return None
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


def reward_collapse(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Far below its own earlier episodes and below the envs that hold theirs, all of the last five times.

    The limit grows with the size of the fleet. Where none hold theirs it is the policy, and no env.
    """
    returns = fleet.returns
    if returns is None or not _may_stand_out(returns, limits):
        return _resets(fleet)
    # One may have fallen; or all have, since this second began.
    usual = earnings_of(fleet.state.envs, fleet.past)
    if usual is None or usual.num < LEAST_ENVS:
        return None
    earned, n = fleet.state.envs.all_sums(), fleet.n
    limit = far(usual.num, limits.margin)
    level, _ = levels_of(earned, fleet.past, n)
    low = (usual.usual - returns.recent) / usual.spread
    own = (level - returns.recent) / max(usual.spread, usual.noise)
    lasting = (usual.usual - earned.lasting[:n]) / usual.spread >= limit / 2
    with np.errstate(invalid="ignore"):
        fell = returns.judged & (low >= limit) & (own >= limits.own_drop) & lasting
    # Many at once: the others must have shown since that they did not.
    crowded = int(fell.sum()) > limits.crowd * usual.num
    if not fell.any() or (crowded and not (usual.holding and fleet.past.many_at)):
        return _resets(fleet)
    return Factor(
        name="reward collapse",
        status="degraded",
        weight=np.where(fell, np.minimum(1.0 + low / limit, SOFT_CAP), 0.0),
        say=lambda row: f"return {low[row] * NORMAL:.1f} mad low",
    )


AT_ONCE: Final = 2.0
"""Steps of an episode that ends when it begins."""
LONG: Final = 10.0
"""Times that, from which an episode is one."""
RESETS: Final = 20
"""Episodes from which on it is no accident."""


def _resets(fleet: Fleet) -> Factor | None:
    """Its episodes end at once, from the first on, where others play theirs, whatever they earn."""
    envs, n = fleet.state.envs, fleet.n
    steps = envs.lengths[:n]
    with np.errstate(invalid="ignore"):
        hit = (steps <= AT_ONCE) & (envs.episodes[:n] >= RESETS)
        others = int((steps >= LONG * AT_ONCE).sum())
    if not hit.any() or others < max(2, n // FEW):
        return None
    return Factor(
        name="reward collapse",
        status="degraded",
        weight=np.where(hit, SOFT_CAP, 0.0),
        say=lambda row: f"episodes of {steps[row]:.0f} step{'' if steps[row] < 1.5 else 's'}",
    )


def _may_stand_out(returns: Returns, limits: AnomalyLimits) -> bool:
    """Whether the lowest env is far below what was usual when this second began."""
    fleet, lowest = returns.fleet, float(np.fmin.reduce(returns.recent))
    return (fleet.usual - lowest) / fleet.spread >= far(fleet.num, limits.margin)


def fleet_fell(returns: Returns, limits: AnomalyLimits) -> float | None:
    """By how many standard deviations the whole fleet's return fell, where that is a collapse.

    A few envs must fall further than many, up to twice as far for one alone.
    """
    fleet = returns.fleet
    scale = max(fleet.spread, fleet.noise, 0.05 * abs(fleet.earlier))
    drop = (fleet.earlier - fleet.recent) / scale
    least = limits.fleet_drop * (1.0 + 1.0 / float(fleet.num) ** 0.5)
    return drop if drop >= least else None


def cull_rate(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """More of its seeds were culled in the last minute than chance gives to any env of the fleet."""
    if fleet.state.envs.culls.is_quiet(fleet.state.last_at):
        return None
    counts = fleet.state.envs.culls.recent(fleet.n, fleet.state.last_at)
    many = _many(counts, limits)
    if many is None:
        return None
    return Factor(
        name="cull rate",
        status="degraded",
        weight=many.weight,
        say=lambda row: f"{counts[row]} {_plural('cull', counts[row])} in {WINDOW_S}s",
        tell=lambda row: f"{counts[row]} in {WINDOW_S}s (usual {many.usual:.1f})",
    )


def gate_failures(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """More of its seeds failed a gate in the last minute than chance gives to any env of the fleet."""
    envs = fleet.state.envs
    if envs.gate_fails.is_quiet(fleet.state.last_at):
        return None
    counts = envs.gate_fails.recent(fleet.n, fleet.state.last_at)
    many = _many(counts, limits)
    if many is None:
        return None

    def at_gate(row: int) -> str:
        return f"at {envs.failed_gate[int(fleet.ids[row])]}"

    def why(row: int) -> str:
        stated = envs.failed_why[int(fleet.ids[row])]
        return f": {stated}" if stated else ""

    return Factor(
        name="gate fails",
        status="degraded",
        weight=many.weight,
        say=lambda row: f"{counts[row]} {_plural('fail', counts[row])} {at_gate(row)}",
        tell=lambda row: f"{counts[row]} {at_gate(row)}{why(row)}",
    )


def rent_without_gain(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Rent far above the fleet's for many steps, and the metric gained nothing meanwhile."""
    dear = _dear(fleet, limits)
    if dear is None:
        return None
    # Only those that pay much now can have paid much all the time: theirs are the windows that are read.
    least, gain, steps = _lately(fleet, dear.rows, limits.gain_steps)
    with np.errstate(invalid="ignore"):
        high = (least - dear.usual) / dear.spread
        metric = fleet.state.envs.values["metric"][dear.rows]
        idle = gain * _sign(fleet) <= 0.01 * np.abs(metric)
        hit = (least >= dear.least) & idle
    if not hit.any():
        return None
    places = {row: place for place, row in enumerate(dear.rows.tolist()) if hit[place]}
    weight = np.zeros(fleet.n)
    weight[dear.rows[hit]] = np.minimum(high[hit] / dear.limit, SOFT_CAP)
    name, rent = _metric_name(fleet), fleet.state.envs.values["rent"]

    def stated(row: int) -> str:
        place = places[row]
        return f"rent {rent[row]:.2f}, {name} {_signed(gain[place])} in {steps[place]} steps"

    return Factor(name="rent, no gain", status="degraded", weight=weight, say=stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dear:
    """Envs that pay far more rent now than the fleet does."""

    rows: Ints
    usual: float
    """The fleet's median."""
    spread: float
    """Standard deviation of the fleet's rents, robust."""
    limit: float
    """So many of these are far."""

    @property
    def least(self) -> float:
        """The least rent that is far."""
        return self.usual + self.limit * self.spread


def _dear(fleet: Fleet, limits: AnomalyLimits) -> _Dear | None:
    """The envs that pay much, or `None`; what is usual is that of all that pay and measure something."""
    envs, n = fleet.state.envs, fleet.n
    rent, before = envs.values["rent"][:n], fleet.usual.rent
    if before is None or not float(np.fmax.reduce(rent)) >= limits.rent_times * before:
        return None
    paid = paid_rents(envs)
    if paid.size < LEAST_REPORTING:
        return None
    usual = median_of(paid)
    spread = spread_high(paid)
    if spread <= 0:
        spread = abs(usual) / 2
    if spread <= 0:
        return None
    limit = far(paid.size, limits.margin)
    with np.errstate(invalid="ignore"):
        high = np.isfinite(rent) & (envs.times["metric"][:n] > 0)
        high &= rent >= max(limits.rent_times * usual, usual + limit * spread)
    if not high.any():
        return None
    return _Dear(rows=np.flatnonzero(high), usual=usual, spread=spread, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Many:
    """Counts of which some stand out."""

    weight: Floats
    """Per env, shape (n,); 0 where the count is usual."""
    usual: float
    """Mean count of the other envs."""


def _many(counts: Ints, limits: AnomalyLimits) -> _Many | None:
    """The counts that stand out from those of all other envs; `None` where none does."""
    n, total = counts.size, int(counts.sum())
    if n < LEAST_REPORTING or int(counts.max(initial=0)) < limits.least_events:
        return None
    centre = float(np.median(counts))
    scatter = NORMAL * float(np.median(np.abs(counts - centre)))
    # The usual count of an env is the mean of the others', so that one stormy env does not excuse itself.
    top = int(counts.max())
    usual = max(centre, (total - top) / (n - 1))
    chance = max(most_events(usual, n), limits.least_events)
    limit = max(float(chance), centre + far(n, limits.margin) * scatter)
    hit = counts >= limit
    if not hit.any():
        return None
    return _Many(weight=np.where(hit, np.minimum(counts / limit, SOFT_CAP), 0.0), usual=usual)


def _lately(fleet: Fleet, rows: Ints, steps: int) -> tuple[Floats, Floats, Ints]:
    """Least rent, gain of the metric and length of the last `steps` steps of these, within one episode."""
    envs, trends = fleet.state.envs, fleet.state.envs.trends
    age = trends.now[rows, None] - trends.step[rows]
    taken = np.arange(SAMPLES) < trends.count[rows, None]
    whole = taken & (trends.at[rows] > envs.episode_at[rows, None])
    old = whole & (age >= steps)
    place = np.where(old, age, np.iinfo(np.int64).max).argmin(axis=1)
    each = np.arange(rows.size)
    has = old[each, place]
    span = np.where(has, age[each, place], 0)
    inside = whole & (age <= span[:, None])
    least = np.where(inside, trends.values["rent"][rows], np.inf).min(axis=1)
    least = np.minimum(least, envs.values["rent"][rows])
    gain = envs.values["metric"][rows] - trends.values["metric"][rows, place]
    return np.where(has, least, np.nan), np.where(has, gain, np.nan), span


def _sign(fleet: Fleet) -> float:
    info = fleet.state.started.metric if fleet.state.started else None
    return -1.0 if info is not None and not info.higher_is_better else 1.0


def _metric_name(fleet: Fleet) -> str:
    info = fleet.state.started.metric if fleet.state.started else None
    return "metric" if info is None else info.name


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _signed(value: float) -> str:
    """A gain as shown; a zero is `+0.00` from either side."""
    shown = f"{value:+.2f}"
    return "+0.00" if shown == "-0.00" else shown
