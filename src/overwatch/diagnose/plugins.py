"""Factors of others: found by entry point, judged beside our own, switched off for the run when they fail.

A plugin is a function `(Fleet, AnomalyLimits) -> Factor | None` under the entry-point group
`overwatch.factors`. Rules: what a plugin gives is checked and never weighs more than our graded factors may;
one that raises, or gives something else, does so once a run and is said by name. Must not know our own
factors.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import numpy as np

from overwatch.diagnose.factor import SOFT_CAP, Factor, Rule
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits

GROUP: Final = "overwatch.factors"
STATUSES: Final = ("ok", "degraded", "stalled", "diverging")
"""What a plugin may call an env; only a fact makes it crashed."""
_REASON: Final = 120
_ASKED: Final = 512
"""Envs that are asked for their reasons; more of them are told by the factor's name."""

_log = logging.getLogger("overwatch.diagnose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A factor of another distribution."""

    name: str
    rule: Rule
    weight: float = 1.0
    """Times what it gives; 0 turns it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What one plugin found at one tick: a factor, or nothing, or why it failed."""

    factor: Factor | None = None
    failed: str | None = None


def names() -> tuple[str, ...]:
    """Names of the installed plugins."""
    return tuple(sorted({point.name for point in _points(tuple(sys.path))}))


def load(weights: Mapping[str, float]) -> tuple[tuple[Plugin, ...], dict[str, str]]:
    """The installed plugins with their weights, and those that cannot be loaded with the reason."""
    found, failed = [], {}
    for point in sorted(_points(tuple(sys.path)), key=lambda point: point.name):
        if not weights.get(point.name, 1.0):
            continue
        try:
            rule = _function(point)
        except Exception as error:  # noqa: BLE001 a named border: a plugin may raise anything
            failed[point.name] = _said(error)
            _log.warning("factor %s cannot be loaded: %s", point.name, failed[point.name])
            continue
        found.append(Plugin(name=point.name, rule=rule, weight=weights.get(point.name, 1.0)))
    return tuple(found), failed


def weigh(plugin: Plugin, fleet: Fleet, limits: AnomalyLimits) -> Weighed:
    """What a plugin says of the fleet, checked; whatever it raises is told, not raised."""
    try:
        factor = plugin.rule(fleet, limits)
        return Weighed(factor=None if factor is None else _checked(plugin, factor, fleet.n))
    except Exception as error:  # noqa: BLE001 a named border: a plugin may raise anything
        return Weighed(failed=_said(error))


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
    if factor.status not in STATUSES:
        raise ValueError(f"status {factor.status!r} is not one of {', '.join(STATUSES)}")
    weight = np.array(factor.weight, dtype=np.float64)
    if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(f"weight has to be {n} numbers from 0 on, one an env")
    # A reason is read later, row by row, where nobody expects a failure.
    said = {row: str(factor.say(row))[:_REASON] for row in np.flatnonzero(weight)[:_ASKED].tolist()}
    return replace(
        factor,
        name=str(factor.name),
        weight=np.minimum(weight, SOFT_CAP) * plugin.weight,
        say=lambda row: said.get(row, str(factor.name)),
        tell=None,
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_REASON]
