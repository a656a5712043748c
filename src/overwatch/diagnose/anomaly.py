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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
import numpy as np

from overwatch.diagnose.bounds import Bound
from overwatch.diagnose.factor import HARD, SOFT_CAP, AnomalyLimits, Factor, Rule
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
from overwatch.diagnose.fleet import Fleet, most_events
from overwatch.events.adding import added
from overwatch.snapshot import Anomaly
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
        weight = weights.get(point.name, 1.0)
        if not weight:
            continue
        try:
            rule = _function(point)
            found.append(Plugin(name=point.name, rule=rule, weight=weight))
        except Exception as error:  # noqa: BLE001 a named border: a plugin may raise anything
            failed[point.name] = _failure(error)
            _log.warning("factor %s cannot be loaded: %s", point.name, failed[point.name])
    return tuple(found), failed


def weigh(plugin: Plugin, fleet: Fleet, limits: AnomalyLimits) -> Factor | str | None:
    """What a plugin finds in the fleet, checked; whatever it raises comes as words."""
    try:
        factor = plugin.rule(fleet, limits)
        return None if factor is None else _checked(plugin, factor, fleet.n)
    except Exception as error:  # noqa: BLE001 a named border: a plugin may raise anything
        return _failure(error)


def _function(point: EntryPoint) -> Rule:
    rule: Rule = point.load()
    if not callable(rule):
        raise TypeError(f"{point.value} is no function")
    return rule


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
FACTORS: Final[tuple[Rule, ...]] = (
    crashed, non_finite, slow_step, slow_lane, silent, reward_collapse, rent_without_gain, cull_rate,
    gate_failures, action_collapse,
)  # fmt: skip
"""Each rule has a weight of its name."""
STATUSES: Final = ("ok", "degraded", "stalled", "diverging", "crashed")
"""Better ones first; the place is the code."""


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
        return np.flatnonzero(self.codes == STATUSES.index(status)) if self.factors else no_ints(0)


def score_envs(
    fleet: Fleet,
    limits: AnomalyLimits,
    plugins: Sequence[Plugin] = (),
    off: Mapping[str, str] = MappingProxyType({}),
) -> Anomalies:
    """Score every env by every factor that is not turned off, nor `off` since it failed in this run."""
    found, failed = list[Factor](), dict(off)
    for rule in FACTORS:
        times: float = getattr(limits.weights, rule.__name__)
        factor = rule(fleet, limits) if times > 0 else None
        if factor is not None:
            found.append(factor if times == 1.0 else replace(factor, weight=factor.weight * times))
    for plugin in plugins:
        weighed = None if plugin.name in failed else weigh(plugin, fleet, limits)
        if isinstance(weighed, str):
            failed[plugin.name] = weighed
        elif weighed is not None:
            found.append(weighed)
    if not found:
        return Anomalies(scores=no_floats(fleet.n), codes=no_ints(fleet.n), factors=(), off=failed)
    scores, codes = np.zeros(fleet.n), np.zeros(fleet.n, dtype=np.int64)
    for factor in found:
        scores += factor.weight
        codes = np.maximum(codes, STATUSES.index(factor.status) * (factor.weight > 0))
    return Anomalies(scores=scores, codes=codes, factors=tuple(found), off=failed)


_LEAST_ENVS: Final = 2
"""Envs that are off together; one alone is no lane's matter."""
Stated: TypeAlias = tuple[float, str]
"""How much a reason weighs, and the reason."""


def score_lanes(
    fleet: Fleet,
    anomalies: Anomalies,
    bounds: Mapping[str, Bound],
    limits: AnomalyLimits,
) -> dict[str, Anomaly]:
    """Score every lane that has envs or readings, by name, in order of first sight."""
    lanes, found = fleet.state.envs.by_lane(), dict[str, Anomaly]()
    crashed = anomalies.codes == STATUSES.index("crashed")
    off = {"crashed": crashed, "not ok": (anomalies.codes > 0) & ~crashed} if anomalies.factors else {}
    for code, name in enumerate(fleet.state.lane_names.words):
        if code not in lanes and name not in bounds:
            continue
        stated = list[Stated]()
        for word, mask in off.items() if code in lanes else ():
            stated += _together(lanes[code], mask, word, len(lanes) - (-1 in lanes))
        pace, bound = fleet.usual.pace.times.get(name, 0.0), bounds.get(name)
        if pace >= limits.slow_lane:
            stated.append((min(pace / limits.slow_lane, SOFT_CAP), f"steps {pace:.1f}× the other lanes'"))
        # What holds it back is a fault of its own, not the work it does.
        if bound is not None and "!" in bound.mark:
            stated.append((float(len(bound.mark)), f"{bound.state.lower()}: {bound.why.partition(';')[0]}"))
        stated.sort(key=lambda reason: -reason[0])
        reasons = tuple(reason for _, reason in stated[:REASONS])
        found[name] = Anomaly(score=added(weight for weight, _ in stated), reasons=reasons)
    return found


def _together(rows: Rows, off: Mask, word: str, num_lanes: int) -> list[Stated]:
    """Far more envs of a lane are off than chance gives to any lane; most of them crashed is a hard fault."""
    own, num = int(off[rows].sum()), num_of(rows)
    others = off.size - num
    usual = (int(off.sum()) - own) / others * num if others else 0.0
    limit = max(most_events(usual, max(1, num_lanes)), _LEAST_ENVS)
    if own < limit:
        return []
    weight = HARD if word == "crashed" and 2 * own > num else min(own / limit, SOFT_CAP)
    return [(weight, f"{own} of {num} envs {word}")]
