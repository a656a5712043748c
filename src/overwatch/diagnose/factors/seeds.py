"""Envs whose seeds go wrong: culls and failed gates far above the fleet's, rent that buys nothing."""

from dataclasses import dataclass

import numpy as np

from overwatch.diagnose.factor import SOFT_CAP, Factor
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.robust import far, median_of, most_events, spread_high
from overwatch.diagnose.usual import LEAST_REPORTING, paid_rents
from overwatch.state.arrays import NORMAL, Floats, Ints
from overwatch.state.env_tables import SAMPLES, WINDOW_S


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
        said = envs.failed_why[int(fleet.ids[row])]
        return f": {said}" if said else ""

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

    def said(row: int) -> str:
        place = places[row]
        return f"rent {rent[row]:.2f}, {name} {_signed(gain[place])} in {steps[place]} steps"

    return Factor(name="rent, no gain", status="degraded", weight=weight, say=said)


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
    """The envs that pay much, or `None`; what is usual is told by all that pay and measure something."""
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
