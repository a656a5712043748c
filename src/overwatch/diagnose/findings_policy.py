"""Findings about the policy: rows beyond their limits, what they mean together, drift, returns that fall.

Causes take their symptoms: a collapse takes its rows and the fall of returns, a compound its parts, a row
beyond its limit its own drift. A policy with little entropy that earns its best is solved, and an early stop
that kept KL near its target has worked: both are told as info, never as a warning. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog import KL
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.catalog.policy import ENTROPY, RETURN
from overwatch.diagnose.compound import COLLAPSE, STEPS, collapse_of, joined
from overwatch.diagnose.converged import WARM_UP_UPDATES, falls_fast, has_converged
from overwatch.diagnose.drift import Drift, drift_problems, drifts
from overwatch.diagnose.factors.returns import fleet_fell
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.policy_rows import is_beyond, is_harmless_drift, is_judged, row_problems
from overwatch.diagnose.policy_spikes import kl_spike
from overwatch.diagnose.problem import STEADY, UPDATES, Problem
from overwatch.diagnose.returns import Returns
from overwatch.events import EarlyStopped
from overwatch.state.arrays import Derived
from overwatch.state.policy import Series
from overwatch.state.run import RunState

STOPPED_LATELY: Final = 5
"""Updates for which an early stop is told."""
_STOPPED: Final = "early-stop"
_FALLEN: Final = f"reward-collapse:policy:{RETURN.short}"


class Calm(Derived):
    """That nothing was wrong with a policy, and what says that nothing can be yet."""

    def __init__(self, heeded: int = -1, told: int = -1, by: tuple[object, object] | None = None) -> None:
        self._heeded = heeded
        self._told = told
        self._by = by

    def lasts(self, state: RunState, fleet: Fleet, limits: AnomalyLimits) -> bool:
        """Whether all that the policy is judged by is as it was."""
        by = self._by
        if by is None or self._heeded != state.heeded or self._told != _told(state, fleet):
            return False
        return by[0] is fleet.usual and by[1] is limits


def _told(state: RunState, fleet: Fleet) -> int:
    """Without enough episodes to judge by, each one that ends may tell whether returns vary."""
    return state.episodes if fleet.returns is None else -1


class PolicyMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a tick of what is judged of the policy."""

    heeded: int = -1
    """As the state counts it: while it is the same, so is all that the policy told."""
    drifts: dict[str, Drift] = {}
    """What has added up of the rows that may drift, by name."""
    calm: Calm = msgspec.field(default_factory=Calm)


def judge_policy(
    state: RunState,
    fleet: Fleet,
    limits: AnomalyLimits,
    standing: Mapping[str, Problem],
    before: PolicyMemory,
) -> tuple[list[Problem], PolicyMemory]:
    """As `policy_problems`, which is not asked again while nothing is wrong and nothing new was told."""
    if before.calm.lasts(state, fleet, limits):
        return [], before
    drifting = before.drifts if before.heeded == state.heeded else drifts(state, before.drifts)
    found = policy_problems(state, fleet, limits, standing, drifting)
    if found or any(":policy:" in key for key in standing):
        return found, PolicyMemory(heeded=state.heeded, drifts=drifting)
    calm = Calm(state.heeded, _told(state, fleet), (fleet.usual, limits))
    return found, PolicyMemory(heeded=state.heeded, drifts=drifting, calm=calm)


def policy_problems(
    state: RunState,
    fleet: Fleet,
    limits: AnomalyLimits,
    standing: Mapping[str, Problem],
    drifting: Mapping[str, Drift],
) -> list[Problem]:
    """What is wrong with the policy, symptoms under their causes."""
    rows = list(row_problems(state, fleet, standing))
    fallen = list(_fallen(state, fleet, limits, standing))
    entropy = state.policy.get(ENTROPY.name)
    falling = entropy is not None and falls_fast(entropy)
    collapse = collapse_of(rows, fallen, falling=falling, stands=f"{COLLAPSE}:policy:" in standing)
    if collapse is not None:
        return [collapse]
    spikes = [spike for spike in kl_spike(state) if KL.short not in {row.subject for row in rows}]
    told = {problem.subject for problem in (*rows, *fallen)}
    quiet = list(_quiet(state, fleet))
    told |= set(STEPS) if any(problem.code == _STOPPED for problem in quiet) else set()
    crept = [
        drift
        for row, drift in drift_problems(state, drifting, standing)
        if row.short not in told
        and is_judged(state, fleet, row, state.policy[row.name])
        and not is_harmless_drift(state, fleet, row)
    ]
    return [*joined([*rows, *spikes], standing), *fallen, *crept, *quiet]


def _quiet(state: RunState, fleet: Fleet) -> Iterator[Problem]:
    """What looks like trouble and is none: a policy that is solved, an early stop that worked."""
    if state.updates < WARM_UP_UPDATES:
        return
    entropy, stop = state.policy.get(ENTROPY.name), state.early_stop
    if entropy is not None and is_beyond(ENTROPY, entropy) and has_converged(state, fleet):
        yield _converged(state, entropy)
    if stop is None or state.update is None or not 0 <= state.update - stop.update < STOPPED_LATELY:
        return
    if stop.kl_divergence <= STOPPED_WITHIN * stop.target:
        yield _stopped(state, stop, state.update)


def _converged(state: RunState, entropy: Series) -> Problem:
    told = state.policy.get(RETURN.name)
    earned = "" if told is None or told.value is None else f" {told.value:{RETURN.fmt}}"
    return Problem(
        code="converged",
        severity="info",
        scope="policy",
        subject=ENTROPY.short,
        at=entropy.at,
        message=f"converged: entropy {entropy.value:.0%} of its maximum, return{earned} at its best",
        hint="the task may be solved: evaluate, then stop; more entropy only if it should explore on",
        patience=UPDATES,
    )


def _stopped(state: RunState, stop: EarlyStopped, update: int) -> Problem:
    told = {stop.update for stop in state.early_stops.items}
    lately = sum(0 <= update - number < STOPPED_LATELY for number in told)
    return Problem(
        code=_STOPPED,
        severity="info",
        scope="policy",
        subject=KL.short,
        at=stop.at,
        message=f"early stop worked: KL {stop.kl_divergence:.4f} at target {stop.target:g}",
        hint="nothing is wrong; where most updates stop early, a lower learning rate wastes fewer epochs",
        factors=(f"{lately} of the last {STOPPED_LATELY} updates",),
        patience=UPDATES,
    )


def _fallen(
    state: RunState, fleet: Fleet, limits: AnomalyLimits, standing: Mapping[str, Problem]
) -> Iterator[Problem]:
    """The return of the whole fleet fell: one finding about the policy they share, until half is regained."""
    returns = fleet.returns
    if returns is None:
        return
    known = standing.get(_FALLEN)
    if known is not None and known.at <= state.task_changed_at:
        known = None
    if known is not None and known.usual is not None and known.stands is not None:
        if returns.fleet.recent < known.stands:
            yield _fall(state, returns, known.usual)
    elif fleet_fell(returns, limits) is not None:
        yield _fall(state, returns, returns.fleet.earlier)


def _fall(state: RunState, returns: Returns, usual: float) -> Problem:
    judged = returns.fleet.num
    return Problem(
        code="reward-collapse",
        severity="warning",
        scope="policy",
        subject=RETURN.short,
        at=state.last_at,
        message=f"return of the fleet fell to {returns.fleet.recent:+.2f} from {usual:+.2f}",
        hint="look at KL and entropy; go back to the last good checkpoint",
        factors=(f"median of {judged} envs",),
        symptoms=judged,
        patience=STEADY,
        usual=usual,
        stands=(usual + returns.fleet.recent) / 2,
    )
