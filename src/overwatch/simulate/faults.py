"""What can go wrong in a simulated run: one small pure function a fault, in one table.

A fault says how the run's conditions change by the seconds since it began; several are applied in the order
of the table, so their order on a command line does not matter. Must not know how a run obeys its conditions.
"""

import difflib
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from overwatch.simulate.conditions import Conditions
from overwatch.simulate.faults_env import ENV_FAULTS
from overwatch.simulate.faults_machine import MACHINE_FAULTS
from overwatch.simulate.faults_policy import POLICY_FAULTS
from overwatch.simulate.ramp import Fault, ramp

__all__ = ["FAULTS", "Conditions", "Fault", "FaultError", "Planned", "conditions_at", "parse_fault"]


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A fault and when it begins."""

    name: str
    at_s: float
    """Seconds since the run's start."""


class FaultError(ValueError):
    """A fault that cannot be planned; the message says which there are."""


def crash_storm(now: Conditions, since_s: float) -> Conditions:
    """Envs of the last lane crash one after another for 30 s; each comes back after 20 s."""
    return replace(now, crashing=0.25 if since_s < 30 else 0.0)


def cull_storm(now: Conditions, _since_s: float) -> Conditions:
    """Seeds of some envs on the first lane fail their gates and are culled, until the end."""
    return replace(now, culling=0.3)


def policy_collapse(now: Conditions, since_s: float) -> Conditions:
    """KL and clipping shoot up, entropy and explained variance fall, within 8 s; returns follow slowly."""
    return replace(
        now, collapse=max(now.collapse, ramp(since_s, 8)), misery=max(now.misery, 0.6 * ramp(since_s, 30))
    )


def nan(now: Conditions, _since_s: float) -> Conditions:
    """Losses, gradients and the rewards of two envs are NaN at once."""
    return replace(now, poisoned=True)


def thermal_throttle(now: Conditions, since_s: float) -> Conditions:
    """The last lane heats up within 5 s, its clock falls to 58 %, its envs slow down."""
    return replace(now, heat=max(now.heat, ramp(since_s, 5)))


def oom_climb(now: Conditions, since_s: float) -> Conditions:
    """The first lane's memory climbs to 99 % within 45 s."""
    return replace(now, leak=max(now.leak, ramp(since_s, 45)))


def io_starvation(now: Conditions, since_s: float) -> Conditions:
    """The loader's queue runs dry within 3 s and the lanes wait for it."""
    return replace(now, starved=max(now.starved, ramp(since_s, 3)))


def straggler(now: Conditions, since_s: float) -> Conditions:
    """The last lane's steps take 2.5 times as long within 2 s; the other lanes wait."""
    return replace(now, drag=max(now.drag, 1 + 1.5 * ramp(since_s, 2)))


def reward_collapse(now: Conditions, since_s: float) -> Conditions:
    """Rewards of all envs fall within 4 s."""
    return replace(now, misery=max(now.misery, ramp(since_s, 4)))


def curriculum_step(now: Conditions, _since_s: float) -> Conditions:
    """The task gets harder and the trainer says so: all envs earn less at once, and nothing is wrong."""
    return replace(now, level=now.level + 1)


def stale(now: Conditions, _since_s: float) -> Conditions:
    """The producer goes silent and never says that it ended."""
    return replace(now, silent=True)


def run_failed(now: Conditions, _since_s: float) -> Conditions:
    """The trainer says that it failed, and ends."""
    return replace(now, failed=True)


def killed(now: Conditions, _since_s: float) -> Conditions:
    """The trainer is killed by a signal, and its exporter reports which."""
    return replace(now, killed=True)


FAULTS: Final[dict[str, Fault]] = {
    "crash-storm": crash_storm,
    "cull-storm": cull_storm,
    "policy-collapse": policy_collapse,
    "nan": nan,
    "thermal-throttle": thermal_throttle,
    "oom-climb": oom_climb,
    "io-starvation": io_starvation,
    "straggler": straggler,
    "reward-collapse": reward_collapse,
    "curriculum-step": curriculum_step,
    "stale": stale,
    "run-failed": run_failed,
    "killed": killed,
    **MACHINE_FAULTS,
    **ENV_FAULTS,
    **POLICY_FAULTS,
}


def parse_fault(word: str) -> Planned:
    """Read `NAME@SECOND`; raises `FaultError` naming the fault meant, or all that there are."""
    name, at, second = word.partition("@")
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise FaultError(f"fault {name!r} is not known; {hint}there are: {', '.join(FAULTS)}")
    try:
        at_s = float(second)
    except ValueError:
        at_s = -1.0
    if not at or not 0 <= at_s < float("inf"):
        raise FaultError(f"fault {word!r} has no second to begin at; write it like {name}@20")
    return Planned(name=name, at_s=at_s)


def conditions_at(second: float, planned: Iterable[Planned]) -> Conditions:
    """The run's conditions `second` seconds after its start."""
    begun = {plan.name: plan.at_s for plan in sorted(planned, key=lambda plan: -plan.at_s)}
    now = Conditions()
    for name, fault in FAULTS.items():
        if name in begun and second >= begun[name]:
            now = fault(now, second - begun[name])
    return now
