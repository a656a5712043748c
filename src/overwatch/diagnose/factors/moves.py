"""Envs that do the same thing over and over, far longer than any env of the fleet."""

from typing import Final

import numpy as np

from overwatch.diagnose.factor import SOFT_CAP, Factor
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.robust import ln_above

LEAST_ENVS: Final = 8
"""Fewer envs have no usual length to differ from."""
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
    told = int((streak > 0).sum())
    if told < LEAST_ENVS:
        return None
    # The usual length is the mean of the others', so that one stuck env does not excuse itself.
    usual = float(streak.sum() - top) / (told - 1)
    limit = max(float(limits.least_repeats), usual * (2.0 * ln_above(told) + RARE))
    hit = streak >= limit
    if not hit.any():
        return None
    words = fleet.state.op_names.words

    def said(row: int) -> str:
        op, _ = actions.last(row)
        return f"{words[op] if op >= 0 else 'no action'} {streak[row]}× in a row"

    return Factor(
        name="action collapse",
        status="degraded",
        weight=np.where(hit, np.minimum(streak / limit, SOFT_CAP), 0.0),
        say=said,
        tell=lambda row: f"{said(row)} (usual {usual:.1f})",
    )
