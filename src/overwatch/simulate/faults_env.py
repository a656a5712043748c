"""Faults of one env, the last: one ailment each, what all others do stays as it was."""

from typing import Final

from msgspec.structs import replace

from overwatch.simulate.conditions import Conditions
from overwatch.simulate.ramp import Fault


def _ailing(word: str) -> Fault:
    def fault(now: Conditions, _since_s: float) -> Conditions:
        return replace(now, ailment=word)

    return fault


ENV_FAULTS: Final[dict[str, Fault]] = {
    "env-crash": _ailing("crash"),
    "env-nan": _ailing("nan"),
    "env-nan-column": _ailing("nan-column"),
    "env-silent": _ailing("silent"),
    "env-slow": _ailing("slow"),
    "env-reward": _ailing("reward"),
    "env-rent": _ailing("rent"),
    "env-actions": _ailing("actions"),
}
"""It crashes and stays down, its reward is NaN,
with a fact or in its column alone, it is silent, its steps take six times as long, its
rewards fall, it pays ten times the most rent for nothing, it does the same thing over and over."""
