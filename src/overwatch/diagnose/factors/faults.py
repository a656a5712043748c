"""Hard faults: they need no judgement, and nothing averages them away."""

import numpy as np

from overwatch.diagnose.factor import HARD, Factor
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits


def crashed(fleet: Fleet, _limits: AnomalyLimits) -> Factor | None:
    """The env died and has not spoken since."""
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
