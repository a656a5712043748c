"""Findings about the policy: rows beyond their limits for long enough, a collapse, returns that fall.

A status is of one update; a finding needs the row's hold and a warm-up. Several critical rows are one
collapse. A policy with little entropy that earns its best is solved, not sick. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from overwatch.catalog import BY_NAME, Metric
from overwatch.catalog.policy import ENTROPY, EXPLAINED_VARIANCE, RETURN
from overwatch.diagnose.factors.returns import fleet_fell
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.problem import STEADY, UPDATES, Problem
from overwatch.diagnose.returns import Returns
from overwatch.state.judge import Status
from overwatch.state.policy import Series
from overwatch.state.run import RunState

WARM_UP_UPDATES: Final = 20
SLOW_WARM_UP: Final = 50
"""Updates after which a row with a warm-up of its own is judged in any case."""
FAST_FALL: Final = 0.15
"""Entropy, as a share of its maximum, lost over ten updates."""
NEAR_BEST: Final = 0.2
"""A return is at its best within this share of the best one."""
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
    return [*rows, *fallen]


def _rows(state: RunState, fleet: Fleet) -> Iterator[Problem]:
    if state.updates < WARM_UP_UPDATES:
        return
    for name, series in state.policy.items():
        row = BY_NAME.get(name)
        if row is None or series.non_finite is not None or series.value is None or series.judgement is None:
            continue
        needed, window = row.hold
        recent = series.statuses.items[-window:]
        bad = sum(status > Status.OK for status in recent)
        if bad < needed or not _is_judged(state, fleet, row, series):
            continue
        critical = sum(status == Status.CRITICAL for status in recent) >= needed
        yield Problem(
            code=f"policy-{row.short.replace('_', '-')}",
            severity="critical" if critical else "warning",
            scope="policy",
            subject=row.short,
            at=series.at,
            message=f"{row.label} beyond its limit in {bad} of the last {len(recent)} updates",
            hint=row.fix,
            patience=UPDATES,
        )


def _is_judged(state: RunState, fleet: Fleet, row: Metric, series: Series) -> bool:
    """Whether a row that is beyond its limit means anything yet, or still."""
    if row.warm_above is not None and series.updates < SLOW_WARM_UP:
        warm = series.highest is not None and series.highest > row.warm_above
        if not warm:
            return False
    if row is ENTROPY:
        return _falls_fast(series) or not _earns_its_best(state, fleet)
    if row is EXPLAINED_VARIANCE and fleet.returns is not None:
        # A critic cannot explain what does not vary.
        return fleet.returns.noise > 0.05 * abs(fleet.returns.fleet_recent)
    return True


def _falls_fast(series: Series) -> bool:
    known = [value for value in series.history.items if value is not None]
    return len(known) > 1 and max(known) - known[-1] >= FAST_FALL


def _earns_its_best(state: RunState, fleet: Fleet) -> bool:
    """Whether returns are as high as they ever were; `False` where nobody told."""
    told = state.policy.get(RETURN.name)
    if told is not None and told.value is not None and told.highest is not None:
        return told.value >= told.highest - NEAR_BEST * abs(told.highest)
    returns = fleet.returns
    return returns is not None and returns.fleet_recent >= returns.fleet_earlier - returns.noise


def _fallen(
    state: RunState, fleet: Fleet, limits: AnomalyLimits, standing: Mapping[str, Problem]
) -> Iterator[Problem]:
    """The return of the whole fleet fell: one finding about the policy they share, until half is regained."""
    returns = fleet.returns
    if returns is None:
        return
    known = standing.get(_FALLEN)
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
