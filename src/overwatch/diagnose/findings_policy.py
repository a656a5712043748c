"""Findings about the policy: rows beyond their limits for long enough, a collapse, returns that fall.

A status is of one update; a finding needs the row's hold and a warm-up. Several critical rows are one
collapse. A policy with little entropy that earns its best is solved, and an early stop that kept KL near its
target has worked: both are told as info, never as a warning. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from overwatch.catalog import BY_NAME, KL, Metric
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.catalog.policy import (
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_CLIPPED,
    GRAD_NORM,
    RETURN,
    VALUE_LOSS,
)
from overwatch.diagnose.converged import WARM_UP_UPDATES, has_converged, returns_vary
from overwatch.diagnose.factors.returns import fleet_fell
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.problem import STEADY, UPDATES, Problem
from overwatch.diagnose.returns import Returns
from overwatch.events import EarlyStopped
from overwatch.state.judge import Status
from overwatch.state.policy import Series
from overwatch.state.run import RunState

SLOW_WARM_UP: Final = 50
"""Updates after which the critic's rows are judged in any case."""
CRITIC: Final = (EXPLAINED_VARIANCE, VALUE_LOSS)
"""Rows that say nothing of a critic that has learned nothing yet."""
STOPPED_LATELY: Final = 5
"""Updates for which an early stop is told."""
COLLAPSED_ROWS: Final = 2
_FALLEN: Final = f"reward-collapse:policy:{RETURN.short}"


def policy_problems(
    state: RunState, fleet: Fleet, limits: AnomalyLimits, standing: Mapping[str, Problem]
) -> list[Problem]:
    """What is wrong with the policy; a collapse takes its rows and the fall of returns with it."""
    rows = list(_rows(state, fleet))
    fallen = list(_fallen(state, fleet, limits, standing))
    critical = [problem for problem in rows if problem.severity == "critical"]
    sick = critical + [p for p in rows if p.subject == ENTROPY.short and p not in critical]
    if critical and len(sick) >= COLLAPSED_ROWS:
        return [_collapse(rows, fallen)]
    return [*rows, *fallen, *_quiet(state, fleet)]


def _rows(state: RunState, fleet: Fleet) -> Iterator[Problem]:
    if state.updates < WARM_UP_UPDATES:
        return
    for name, series in state.policy.items():
        row = BY_NAME.get(name)
        if row is None or not _beyond(row, series) or not _is_judged(state, fleet, row, series):
            continue
        recent = series.statuses.items[-row.hold[1] :]
        bad = sum(status > Status.OK for status in recent)
        critical = sum(status == Status.CRITICAL for status in recent) >= row.hold[0]
        yield Problem(
            code=f"policy-{row.short.replace('_', '-')}",
            severity="critical" if critical else "warning",
            scope="policy",
            subject=row.short,
            at=series.at,
            message=f"{row.label} beyond its limit in {bad} of the last {len(recent)} updates",
            hint=row.fix,
            factors=_clipped(state) if row is GRAD_NORM else (),
            patience=UPDATES,
        )


def _beyond(row: Metric, series: Series) -> bool:
    """Whether a row was beyond its limits in as many of its newest updates as its hold asks for."""
    if series.non_finite is not None or series.value is None or series.judgement is None:
        return False
    needed, window = row.hold
    return sum(status > Status.OK for status in series.statuses.items[-window:]) >= needed


def _is_judged(state: RunState, fleet: Fleet, row: Metric, series: Series) -> bool:
    """Whether a row that is beyond its limit means anything yet, or still."""
    if row in CRITIC and series.updates < SLOW_WARM_UP and not _critic_has_learned(state):
        return False
    if row is ENTROPY:
        return not has_converged(state, fleet)
    # A critic cannot explain what does not vary.
    return row is not EXPLAINED_VARIANCE or returns_vary(state, fleet)


def _critic_has_learned(state: RunState) -> bool:
    least, told = EXPLAINED_VARIANCE.warm_above, state.policy.get(EXPLAINED_VARIANCE.name)
    return least is None or (told is not None and told.highest is not None and told.highest > least)


def _clipped(state: RunState) -> tuple[str, ...]:
    share = state.policy.get(GRAD_CLIPPED.name)
    if share is None or share.value is None:
        return ()
    return (f"clipped in {share.value:.0%} of the newest updates",)


def _quiet(state: RunState, fleet: Fleet) -> Iterator[Problem]:
    """What looks like trouble and is none: a policy that is solved, an early stop that worked."""
    if state.updates < WARM_UP_UPDATES:
        return
    entropy, stop = state.policy.get(ENTROPY.name), state.early_stop
    if entropy is not None and _beyond(ENTROPY, entropy) and has_converged(state, fleet):
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
        code="early-stop",
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
        if returns.fleet_recent < known.stands:
            yield _fall(state, returns, known.usual)
    elif fleet_fell(returns, limits) is not None:
        yield _fall(state, returns, returns.fleet_earlier)


def _fall(state: RunState, returns: Returns, usual: float) -> Problem:
    judged = int(returns.judged.sum())
    return Problem(
        code="reward-collapse",
        severity="warning",
        scope="policy",
        subject=RETURN.short,
        at=state.last_at,
        message=f"return of the fleet fell to {returns.fleet_recent:+.2f} from {usual:+.2f}",
        hint="look at KL and entropy; go back to the last good checkpoint",
        factors=(f"median of {judged} envs",),
        symptoms=judged,
        patience=STEADY,
        usual=usual,
        stands=(usual + returns.fleet_recent) / 2,
    )


def _collapse(rows: list[Problem], fallen: list[Problem]) -> Problem:
    labels = [label for label in (_label(problem.subject) for problem in rows) if label]
    told = ", ".join(labels[:-1]) + f" and {labels[-1]}" if len(labels) > 1 else labels[0]
    return Problem(
        code="policy-collapse",
        severity="critical",
        scope="policy",
        subject=None,
        at=min(problem.at for problem in rows),
        message=f"policy collapse: {told} beyond their limits" + ("; returns fall" if fallen else ""),
        hint="stop; go back to the last good checkpoint with a lower learning rate",
        factors=tuple(problem.message for problem in [*rows, *fallen]),
        symptoms=len(rows) + len(fallen),
        patience=UPDATES,
        absorbs=tuple(problem.code for problem in [*rows, *fallen]),
    )


def _label(short: str | None) -> str | None:
    return next((row.label for row in BY_NAME.values() if row.short == short and _is_policy(row)), None)


def _is_policy(row: Metric) -> bool:
    return row.name.startswith("overwatch.policy.")
