"""How far each env and each lane is from normal, and why: small factors in an explicit list, added up.

A factor gives a weight per env and shows its reason with numbers. It abstains (`None`) where its signal is
missing or equal for all. Hard faults weigh more than everything else together, so nothing averages them away.

Factors of others are found by entry point and judged beside our own: a plugin is a function `(Fleet,
AnomalyLimits) -> Factor | None` under the group `overwatch.factors`. What it gives is checked and never
weighs more than our graded factors may; one that raises, or gives something else, does so once a run, is
named and is off for the rest of it.

Lanes are the envs' machinery once more, one level up: the same factors' shape, weights and limits; a factor
abstains where there is nothing to compare with, and its limit grows with the number of lanes. What an env is
flagged for alone is its own matter; a lane stands out when its envs do together.

Pure, but for the log line about a plugin that cannot be loaded; must not know how a score is shown or ranked.

An env's status is the worst of its factors':

| status    | made by                                                    | cleared when                      |
|-----------|------------------------------------------------------------|-----------------------------------|
| crashed   | crashed                                                    | the env reports again             |
| diverging | non-finite                                                 | none was seen for a minute        |
| stalled   | slow step, silent                                          | it steps like the others          |
| degraded  | reward collapse, rent without gain, cull rate, gate fails, | it is within the fleet's limits   |
|           | action collapse                                            |                                   |
| ok        | nothing, or slow with its lane                             |                                   |
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
import numpy as np

from overwatch.diagnose.bounds import Bound
from overwatch.diagnose.factor import HARD, SOFT_CAP, AnomalyLimits, Factor, Rule, Weights
from overwatch.diagnose.factors import (
    action_collapse,
    crashed,
    cull_rate,
    gate_failures,
    non_finite,
    rent_without_gain,
    reward_collapse,
    silent,
    slow_lane,
    slow_step,
)
from overwatch.diagnose.fleet import LEAST_REPORTING, Fleet, Returns, far, median_of, most_events, spread_low
from overwatch.events.adding import added
from overwatch.state.arrays import Floats, Ints, no_floats, no_ints
from overwatch.state.places import Mask, Rows, num_of

GROUP: Final = "overwatch.factors"
PLUGIN_STATUSES: Final = ("ok", "degraded", "stalled", "diverging")
"""What a plugin may call an env; only a fact makes it crashed."""
_REASON: Final = 120
_REQUESTED: Final = 512
"""Envs that are asked for their reasons; more of them are named by the factor's name."""

_log = logging.getLogger("overwatch.diagnose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A factor of another distribution."""

    name: str
    rule: Rule
    weight: float = 1.0
    """Times what it gives; 0 turns it off."""


def plugin_names() -> tuple[str, ...]:
    """Names of the installed plugins."""
    return tuple(sorted({point.name for point in _points(tuple(sys.path))}))


def load_plugins(weights: Mapping[str, float]) -> tuple[tuple[Plugin, ...], dict[str, str]]:
    """The installed plugins with their weights, and those that cannot be loaded with the reason."""
    found, failed = [], {}
    for point in sorted(_points(tuple(sys.path)), key=lambda point: point.name):
        if not weights.get(point.name, 1.0):
            continue
        try:
            rule = _function(point)
        except Exception as error:  # noqa: BLE001 a named border: a plugin may raise anything
            failed[point.name] = _failure(error)
            _log.warning("factor %s cannot be loaded: %s", point.name, failed[point.name])
            continue
        found.append(Plugin(name=point.name, rule=rule, weight=weights.get(point.name, 1.0)))
    return tuple(found), failed


def weigh(plugin: Plugin, fleet: Fleet, limits: AnomalyLimits) -> Factor | str | None:
    """What a plugin finds in the fleet, checked; whatever it raises comes as words."""
    try:
        factor = plugin.rule(fleet, limits)
        return None if factor is None else _checked(plugin, factor, fleet.n)
    except Exception as error:  # noqa: BLE001 a named border: a plugin may raise anything
        return _failure(error)


def _function(point: EntryPoint) -> Rule:
    rule = point.load()
    if not callable(rule):
        raise TypeError(f"{point.value} is no function")
    known: Rule = rule
    return known


@lru_cache(maxsize=4)
def _points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001 where they are looked for
    return tuple(entry_points(group=GROUP))


def _checked(plugin: Plugin, factor: Factor, n: int) -> Factor:
    """The factor as it may be used; raises `TypeError` or `ValueError` where it is none."""
    if not isinstance(factor, Factor):
        raise TypeError(f"gave a {type(factor).__name__}, not a Factor or None")
    if factor.status not in PLUGIN_STATUSES:
        raise ValueError(f"status {factor.status!r} is not one of {', '.join(PLUGIN_STATUSES)}")
    weight = np.array(factor.weight, dtype=np.float64)
    if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(f"weight has to be {n} numbers from 0 on, one an env")
    # A reason is read later, row by row, where nothing expects a failure.
    stated = {row: str(factor.say(row))[:_REASON] for row in np.flatnonzero(weight)[:_REQUESTED].tolist()}
    return replace(
        factor,
        name=str(factor.name),
        weight=np.minimum(weight, SOFT_CAP) * plugin.weight,
        say=lambda row: stated.get(row, str(factor.name)),
        tell=None,
    )


def _failure(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_REASON]


REASONS: Final = 3
FACTORS: Final[tuple[tuple[Rule, Callable[[Weights], float]], ...]] = (
    (crashed, lambda weights: weights.crashed),
    (non_finite, lambda weights: weights.non_finite),
    (slow_step, lambda weights: weights.slow_step),
    (slow_lane, lambda weights: weights.slow_lane),
    (silent, lambda weights: weights.silent),
    (reward_collapse, lambda weights: weights.reward_collapse),
    (rent_without_gain, lambda weights: weights.rent_without_gain),
    (cull_rate, lambda weights: weights.cull_rate),
    (gate_failures, lambda weights: weights.gate_failures),
    (action_collapse, lambda weights: weights.action_collapse),
)
"""Each rule with its weight, so that a factor without one is a type error."""
STATUSES: Final = ("ok", "degraded", "stalled", "diverging", "crashed")
"""Better ones first; the place is the code."""
_NONE: Final[Ints] = np.zeros(0, dtype=np.int64)


class Anomalies(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet judged at one tick."""

    scores: Floats
    """Per env, shape (n,)."""
    codes: Ints
    """Status of each env as its place in `STATUSES`, shape (n,)."""
    factors: tuple[Factor, ...]
    off: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Factors of others that failed in this run, with the reason."""

    def status(self, row: int) -> str:
        """The worst thing that is true of this env, else `ok`."""
        return STATUSES[int(self.codes[row])]

    def found(self, row: int) -> list[Factor]:
        """The factors of this env, strongest first."""
        found = [factor for factor in self.factors if factor.weight[row] > 0]
        found.sort(key=lambda factor: -float(factor.weight[row]))
        return found

    def reasons(self, row: int) -> tuple[str, ...]:
        """The strongest reasons, strongest first."""
        return tuple(factor.say(row) for factor in self.found(row)[:REASONS])

    def offenders(self) -> Ints:
        """Rows of envs that are not ok, in table order."""
        return np.flatnonzero(self.codes > 0)

    def of_status(self, status: str) -> Ints:
        """Rows of envs of one status, in table order."""
        if not self.factors or all(factor.status != status for factor in self.factors):
            return _NONE
        return np.flatnonzero(self.codes == STATUSES.index(status))


def score_envs(
    fleet: Fleet,
    limits: AnomalyLimits,
    plugins: Sequence[Plugin] = (),
    off: Mapping[str, str] = MappingProxyType({}),
) -> Anomalies:
    """Score every env by every factor that is not turned off, nor `off` since it failed in this run."""
    found = _shipped(fleet, limits)
    failed = dict(off)
    for plugin in plugins:
        if plugin.name not in failed:
            weighed = weigh(plugin, fleet, limits)
            if isinstance(weighed, str):
                failed[plugin.name] = weighed
            elif weighed is not None:
                found.append(weighed)
    factors = tuple(found)
    if not factors:
        return Anomalies(scores=no_floats(fleet.n), codes=no_ints(fleet.n), factors=(), off=failed)
    scores, codes = np.zeros(fleet.n), np.zeros(fleet.n, dtype=np.int64)
    for factor in factors:
        scores += factor.weight
        hit = factor.weight > 0
        codes[hit] = np.maximum(codes[hit], STATUSES.index(factor.status))
    return Anomalies(scores=scores, codes=codes, factors=factors, off=failed)


def _shipped(fleet: Fleet, limits: AnomalyLimits) -> list[Factor]:
    """What the factors of this package find, weighed."""
    found, weights = [], limits.weights
    for rule, weight_of in FACTORS:
        times = weight_of(weights)
        factor = rule(fleet, limits) if times > 0 else None
        if factor is not None:
            found.append(factor if times == 1.0 else replace(factor, weight=factor.weight * times))
    return found


_CRASHED: Final = STATUSES.index("crashed")
_NO_ROWS: Final = np.zeros(0, dtype=np.int64)
_LEAST_ENVS: Final = 2
"""Envs that are off together; one alone is no lane's matter."""


class LaneScore(msgspec.Struct, frozen=True, kw_only=True):
    """One lane."""

    score: float
    reasons: tuple[str, ...]
    """Strongest first."""


_Stated: TypeAlias = tuple[float, str]


def score_lanes(
    fleet: Fleet,
    anomalies: Anomalies,
    bounds: Mapping[str, Bound],
    low: Mapping[str, tuple[float, str]],
    limits: AnomalyLimits,
) -> dict[str, LaneScore]:
    """Score every lane that has envs or readings, by name, in order of first sight; `low` as `low_lanes`."""
    rows = fleet.state.envs.by_lane()
    num_lanes, found = len(rows) - (-1 in rows), dict[str, LaneScore]()
    crashed = anomalies.codes == _CRASHED
    off = ((crashed, "crashed"), ((anomalies.codes > 0) & ~crashed, "not ok")) if anomalies.factors else ()
    for code, name in enumerate(fleet.state.lane_names.words):
        if code not in rows and name not in bounds:
            continue
        own = rows.get(code, _NO_ROWS)
        factors = [_together(own, mask, word, num_lanes) for mask, word in off]
        factors += [_slow(fleet, name, limits), low.get(name), _held_back(bounds.get(name))]
        stated = sorted((one for one in factors if one is not None), key=lambda one: -one[0])
        score = added(weight for weight, _ in stated)
        found[name] = LaneScore(score=score, reasons=tuple(reason for _, reason in stated[:REASONS]))
    return found


def _together(rows: Rows, off: Mask, word: str, num_lanes: int) -> _Stated | None:
    """Far more envs of a lane are off than chance gives to any lane; most of them crashed is a hard fault."""
    own, num = int(off[rows].sum()), num_of(rows)
    if own < _LEAST_ENVS:
        return None
    others = off.size - num
    usual = (int(off.sum()) - own) / others * num if others else 0.0
    limit = max(most_events(usual, max(1, num_lanes)), _LEAST_ENVS)
    if own < limit:
        return None
    weight = HARD if word == "crashed" and 2 * own > num else min(own / limit, SOFT_CAP)
    return weight, f"{own} of {num} envs {word}"


def _slow(fleet: Fleet, name: str, limits: AnomalyLimits) -> _Stated | None:
    """Its usual step is well above that of the other lanes of its kind."""
    pace = fleet.lane_pace.get(name)
    if pace is None or pace < limits.slow_lane:
        return None
    return min(pace / limits.slow_lane, SOFT_CAP), f"steps {pace:.1f}× the other lanes'"


def low_lanes(fleet: Fleet, limits: AnomalyLimits) -> dict[str, tuple[float, str]]:
    """Lanes whose episodes earn less than the other lanes' do: how much that weighs, and the reason."""
    rows, found = fleet.state.envs.by_lane(), {}
    num_lanes = sum(code >= 0 for code in rows)
    if fleet.returns is None or num_lanes < 2:
        return {}
    for code, name in enumerate(fleet.state.lane_names.words):
        stated = (
            _low(fleet, fleet.returns, rows[code], far(num_lanes, limits.margin)) if code in rows else None
        )
        if stated is not None:
            found[name] = stated
    return found


def _low(fleet: Fleet, returns: Returns, rows: Rows, limit: float) -> _Stated | None:
    """By far more than the luck of so many envs."""
    own = returns.recent[rows][returns.judged[rows]]
    if own.size < LEAST_REPORTING:
        return None
    # The fleet's middle lies between this lane's and the others': most lanes need no closer look.
    least = 1.2533 * returns.fleet.noise / 2 * (1.0 / own.size) ** 0.5
    if returns.fleet.recent - median_of(own) < limit / 2 * least:
        return None
    on = np.zeros(fleet.n, dtype=np.bool_)
    on[rows] = True
    others = returns.recent[returns.judged & ~on]
    if others.size < LEAST_REPORTING:
        return None
    # The scatter of the others: a lane that fell must not excuse itself by its own fall. A median scatters
    # 1.25 times as much as a mean does.
    scatter = max(spread_low(others), returns.fleet.noise / 2)
    luck = 1.2533 * scatter * (1.0 / own.size + 1.0 / others.size) ** 0.5
    low = (median_of(others) - median_of(own)) / luck
    if low < limit:
        return None
    return min(1.0 + low / limit, SOFT_CAP), f"return {low:.1f} deviations below the other lanes'"


def _held_back(bound: Bound | None) -> _Stated | None:
    """What holds it back is a fault of its own, not the work it does."""
    if bound is None or bound.mark not in ("!", "!!"):
        return None
    why = bound.why.partition(";")[0]
    return (2.0 if bound.mark == "!!" else 1.0), f"{bound.state.lower()}: {why}"
