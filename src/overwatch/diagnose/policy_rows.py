"""Rows of the policy beyond their limits for long enough, one problem a row.

A status is of one update; a finding needs the row's hold and a warm-up, unless the breach is gross, and
stands until none of the updates that the hold looks at is bad. A limit warns of what may go wrong:
where returns are known and as high as they ever were it has not, so what is critical by its limit is a
warning there. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from overwatch.catalog import BY_NAME, KL, Metric, Scope
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_CLIPPED,
    GRAD_NORM,
    VALUE_LOSS,
)
from overwatch.catalog.runbooks import row_code
from overwatch.diagnose.converged import (
    earns_its_best,
    earns_more,
    has_converged,
    has_risen,
    is_warm,
    returns_vary,
    targets_vary,
)
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.gross import critical_together, is_gross
from overwatch.diagnose.problem import UPDATES, Problem
from overwatch.state.arrays import median
from overwatch.state.policy import Series, Status
from overwatch.state.run import RunState

SLOW_WARM_UP: Final = 50
"""Updates after which the critic's rows are judged in any case."""
OF_BEFORE: Final = (GRAD_NORM, VALUE_LOSS)
"""Rows that are judged by what they were, and grow with what the policy earns."""
JUMP: Final = 3
"""Newest updates: their median is the level after a jump."""
BEFORE: Final = 10
"""Updates before those: their median is the level before it."""
MOSTLY: Final = 0.85
"""Share of the updates from which on gradients are clipped, where only the trainer knows at what norm."""
CRITIC: Final = (EXPLAINED_VARIANCE, VALUE_LOSS)
"""Rows that say nothing of a critic that has learned nothing yet."""
GOOD_CRITIC: Final = 0.5
"""A critic that explains so much of the variance is well, however large its loss."""


def row_problems(state: RunState, fleet: Fleet, standing: Mapping[str, Problem]) -> Iterator[Problem]:
    """Rows that are beyond their limits, in the order in which they were first told."""
    warm = is_warm(state)
    together = frozenset[str]() if warm else critical_together(state)
    harmless = earns_its_best(state, fleet) or earns_more(state, fleet)
    for name, series in state.policy.items():
        row = BY_NAME.get(name)
        if row is None or row.scope is not Scope.POLICY:
            continue
        stands = f"{row_code(row)}:policy:{row.short}" in standing
        gross = name in together or is_gross(row, series, state.limits(row), warm=warm)
        beyond = gross or ((warm or stands) and is_beyond(row, series, stands=stands))
        if beyond and is_judged(state, fleet, row, series):
            # Little entropy is judged by returns already: what is left of it is no success.
            forgiven = harmless and row is not ENTROPY and (not gross or has_risen(state))
            small = _moves_little(state, row) or (row is GRAD_NORM and is_clipped(state))
            yield _problem(state, row, series, harmless=forgiven or small, gross=gross)


def is_beyond(row: Metric, series: Series, *, stands: bool = False) -> bool:
    """Whether a row was beyond its limits in as many of its newest updates as its hold asks for.

    One that `stands` already needs only one of them to go on.
    """
    if series.non_finite is not None or series.value is None or series.judgement is None:
        return False
    needed, window = row.hold
    return _bad(series, window) >= (1 if stands else needed)


def _bad(series: Series, window: int) -> int:
    return sum(status > Status.OK for status in series.statuses.items[-window:])


def _problem(state: RunState, row: Metric, series: Series, *, harmless: bool, gross: bool) -> Problem:
    recent = series.statuses.items[-row.hold[1] :]
    bad = _bad(series, row.hold[1])
    critical = gross or sum(status == Status.CRITICAL for status in recent) >= row.hold[0]
    return Problem(
        code=row_code(row),
        severity="critical" if critical and not harmless else "warning",
        scope="policy",
        subject=row.short,
        at=series.at,
        message=f"{row.label} beyond its limit in {bad} of the last {len(recent)} updates",
        hint=row.fix,
        factors=_clipped(state) if row is GRAD_NORM else (),
        patience=UPDATES,
    )


def is_judged(state: RunState, fleet: Fleet, row: Metric, series: Series) -> bool:
    """Whether a row that is beyond its limit means anything yet, or still."""
    if row is ENTROPY:
        return not has_converged(state, fleet)
    clipped = row is GRAD_NORM and is_clipped(state)
    # What a policy that learns was like before is no measure of it now, unless it jumped.
    if row in OF_BEFORE and earns_more(state, fleet) and (clipped or not _jumped(series)):
        return False
    if row is GRAD_NORM:
        return not (clipped and earns_its_best(state, fleet))
    if row not in CRITIC:
        return True
    if series.updates < SLOW_WARM_UP and not _critic_has_learned(state):
        return False
    # A critic cannot explain what does not vary.
    if not targets_vary(state):
        return False
    return returns_vary(state, fleet) if row is EXPLAINED_VARIANCE else not _explains_well(state)


def _jumped(series: Series) -> bool:
    """Whether a row is as many times what it was just before as its limit is of its own median."""
    values, judged = series.window.items, series.judgement
    newest, before = median(values[-JUMP:]), median(values[-BEFORE - JUMP : -JUMP])
    if judged is None or judged.limit is None or newest is None or before is None:
        return True
    return newest > judged.limit.value * max(before, judged.limit.least)


def is_harmless_drift(state: RunState, fleet: Fleet, row: Metric) -> bool:
    """Whether a row may creep as it likes: gradients that are clipped, or what returns do not suffer from."""
    if row is GRAD_NORM and is_clipped(state):
        return True
    return row in OF_BEFORE and earns_its_best(state, fleet)


def _critic_has_learned(state: RunState) -> bool:
    least, told = EXPLAINED_VARIANCE.warm_above, state.policy.get(EXPLAINED_VARIANCE.name)
    return least is None or (told is not None and told.highest is not None and told.highest > least)


def _explains_well(state: RunState) -> bool:
    told = state.policy.get(EXPLAINED_VARIANCE.name)
    newest = [] if told is None else [value for value in told.history.items[-5:] if value is not None]
    explained = median(newest)
    return explained is not None and explained >= GOOD_CRITIC


def _moves_little(state: RunState, row: Metric) -> bool:
    """Whether many samples are clipped and yet KL is as it should be: how many is not how far."""
    kl = state.policy.get(KL.name)
    return row is CLIP_FRACTION and kl is not None and kl.judgement is not None and not is_beyond(KL, kl)


def is_clipped(state: RunState) -> bool:
    """Whether a large gradient makes no large step: the run clips it."""
    share = state.policy.get(GRAD_CLIPPED.name)
    mostly = share is not None and share.value is not None and share.value >= MOSTLY
    return mostly or state.declared("max_grad_norm") is not None


def _clipped(state: RunState) -> tuple[str, ...]:
    share = state.policy.get(GRAD_CLIPPED.name)
    if share is None or share.value is None:
        return ()
    return (f"clipped in {share.value:.0%} of the newest updates",)
