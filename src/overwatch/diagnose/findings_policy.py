"""Findings about the policy: rows beyond their limits, what they mean together, drift, returns that fall.

Causes take their symptoms: a policy that does not move and a collapse take all rows and the fall of returns,
a compound its parts, a row beyond its limit its own drift. A policy with little entropy that earns its best
is solved, and an early stop that kept KL near its target has worked: both are info, never a warning. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog import KL
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.catalog.policy import ENTROPY, GRAD_NORM, RETURN
from overwatch.diagnose.compound import (
    COLLAPSE,
    COMPOUNDS,
    STEPS,
    collapse_of,
    joined,
    marks_of,
    signs_of,
)
from overwatch.diagnose.converged import (
    earns_its_best,
    falls_fast,
    has_converged,
    has_risen,
    is_warm,
    returns_vary,
    swings_up,
)
from overwatch.diagnose.drift import Drift, drift_problems, drifts
from overwatch.diagnose.factors.returns import fleet_fell
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.frozen import DIVERGED, FROZEN, critic_diverged, frozen
from overwatch.diagnose.hacking import Hacking, hacking, hacking_problem
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.optimiser import RATE, SPIKES, ZERO, Gradients, gradients, optimiser_problems
from overwatch.diagnose.policy_rows import CRITIC, is_beyond, is_harmless_drift, is_judged, row_problems
from overwatch.diagnose.policy_spikes import kl_spike
from overwatch.diagnose.problem import STEADY, UPDATES, Problem
from overwatch.diagnose.rank_spread import Away, away, rank_problems
from overwatch.diagnose.recompiles import recompiles
from overwatch.diagnose.return_fall import ALONE, WITH_A_SIGN, Fall, newest_return, return_fall
from overwatch.events import EarlyStopped
from overwatch.state.arrays import Derived
from overwatch.state.policy import Series
from overwatch.state.run import RunState

STOPPED_LATELY: Final = 5
"""Updates for which an early stop is told."""
_STOPPED: Final = "early-stop"
_FELL: Final = "reward-collapse"
_FALLEN: Final = f"{_FELL}:policy:{RETURN.short}"
_COLLAPSED: Final = f"{COLLAPSE}:policy:"
_DOWN: Final = (_FALLEN, _COLLAPSED, f"{FROZEN}:policy:")
"""Findings that remember how much the return fell."""


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
    gradients: Gradients = Gradients()
    """What gradients were, and which of them spiked."""
    away: Away = Away()
    """Ranks far from the others."""
    hacking: Hacking = Hacking()
    """How the proxy return and the true one part."""
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
    memory = before if before.heeded == state.heeded else _remembered(state, before)
    found = policy_problems(state, fleet, limits, standing, memory)
    if found or any(":policy:" in key for key in standing):
        return found, msgspec.structs.replace(memory, calm=Calm())
    calm = Calm(state.heeded, _told(state, fleet), (fleet.usual, limits))
    return found, msgspec.structs.replace(memory, calm=calm)


def _remembered(state: RunState, before: PolicyMemory) -> PolicyMemory:
    return PolicyMemory(
        heeded=state.heeded,
        drifts=drifts(state, before.drifts),
        gradients=gradients(state, before.gradients),
        away=away(state, before.away),
        hacking=hacking(state, before.hacking),
    )


def policy_problems(
    state: RunState,
    fleet: Fleet,
    limits: AnomalyLimits,
    standing: Mapping[str, Problem],
    memory: PolicyMemory,
) -> list[Problem]:
    """What is wrong with the policy, symptoms under their causes."""
    ranks = list(rank_problems(state, memory.away.rows))
    hacked = hacking_problem(state, memory.hacking)
    again = recompiles(state)
    ranks += [one for one in (hacked, again) if one is not None]
    succeeded = has_risen(state) and earns_its_best(state, fleet)
    solved = succeeded and not returns_vary(state, fleet)
    optimiser = list(optimiser_problems(state, memory.gradients, succeeded=succeeded, solved=solved))
    rows = list(row_problems(state, fleet, standing))
    signs = _signs(state)
    share = WITH_A_SIGN if signs or signs_of(rows) else ALONE
    fallen = list(_fallen(state, fleet, limits, standing, share))
    # What does not move since no step is made is a matter of the optimiser.
    stopped = any(problem.code in (ZERO, RATE) for problem in optimiser)
    still = None if stopped else frozen(state, fell=bool(fallen), succeeded=succeeded)
    if still is not None:
        return [_taking(still, rows, fallen), *ranks]
    lost = critic_diverged(state, succeeded=succeeded)
    critic = set[str | None]() if lost is None else {row.short for row in CRITIC}
    rows = [row for row in rows if row.subject not in critic]
    apart = [*([] if lost is None else [lost]), *optimiser, *ranks]
    entropy = state.policy.get(ENTROPY.name)
    falling = entropy is not None and falls_fast(entropy)
    stands = _COLLAPSED in standing
    # Envs may all have bad luck for a moment; a return at its best, as the trainer sends it, is no fall.
    held = stands or _FALLEN in standing
    down = [fall for fall in fallen if not fall.symptoms or (held and not earns_its_best(state, fleet))]
    collapse = collapse_of(rows, down, falling=falling, stands=stands, succeeds=succeeded, signs=signs)
    if collapse is not None:
        return [collapse, *apart]
    subjects = {row.subject for row in rows}
    spikes = [spike for spike in kl_spike(state) if KL.short not in subjects]
    apart = [one for one in apart if not (one.code == SPIKES and GRAD_NORM.short in subjects)]
    told = {problem.subject for problem in (*rows, *fallen)} | critic
    quiet = list(_quiet(state, fleet))
    told |= set(STEPS) if any(problem.code == _STOPPED for problem in quiet) else set()
    crept = [
        drift
        for row, drift in drift_problems(state, memory.drifts, standing)
        if row.short not in told
        and is_judged(state, fleet, row, state.policy[row.name])
        and not is_harmless_drift(state, fleet, row)
    ]
    return [*joined([*rows, *spikes], standing), *fallen, *crept, *quiet, *apart]


def _signs(state: RunState) -> tuple[str, ...]:
    """What entropy does that may show why returns fell, whatever its limits are."""
    entropy = state.policy.get(ENTROPY.name)
    if entropy is None or entropy.value is None:
        return ()
    way = "falls" if falls_fast(entropy) else "rises" if swings_up(entropy) else None
    return () if way is None else (f"entropy {way} fast, to {entropy.value:.3g}",)


def _taking(cause: Problem, rows: list[Problem], fallen: list[Problem]) -> Problem:
    """A cause with its symptoms, whose findings it takes over."""
    parts, (usual, stands) = [*rows, *fallen], marks_of(fallen)
    return msgspec.structs.replace(
        cause,
        usual=usual,
        stands=stands,
        factors=tuple(part.message for part in parts),
        symptoms=len(parts),
        absorbs=(*(part.code for part in parts), COLLAPSE, DIVERGED, *(c.code for c in COMPOUNDS)),
    )


def _quiet(state: RunState, fleet: Fleet) -> Iterator[Problem]:
    """What looks like trouble and is none: a policy that is solved, an early stop that worked."""
    if not is_warm(state):
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
    state: RunState, fleet: Fleet, limits: AnomalyLimits, standing: Mapping[str, Problem], share: float
) -> Iterator[Problem]:
    """The return fell, of the whole fleet or as the trainer sends it: one finding, until half is regained."""
    known = next((found for found in map(standing.get, _DOWN) if found and found.usual is not None), None)
    if known is not None and known.at <= state.task_changed_at:
        known = None
    sent, returns = newest_return(state), fleet.returns
    if known is not None and known.usual is not None and known.stands is not None:
        by_envs = sent is None or (known.code == _FELL and known.symptoms > 0)
        if by_envs and returns is not None and returns.fleet.recent < known.stands:
            yield _fall(state, Fall(known.usual, returns.fleet.recent), num_envs=returns.fleet.num)
        elif not by_envs and sent is not None and sent < known.stands:
            yield _fall(state, Fall(known.usual, sent))
        return
    fell = return_fall(state, share)
    if fell is not None:
        yield _fall(state, fell)
    elif returns is not None and fleet_fell(returns, limits) is not None:
        yield _fall(state, Fall(returns.fleet.earlier, returns.fleet.recent), num_envs=returns.fleet.num)


def _fall(state: RunState, fell: Fall, *, num_envs: int = 0) -> Problem:
    of = "return of the fleet" if num_envs else "return"
    return Problem(
        code=_FELL,
        severity="warning",
        scope="policy",
        subject=RETURN.short,
        at=state.last_at,
        message=f"{of} fell to {fell.now:+.2f} from {fell.usual:+.2f}",
        hint="look at KL and entropy; go back to the last good checkpoint",
        factors=(f"median of {num_envs} envs",) if num_envs else (),
        symptoms=num_envs,
        # A hold of updates is in the fall itself; envs may all end an episode badly by chance.
        patience=STEADY if num_envs else UPDATES,
        usual=fell.usual,
        stands=(fell.usual + fell.now) / 2,
    )
