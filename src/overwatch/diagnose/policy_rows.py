"""Rows of the policy beyond their limits for long enough, one problem a row, and when a row means anything.

A status is of one update; a finding needs the row's hold and a warm-up, unless the breach is gross, and
stands until none of the updates that the hold looks at is bad. A limit warns of what may go wrong: the return
shows whether it did. Where it rises or is at its best a row beyond its limit is info, and a warning where the
breach is gross. Where it fell, stands still or is not sent, a row is as bad as its limit. Little entropy at
the best return is a task that is solved.

A breach is gross by its own size (more than a nat of KL), whatever the run is like; after the warm-up it is
large from several times its critical limit on. Two of the newest three such updates are enough. Several rows
that are critical in the same updates count together, each for less. Pure.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from overwatch.catalog import BY_NAME, KL, Limit, Limits, Metric, Scope, Side
from overwatch.catalog.moves import KL_K1
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_CLIPPED,
    GRAD_NORM,
    RETURN,
    UPDATE_TIME,
    VALUE_LOSS,
)
from overwatch.catalog.runbooks import row_code
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.levels import Outlook, Standing
from overwatch.diagnose.problem import Problem, of_policy
from overwatch.state.arrays import median
from overwatch.state.policy import LEVEL, MEDIAN_NEEDS, Series, Status, known_values
from overwatch.state.run import RunState

WARM_UP_UPDATES: Final = 20
"""No row of the policy has a finding before, but for gross ones; unless fewer updates are much of the run."""
LEAST_UPDATES: Final = 5
"""Updates that a warm-up has in any case."""
WARM_UP_SHARE: Final = 0.25
"""Of the planned updates."""
WARM_UP_STEPS: Final = 100_000
"""Env steps after which a run with few large updates is judged."""
WARM_UP_NS: Final = 600_000_000_000
"""Time after which a run with slow updates is judged."""
FAST: Final = 0.15
"""Entropy, as a share of its maximum, lost over ten updates."""
NEWEST: Final = 3
"""Newest updates whose median is where entropy is now."""
NEGLIGIBLE: Final = 0.01
"""A critic's squared error, as a share of the largest it ever made, below which its targets hardly vary.

Untrained it errs by the targets' mean square; without any use it errs by their variance. So at this share
they vary by less than a tenth of their size.
"""
VARIES: Final = 0.03
"""Returns vary from this scatter on, as a share of their mean; below, a critic has nothing to explain."""


def is_warm(state: RunState) -> bool:
    """Whether the warm-up is over, by updates, or by what fewer of them are worth."""
    if state.updates < LEAST_UPDATES or state.updates >= WARM_UP_UPDATES:
        return state.updates >= WARM_UP_UPDATES
    planned = None if state.started is None else state.started.updates
    return (
        (planned is not None and state.updates >= WARM_UP_SHARE * planned)
        or state.steps >= WARM_UP_STEPS
        or state.last_update_at - state.first_at >= WARM_UP_NS
    )


def has_converged(state: RunState, stands: Standing) -> bool:
    """Whether entropy is low because the task is solved: it falls no more, and the return is at its best."""
    entropy = state.policy.get(ENTROPY.name)
    if entropy is None or entropy.judgement is None or entropy.value is None or not is_warm(state):
        return False
    # One update above the limit is no recovery.
    low = any(status > Status.OK for status in entropy.statuses.items)
    return low and _is_solved(state, entropy, stands)


def _is_solved(state: RunState, entropy: Series, stands: Standing) -> bool:
    """Whether steps are small, and the return rose and is at its best.

    Of a run that was continued both were so when it began.
    """
    if trend(entropy) == "falls" or any(
        (series := state.policy.get(row.name)) and is_beyond(row, series) for row in (KL, CLIP_FRACTION)
    ):
        return False
    if stands.outlook is Outlook.GOOD:
        return stands.gained > 0
    limit, first = state.limits(ENTROPY).warning, entropy.first
    began_low = limit is not None and first is not None and limit.side.crossed(first, limit.value)
    dead = entropy.value is not None and entropy.value < GROSS[ENTROPY.name].value
    return stands.outlook is Outlook.FLAT and stands.is_near and began_low and not dead


def trend(entropy: Series) -> str | None:
    """Return "falls" or "rises" where entropy moves fast; by medians, so that one update shows nothing."""
    known = known_values(entropy)
    before, now = median(known[:-NEWEST][:LEVEL]), median(known[-NEWEST:])
    if before is None or now is None or abs(now - before) < FAST:
        return None
    return "falls" if now < before else "rises"


def returns_vary(state: RunState, fleet: Fleet) -> bool:
    """Whether episodes earn differently; `True` where that is not reported."""
    if fleet.returns is not None:
        return fleet.returns.fleet.noise > VARIES * abs(fleet.returns.fleet.recent)
    reported = state.policy.get(RETURN.name)
    known = np.array([] if reported is None else known_values(reported))
    if known.size < 2:
        known = state.envs.returns[: fleet.n]
        known = known[np.isfinite(known)]
    if known.size < 2:
        return True
    # A dip now and then, of what is at its ceiling, is no variance that a critic could explain.
    known = np.sort(known)[known.size // 5 : known.size - known.size // 5]
    # Telemetry may hold any number; a sum that overflows is infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        return float(known[-1] - known[0]) > VARIES * abs(float(known.mean()))


def targets_vary(state: RunState) -> bool:
    """Whether what the critic should predict varies; `True` where its loss is not reported."""
    loss = state.policy.get(VALUE_LOSS.name)
    newest = None if loss is None else median(known_values(loss)[-LEVEL:])
    if loss is None or newest is None or loss.highest is None:
        return True
    return newest > NEGLIGIBLE * loss.highest


GROSS_OF: Final = 3
NEEDED: Final = 2
"""Of the newest updates."""
GROSS_TIMES: Final = 4.0
"""Of the critical limit, or one part in so many where less is worse."""
TOGETHER: Final = 2
"""Rows that are critical in each of the newest updates."""
ROUNDING: Final = 1e-6
GROSS: Final[Mapping[str, Limit]] = MappingProxyType(
    {
        KL.name: Limit(side=Side.ABOVE, value=1.0),
        CLIP_FRACTION.name: Limit(side=Side.ABOVE, value=0.8),
        ENTROPY.name: Limit(side=Side.BELOW, value=0.01),
    }
)
"""By name of a row; only where the preset judges it."""


def is_gross(row: Metric, series: Series, limits: Limits, *, warm: bool) -> bool:
    """Whether two of the newest three updates were far beyond any doubt."""
    if series.value is None or series.judgement is None or row.mean_of > 1:
        return False
    bounds = _bounds(row, series, limits, warm=warm)
    newest = [value for value in series.history.items[-GROSS_OF:] if value is not None]
    if row is ENTROPY and min(newest) < -ROUNDING:
        # No share is below 0: it is in another unit, and its limits mean nothing.
        return False
    return sum(any(bound.side.crossed(value, bound.value) for bound in bounds) for value in newest) >= NEEDED


def _bounds(row: Metric, series: Series, limits: Limits, *, warm: bool) -> list[Limit]:
    """Numbers in the row's unit beyond which no hold is waited for."""
    judged = any(side.warning or side.critical for side in limits.sides)
    found = [GROSS[row.name]] if judged and row.name in GROSS else []
    if not warm:
        return found
    usual = median(series.window.items) if len(series.window.items) >= MEDIAN_NEEDS else None
    for critical in (side.critical for side in limits.sides):
        value = None if critical is None else critical.threshold(usual)
        if critical is not None and value is not None and value > 0:
            more = critical.side in (Side.ABOVE, Side.AT_OR_ABOVE)
            found.append(
                Limit(side=critical.side, value=value * GROSS_TIMES if more else value / GROSS_TIMES)
            )
    return found


def critical_together(state: RunState) -> frozenset[str]:
    """Rows that were critical in each of the newest updates, where they are several; by full name.

    A multiple of a median that is young means nothing alone.
    """
    found = {
        name
        for name, series in state.policy.items()
        if name in BY_NAME
        and len(series.statuses.items) >= GROSS_OF
        and all(status == Status.CRITICAL for status in series.statuses.items[-GROSS_OF:])
    }
    absolute = any(
        not any(side.critical and side.critical.relative for side in state.limits(BY_NAME[name]).sides)
        for name in found
    )
    return frozenset(found) if len(found) >= TOGETHER and absolute else frozenset()


SLOW_WARM_UP: Final = 50
"""Updates after which the critic's rows are judged in any case."""
MOSTLY: Final = 0.85
"""Share of the updates from which on gradients are clipped, where only the trainer knows at what norm."""
CRITIC: Final = (EXPLAINED_VARIANCE, VALUE_LOSS)
"""Rows that mean nothing for a critic that has learned nothing yet."""
EXCUSED: Final = (
    KL, CLIP_FRACTION, ENTROPY, GRAD_NORM, *CRITIC, UPDATE_TIME, BY_NAME["overwatch.policy.groups_alike"],
    BY_NAME["overwatch.policy.answers_cut"],
)  # fmt: skip
"""Rows that may be as they like while the return is at its best; others are wrong in themselves."""
GOOD_CRITIC: Final = 0.5
"""A critic that explains so much of the variance is well, however large its loss."""


def row_problems(
    state: RunState, fleet: Fleet, stands: Standing, open_: Mapping[str, Problem]
) -> Iterator[Problem]:
    """Rows that are beyond their limits, in the order in which they were first reported."""
    warm = is_warm(state)
    together = frozenset[str]() if warm else critical_together(state)
    for name, series in state.policy.items():
        row = BY_NAME.get(name)
        if row is None or row.scope is not Scope.POLICY:
            continue
        is_open = f"{row_code(row)}:policy:{row.short}" in open_
        gross = name in together or is_gross(row, series, state.limits(row), warm=warm)
        beyond = gross or ((warm or is_open) and is_beyond(row, series, is_open=is_open))
        if beyond and is_judged(state, fleet, stands, row, series):
            yield _problem(state, row, series, stands, gross=gross)


def is_beyond(row: Metric, series: Series, *, is_open: bool = False) -> bool:
    """Whether a row was beyond its limits in as many of its newest updates as its hold asks for.

    One that `is_open` already needs only one of them to go on.
    """
    if series.non_finite is not None or series.value is None or series.judgement is None:
        return False
    needed, window = row.hold
    return _bad(series, window) >= (1 if is_open else needed)


def _bad(series: Series, window: int) -> int:
    return sum(status > Status.OK for status in series.statuses.items[-window:])


def _problem(state: RunState, row: Metric, series: Series, stands: Standing, *, gross: bool) -> Problem:
    recent = series.statuses.items[-row.hold[1] :]
    bad = _bad(series, row.hold[1])
    critical = gross or sum(status == Status.CRITICAL for status in recent) >= row.hold[0]
    severity = "critical" if critical else "warning"
    good = stands.outlook is Outlook.GOOD
    if good and not gross and row in EXCUSED:
        severity = "info"
    elif good or (critical and _makes_no_large_step(state, row)):
        severity = "warning"
    return of_policy(
        code=row_code(row),
        severity=severity,
        subject=row.short,
        at=series.at,
        message=f"{row.label} beyond its limit in {bad} of the last {len(recent)} updates",
        hint=row.fix,
        factors=_clipped(state) if row is GRAD_NORM else (),
    )


def is_judged(state: RunState, fleet: Fleet, stands: Standing, row: Metric, series: Series) -> bool:
    """Whether a row that is beyond its limit means anything yet, or still."""
    if row is ENTROPY:
        return not _is_solved(state, series, stands)
    if row not in CRITIC:
        # One move is not judged twice.
        return row is not KL_K1 or KL.name not in state.policy
    if series.updates < SLOW_WARM_UP and not _critic_has_learned(state):
        return False
    # A critic cannot explain what does not vary, and nothing is left to gain by it at the ceiling.
    varies = returns_vary(state, fleet)
    if not targets_vary(state) or (stands.outlook is Outlook.GOOD and not varies):
        return False
    if row is EXPLAINED_VARIANCE:
        return varies
    newest = median(known_values(series)[-NEWEST:])
    # A critic that errs less than before it learned anything has not failed, whatever its usual is.
    return not _explains_well(state) and (newest or 0.0) > (series.first or 0.0)


def _critic_has_learned(state: RunState) -> bool:
    least, reported = EXPLAINED_VARIANCE.warm_above, state.policy.get(EXPLAINED_VARIANCE.name)
    return least is None or (
        reported is not None and reported.highest is not None and reported.highest > least
    )


def _explains_well(state: RunState) -> bool:
    reported = state.policy.get(EXPLAINED_VARIANCE.name)
    explained = None if reported is None else median(known_values(reported)[-LEVEL:])
    return explained is not None and explained >= GOOD_CRITIC


def _makes_no_large_step(state: RunState, row: Metric) -> bool:
    """Whether many samples are clipped and yet KL is as it should be, or large gradients are clipped."""
    kl = state.policy.get(KL.name)
    if row is CLIP_FRACTION:
        return kl is not None and kl.judgement is not None and not is_beyond(KL, kl)
    return row is GRAD_NORM and is_clipped(state)


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
