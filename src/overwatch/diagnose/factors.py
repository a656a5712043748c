"""The factors of the anomaly score, by what they look at: faults, actions, pace, returns, seeds.

Hard faults need no judgement, and nothing averages them away. Actions: envs that do the same thing over and
over, far longer than any env of the fleet. Pace: envs that step slowly or not at all; a whole lane that is
slow is the lane's matter, not its envs'. Returns: finished episodes that earn far less than the fleet's, and
than the env's own did. Seeds: culls and failed gates far above the fleet's, rent that buys nothing.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from overwatch.diagnose.factor import HARD, SOFT_CAP, AnomalyLimits, Factor
from overwatch.diagnose.fleet import (
    FEW,
    LEAST_REPORTING,
    Fleet,
    Pace,
    Returns,
    far,
    levels_of,
    ln_above,
    median_of,
    most_events,
)
from overwatch.state.arrays import NORMAL, Floats, Ints
from overwatch.state.env_tables import MEASURES, SAMPLES, WINDOW_S
from overwatch.state.envs import Envs
from overwatch.state.places import Mask


def _factor(
    name: str, hit: Mask, size: Floats | float, say: Callable[[int], str],
    tell: Callable[[int], str] | None = None, *, status: str = "degraded",
) -> Factor | None:  # fmt: skip
    """The factor of the envs that are hit, graded by a size or of a fixed weight; `None` where none is."""
    if not hit.any():
        return None
    size = np.minimum(size, SOFT_CAP) if isinstance(size, np.ndarray) else size
    return Factor(name=name, status=status, weight=np.where(hit, size, 0.0), say=say, tell=tell)


def crashed(fleet: Fleet, _limits: AnomalyLimits) -> Factor | None:
    """The env died and has not reported since."""
    envs = fleet.state.envs
    if not envs.crashes:
        return None

    def stated(row: int) -> str:
        """The reason for one row."""
        return envs.crashes[int(fleet.ids[row])]

    return _factor(
        "crashed", envs.crashed_at[: fleet.n] > 0, HARD, stated,
        lambda row: stated(row).removeprefix("crashed").lstrip(": "), status="crashed",
    )  # fmt: skip


def non_finite(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """A value of this env that must be finite was not, not long ago."""
    envs = fleet.state.envs
    if not envs.non_finite:
        return None
    seen = envs.non_finite_at[: fleet.n]
    recent = (seen > 0) & (fleet.state.last_at - seen <= int(limits.non_finite_hold_s * 1e9))

    def stated(row: int) -> str:
        """The reason for one row."""
        return envs.non_finite[int(fleet.ids[row])]

    return _factor(
        "non-finite", recent, HARD - 1, lambda row: f"non-finite: {stated(row)}", stated, status="diverging"
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
    actions, words = fleet.state.envs.actions, fleet.state.op_names.words
    streak = actions.streak[: fleet.n]
    top = int(np.maximum.reduce(streak, initial=0)) if words else 0
    reported = int((streak > 0).sum()) if top >= limits.least_repeats else 0
    if reported < LEAST_ENVS:
        return None
    # The usual length is the mean of the others', so that one stuck env does not excuse itself.
    usual = float(streak.sum() - top) / (reported - 1)
    limit = max(float(limits.least_repeats), usual * (2.0 * ln_above(reported) + RARE))

    def stated(row: int) -> str:
        """The reason for one row."""
        op, _ = actions.last(row)
        return f"{words[op] if op >= 0 else 'no action'} {streak[row]}× in a row"

    return _factor(
        "action collapse", streak >= limit, streak / limit, stated,
        lambda row: f"{stated(row)} (usual {usual:.1f})",
    )  # fmt: skip


WITH_LANE: Final = 0.4
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
    pace, steps = fleet.usual.pace, fleet.step_time
    usual = min(pace.median or 0.0, np.inf if fleet.past.step is None else fleet.past.step)
    if usual <= 0 or not float(np.fmax.reduce(steps)) >= limits.slow_step * usual:
        return None
    times = steps / usual
    slow = np.isfinite(times) & (times >= limits.slow_step)
    if int((times < limits.slow_step).sum()) < max(2, fleet.n // FEW):
        return None
    for lane in slow_lanes(pace, limits):
        slow &= ~fleet.on_lane(lane) | (steps >= limits.slow_step * pace.lanes[lane])
    return _factor(
        "slow step", slow, times / limits.slow_step, lambda row: f"step {times[row]:.1f}× the median",
        lambda row: f"{times[row]:.1f}× the median", status="stalled",
    )  # fmt: skip


def slow_lane(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """The env is slow with its whole lane: a symptom, which leaves the env ok."""
    return _factor(
        "slow lane", with_slow_lane(fleet, limits), WITH_LANE, lambda _row: "slow with their lane",
        lambda _row: "all of its lane is slow", status="ok",
    )  # fmt: skip


def silent(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Other envs report, this one does not, for longer than its own rhythm allows.

    Others have reported up to when a sixteenth of the living ones had: one env of eight or more that reports
    alone does not make the others silent; two do.
    """
    envs, silences = fleet.state.envs, fleet.state.envs.silences
    # No env has been quiet for longer than the quietest one when this second began.
    if (silences.clock_ns - fleet.usual.oldest_ns) / 1e9 < limits.silent_s:
        return None
    last_ns, down = silences.last_ns[: fleet.n], envs.crashed_at[: fleet.n] > 0
    living = last_ns[~down]
    if not living.size:
        return None
    place = living.size - 1 - max(min(living.size // 8, 1), living.size // 16)
    quiet_s = (np.partition(living, place)[place] - last_ns) / 1e9
    patience_s, mute = np.maximum(patience_of(envs), limits.silent_s), ~down & (envs.born_at[: fleet.n] > 0)
    return _factor(
        "silent", mute & (quiet_s >= patience_s), 1.0 + quiet_s / (4 * patience_s),
        lambda row: f"silent for {quiet_s[row]:.0f}s while others step",
        lambda row: f"for {quiet_s[row]:.0f}s while others step", status="stalled",
    )  # fmt: skip


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
    own_s: Floats = np.where(bare, OF_EPISODES, 1.0 + np.clip(uneven, 1.0, UNEVEN)) * longest_s
    # Few gaps are little: so long the fleet's rhythm counts too.
    return np.where(gaps >= ENOUGH_GAPS, own_s, np.maximum(own_s, median_of(own_s[known])))


def slow_lanes(pace: Pace, limits: AnomalyLimits) -> list[str]:
    """Lanes whose usual step is well above that of the other lanes of their kind."""
    return [lane for lane, times in pace.times.items() if times >= limits.slow_lane]


def with_slow_lane(fleet: Fleet, limits: AnomalyLimits) -> Mask:
    """Envs that step as slowly as their slow lane does, shape (n,)."""
    pace, slow = fleet.usual.pace, np.zeros(fleet.n, dtype=np.bool_)
    for lane in slow_lanes(pace, limits):
        usual = pace.lanes[lane] / pace.times[lane]
        slow |= fleet.on_lane(lane) & (fleet.step_time >= limits.slow_lane * usual)
    return slow


def reward_collapse(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Far below its own earlier episodes and below the envs that hold theirs, all of the last five times.

    The limit grows with the size of the fleet. Where none hold theirs it is the policy, and no env.
    """
    return _fell(fleet, limits) or _resets(fleet)


def _fell(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    returns = fleet.returns
    if returns is None or returns.fleet.num < LEAST_ENVS:
        return None
    usual, limit = returns.fleet, far(returns.fleet.num, limits.margin)
    if usual.usual - float(np.fmin.reduce(returns.recent)) < limit * usual.spread:
        return None
    earned = fleet.state.envs.all_sums()
    level, _ = levels_of(earned, fleet.past, fleet.n)
    with np.errstate(invalid="ignore"):
        low = (usual.usual - returns.recent) / usual.spread
        own = (level - returns.recent) / max(usual.spread, usual.noise)
        fell = returns.judged & (low >= limit) & (own >= limits.own_drop)
        fell &= (usual.usual - earned.lasting[: fleet.n]) / usual.spread >= limit / 2
    # Many at once: the others must have shown since that they did not.
    if int(fell.sum()) > limits.crowd * usual.num and not (usual.holding and fleet.past.many_at):
        return None
    return _factor(
        "reward collapse", fell, 1.0 + low / limit, lambda row: f"return {low[row] * NORMAL:.1f} mad low"
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
        if int((steps >= LONG * AT_ONCE).sum()) < max(2, n // FEW):
            return None
    return _factor(
        "reward collapse", hit, SOFT_CAP, lambda row: f"episodes of {_plural('step', round(steps[row]))}"
    )


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
    counts = fleet.state.envs.culls.recent(fleet.n, fleet.state.last_at)
    return _many(
        "cull rate", counts, limits, lambda row: f"{_plural('cull', counts[row])} in {WINDOW_S}s",
        lambda row, usual: f"{counts[row]} in {WINDOW_S}s (usual {usual:.1f})",
    )  # fmt: skip


def gate_failures(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """More of its seeds failed a gate in the last minute than chance gives to any env of the fleet."""
    envs, ids = fleet.state.envs, fleet.ids
    counts = envs.gate_fails.recent(fleet.n, fleet.state.last_at)

    def reported(row: int, _usual: float) -> str:
        """The same beside its name."""
        gate, why = envs.failed_gate[int(ids[row])], envs.failed_why[int(ids[row])]
        return f"{counts[row]} at {gate}" + (f": {why}" if why else "")

    return _many(
        "gate fails", counts, limits,
        lambda row: f"{_plural('fail', counts[row])} at {envs.failed_gate[int(ids[row])]}", reported,
    )  # fmt: skip


def _many(
    name: str, counts: Ints, limits: AnomalyLimits, say: Callable[[int], str],
    tell: Callable[[int, float], str],
) -> Factor | None:  # fmt: skip
    """Counts that stand out from those of all other envs; `None` where none does."""
    n, top = counts.size, int(counts.max(initial=0))
    if n < LEAST_REPORTING or top < limits.least_events:
        return None
    centre = float(np.median(counts))
    scatter = NORMAL * float(np.median(np.abs(counts - centre)))
    # The usual count of an env is the mean of the others', so that one stormy env does not excuse itself.
    usual = max(centre, (int(counts.sum()) - top) / (n - 1))
    chance = max(most_events(usual, n), limits.least_events)
    limit = max(float(chance), centre + far(n, limits.margin) * scatter)
    return _factor(name, counts >= limit, counts / limit, say, lambda row: tell(row, usual))


def rent_without_gain(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Rent far above the fleet's for many steps, and the metric gained nothing meanwhile."""
    envs, trends, rents = fleet.state.envs, fleet.state.envs.trends, fleet.usual.rents
    rent, metric = envs.values["rent"][: fleet.n], envs.values["metric"][: fleet.n]
    beyond = far(rents.num, limits.margin) * rents.spread
    least = max(limits.rent_times * rents.usual, rents.usual + beyond)
    if beyond <= 0 or not float(np.fmax.reduce(rent)) >= least:
        return None
    rows = np.flatnonzero((rent >= least) & (rent < np.inf) & (envs.times["metric"][: fleet.n] > 0))
    if not rows.size:
        return None
    # Only those that pay much now can have paid much all the time: theirs are the windows that are read, from
    # the newest sample of this episode that is old enough.
    age = trends.now[rows, None] - trends.step[rows]
    whole = np.arange(SAMPLES) < trends.count[rows, None]
    whole &= trends.at[rows] > envs.episode_at[rows, None]
    old = whole & (age >= limits.gain_steps)
    first = np.where(old, age, np.iinfo(np.int64).max).argmin(axis=1)[:, None]
    span = np.take_along_axis(age, first, axis=1)
    paid = np.where(whole & (age <= span), trends.values["rent"][rows], np.inf).min(axis=1)
    gain = metric[rows] - np.take_along_axis(trends.values["metric"][rows], first, axis=1)[:, 0]
    info = fleet.state.started.metric if fleet.state.started else None
    sign = 1.0 if info is None or info.higher_is_better else -1.0
    high = np.minimum(paid, rent[rows]) - rents.usual
    hit = old.any(axis=1) & (high >= beyond) & (gain * sign <= 0.01 * np.abs(metric[rows]))
    size = np.zeros(fleet.n)
    size[rows] = np.where(hit, high / beyond, 0.0)
    gained = dict(zip(rows.tolist(), zip(gain.tolist(), span[:, 0].tolist(), strict=True), strict=True))

    def stated(row: int) -> str:
        """The reason for one row."""
        more, steps = gained[row]
        # A zero is `+0.00` from either side.
        return f"rent {rent[row]:.2f}, {name} {round(more, 2) + 0.0:+.2f} in {steps} steps"

    name = "metric" if info is None else info.name
    return _factor("rent, no gain", size > 0, size, stated)


def _plural(word: str, count: int) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
