"""How far each env is from normal, and why: small factors in an explicit list, added up.

A factor gives a weight per env and says its reason with numbers. It abstains (`None`) where its signal is
missing or equal for all. Hard faults weigh more than everything else together, so nothing averages them away.
Pure; must not know how a score is shown or ranked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np

from overwatch.diagnose.fleet import Fleet
from overwatch.state.arrays import Floats, Ints

HARD: Final = 10.0
"""Weight of a fault that needs no judgement."""
SOFT_CAP: Final = 3.0
"""Most that a graded factor may weigh."""
REASONS: Final = 3


class AnomalyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When the graded factors start to weigh."""

    slow_step: float = 4.0
    """A step is slow from this many times the fleet's median on."""
    silent_s: float = 5.0
    """An env is silent when others spoke this many seconds after its last record."""
    non_finite_hold_s: float = 60.0
    """A non-finite value is held against an env for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One reason for envs to stand out."""

    name: str
    status: str
    """What an env with this factor is called, if nothing worse is."""
    weight: Floats
    """Per env, shape (n,); 0 where the factor does not apply."""
    say: Callable[[int], str]
    """The reason for one row, short, with numbers."""


Rule: TypeAlias = Callable[[Fleet, AnomalyLimits], Factor | None]


def crashed(fleet: Fleet, _limits: AnomalyLimits) -> Factor | None:
    """The env died and has not spoken since."""
    envs = fleet.state.envs
    weight = np.where(envs.crashed_at[: fleet.n] > 0, HARD, 0.0)
    if not weight.any():
        return None
    return Factor(
        name="crashed", status="crashed", weight=weight, say=lambda row: envs.crashes[int(fleet.ids[row])]
    )


def non_finite(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """A value of this env that must be finite was not, not long ago."""
    envs = fleet.state.envs
    seen = envs.non_finite_at[: fleet.n]
    recent = (seen > 0) & (fleet.state.last_at - seen <= int(limits.non_finite_hold_s * 1e9))
    if not recent.any():
        return None
    return Factor(
        name="non-finite",
        status="diverging",
        weight=np.where(recent, HARD - 1, 0.0),
        say=lambda row: f"non-finite: {envs.non_finite[int(fleet.ids[row])]}",
    )


def slow_step(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """A step takes far longer than the fleet's median."""
    usual = fleet.median_step_time
    if usual is None or usual <= 0:
        return None
    times = fleet.step_time / usual
    slow = np.isfinite(times) & (times >= limits.slow_step)
    if not slow.any():
        return None
    return Factor(
        name="slow-step",
        status="stalled",
        weight=np.where(slow, np.minimum(times / limits.slow_step, SOFT_CAP), 0.0),
        say=lambda row: f"step {times[row]:.1f}× the median",
    )


def silent(fleet: Fleet, limits: AnomalyLimits) -> Factor | None:
    """Other envs speak, this one does not."""
    if not fleet.n:
        return None
    quiet_s = (fleet.newest_at - fleet.state.envs.seen_at[: fleet.n]) / 1e9
    mute = quiet_s >= limits.silent_s
    if not mute.any():
        return None
    return Factor(
        name="silent",
        status="stalled",
        weight=np.where(mute, np.minimum(1.0 + quiet_s / (4 * limits.silent_s), SOFT_CAP), 0.0),
        say=lambda row: f"silent for {quiet_s[row]:.0f}s while others step",
    )


FACTORS: Final[tuple[Rule, ...]] = (crashed, non_finite, slow_step, silent)
_WORST_FIRST: Final = ("crashed", "diverging", "stalled", "degraded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomalies:
    """The fleet judged at one tick."""

    scores: Floats
    """Per env, shape (n,)."""
    factors: tuple[Factor, ...]

    def status(self, row: int) -> str:
        """The worst thing that is true of this env, else `ok`."""
        found = {factor.status for factor in self.factors if factor.weight[row] > 0}
        return next((word for word in _WORST_FIRST if word in found), "ok")

    def reasons(self, row: int) -> tuple[str, ...]:
        """The strongest reasons, strongest first."""
        found = [factor for factor in self.factors if factor.weight[row] > 0]
        found.sort(key=lambda factor: -float(factor.weight[row]))
        return tuple(factor.say(row) for factor in found[:REASONS])

    def offenders(self) -> Ints:
        """Rows of envs that are not ok, in table order."""
        return np.flatnonzero(self.scores > 0)


def score_envs(fleet: Fleet, limits: AnomalyLimits) -> Anomalies:
    """Score every env by every factor."""
    factors = tuple(factor for rule in FACTORS if (factor := rule(fleet, limits)) is not None)
    scores = np.zeros(fleet.n)
    for factor in factors:
        scores = scores + factor.weight
    return Anomalies(scores=scores, factors=factors)
