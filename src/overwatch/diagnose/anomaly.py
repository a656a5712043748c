"""How far each env is from normal, and why: small factors in an explicit list, added up.

A factor gives a weight per env and says its reason with numbers. It abstains (`None`) where its signal is
missing or equal for all. Hard faults weigh more than everything else together, so nothing averages them away.
Pure; must not know how a score is shown or ranked.

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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np

from overwatch.diagnose.factor import HARD, SOFT_CAP, Factor, Rule
from overwatch.diagnose.factors.faults import crashed, non_finite
from overwatch.diagnose.factors.moves import action_collapse
from overwatch.diagnose.factors.pace import silent, slow_lane, slow_step
from overwatch.diagnose.factors.returns import reward_collapse
from overwatch.diagnose.factors.seeds import cull_rate, gate_failures, rent_without_gain
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits, Weights
from overwatch.diagnose.plugins import Plugin, weigh
from overwatch.state.arrays import Floats, Ints, no_floats, no_ints

__all__ = [
    "FACTORS", "HARD", "REASONS", "SOFT_CAP", "STATUSES", "Anomalies", "AnomalyLimits", "Factor", "Rule",
    "Weights", "score_envs",
]  # fmt: skip

REASONS: Final = 3
FACTORS: Final[tuple[Rule, ...]] = (
    crashed, non_finite, slow_step, slow_lane, silent, reward_collapse, rent_without_gain, cull_rate,
    gate_failures, action_collapse,
)  # fmt: skip
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
            found += [] if weighed.factor is None else [weighed.factor]
            if weighed.failed is not None:
                failed[plugin.name] = weighed.failed
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
    for rule in FACTORS:
        times: float = getattr(weights, rule.__name__)
        factor = rule(fleet, limits) if times > 0 else None
        if factor is not None:
            found.append(factor if times == 1.0 else replace(factor, weight=factor.weight * times))
    return found
