"""What the optimiser works with, a policy that does not move, and a critic that is lost.

Gradients that vanish, are 0 or spike, and a learning rate that reached 0. Spikes are counted one by one as
updates come, so a little is remembered, in the assessment; the rest looks at the newest updates. Limits that
are multiples of a run's own median know no run that was dead at birth: frozen policies and lost critics are
found by exact zeros and by sizes that nothing healthy has, from the first updates on. A policy that earns its
best, and rose to it, is done and not dead. Pure.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from overwatch.catalog import KL, Metric
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    LEARNING_RATE,
    RETURN,
    VALUE_LOSS,
)
from overwatch.diagnose.beginning import worse_than_untrained
from overwatch.diagnose.problem import Problem, of_policy
from overwatch.state.arrays import NORMAL, median
from overwatch.state.policy import Series
from overwatch.state.run import RunState

FROZEN: Final = "policy-frozen"
DIVERGED: Final = "critic-diverged"
UPDATES_NEEDED: Final = 5
"""Newest updates, all of which must agree."""
NO_SIZE: Final = 1e-12
"""What a sum of floats that cancel may leave of 0."""
CERTAIN: Final = 1e-3
"""Share of its maximum below which entropy moves no more."""
SAME: Final = 1e-9
WORSE: Final = -1.0
"""Explained variance of a critic that errs by twice what a constant would."""
NOTHING: Final = 0.1
"""Explained variance up to which a critic knows nothing."""
GOOD: Final = 0.5
LOST: Final = 1e4
"""Times the square of the largest return that a lost critic's loss is: it errs by a hundred returns."""
HUGE: Final = 1e8
"""Loss that no scale of rewards in use explains, where nothing else gives the scale."""


def frozen(state: RunState, *, fell: bool, succeeded: bool) -> Problem | None:
    """A policy that no update moves, with a sign that this is no success.

    Zeros alone are no sign: a trainer may send 0 for what it does not measure, or measure before its step.
    """
    still = _still_rows(state)
    if not still or succeeded or _entropy_moves(state):
        return None
    explained = _newest(state, EXPLAINED_VARIANCE)
    lost = _lost_critic(state)
    signs = [] if lost is None else [lost]
    if explained and max(explained) < WORSE and lost is None:
        signs.append(f"explained variance {explained[-1]:{EXPLAINED_VARIANCE.fmt}}")
    # A differential entropy stays where the spread of actions is fixed.
    is_share = state.limits(ENTROPY).warning is not None
    entropy = _newest(state, ENTROPY) if is_share else []
    if entropy and (signs or not explained or max(explained) < GOOD):
        signs.append(f"entropy stays at {entropy[-1] + 0.0:.3g}")
    if fell and moved(state):
        signs.append("returns fell")
    if not signs:
        return None
    zero = " and ".join(row.label for row in still)
    return _critical(
        state,
        FROZEN,
        still[0],
        message=f"policy does not move: {zero} exactly 0 in {UPDATES_NEEDED} updates; {'; '.join(signs)}",
        hint="stop: it learns nothing any more; lower the learning rate and start again from before",
    )


def critic_diverged(state: RunState, *, succeeded: bool) -> Problem | None:
    """A critic whose error is far beyond all that was ever earned; a warning while returns are unharmed."""
    lost = _lost_critic(state)
    if lost is None:
        return None
    found = _critical(
        state,
        DIVERGED,
        VALUE_LOSS,
        message=f"the critic has diverged: {lost}",
        hint="stop; lower the learning rate, normalise rewards, clip gradients, and start again",
    )
    return msgspec.structs.replace(found, severity="warning") if succeeded else found


def moved(state: RunState) -> bool:
    """Whether any update ever moved the policy: what is 0 in all of them may not be measured."""
    rows = (state.policy.get(row.name) for row in (KL, CLIP_FRACTION))
    return any(series is not None and (series.highest or 0.0) > NO_SIZE for series in rows)


def _still_rows(state: RunState) -> list[Metric]:
    """Rows of how far updates move the policy, where all that came are 0."""
    rows = [row for row in (KL, CLIP_FRACTION) if row.name in state.policy]
    still = [row for row in rows if (newest := _newest(state, row)) and _size(newest) <= NO_SIZE]
    return still if still == rows else []


def _entropy_moves(state: RunState) -> bool:
    if ENTROPY.name not in state.policy:
        return False
    newest = _newest(state, ENTROPY)
    return not newest or not (_size(newest) <= CERTAIN or max(newest) - min(newest) <= SAME)


def _lost_critic(state: RunState) -> str | None:
    """What shows that the critic is lost; `None` where nothing does."""
    losses, explained = _newest(state, VALUE_LOSS), _newest(state, EXPLAINED_VARIANCE)
    loss = median(losses)
    if loss is None or (explained and max(explained) > NOTHING):
        return None
    worse = worse_than_untrained(state)
    if worse is not None:
        return worse
    sent = state.policy.get(RETURN.name)
    ends = () if sent is None or sent.highest is None or sent.lowest is None else (sent.highest, sent.lowest)
    earned = max((abs(end) for end in ends), default=None)
    # Telemetry may hold any number: a square beyond the largest is infinite, and nothing is above it.
    scale = HUGE if earned is None or not explained else 1.0
    least = max(scale, LOST * max(1.0, earned * earned if earned is not None else 1.0))
    if loss <= least:
        return None
    beside = "" if earned is None else f", the largest return {earned:g}"
    return f"value loss {loss:.1e}{beside}"


def _newest(state: RunState, row: Metric) -> list[float]:
    """The newest values, where enough came and all are finite; else none."""
    series = state.policy.get(row.name)
    newest = [] if series is None else series.history.items[-UPDATES_NEEDED:]
    known = [value for value in newest if value is not None]
    return known if len(known) == UPDATES_NEEDED else []


def _size(values: list[float]) -> float:
    return max(map(abs, values))


def _critical(state: RunState, code: str, row: Metric, *, message: str, hint: str) -> Problem:
    return of_policy(
        code=code,
        severity="critical",
        at=state.policy[row.name].at,
        message=message,
        hint=hint,
    )


ZERO: Final = "zero-gradients"
SPIKES: Final = "gradient-spikes"
RATE: Final = "learning-rate-zero"
IN_A_ROW: Final = 5
"""Updates with exactly 0."""
EARLY: Final = 20
"""Updates at each end of a run that are compared: the median of the first and that of the newest."""
VANISHED: Final = 0.01
"""Share of the early median up to which gradients have vanished."""
SCATTERS: Final = 8.0
"""Robust standard deviations above the median from which a gradient spikes."""
TIMES: Final = 3.0
"""And times the median."""
LEAST_SCATTER: Final = 0.05
"""Of the median."""
WITHIN: Final = 100
"""Updates within which spikes are counted."""
SEVERAL: Final = 3
LATELY: Final = 5
"""Updates for which a spike is shown."""
NOTHING_LEFT: Final = 1e-9
"""Share of the highest learning rate that is none."""
AT_BIRTH: Final = 20
"""Updates that may pass before a learning rate is above 0: a warm-up begins at 0."""


class Gradients(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of gradients."""

    updates: int = 0
    """Values taken so far."""
    early: float | None = None
    """Median of the first ones; `None` while there are too few."""
    spikes: tuple[int, ...] = ()
    """Numbers of the newest values that spiked, oldest first."""
    high: bool = False
    """Whether the newest one did: of a level that rises only the first value counts."""


def gradients(state: RunState, before: Gradients) -> Gradients:
    """The memory after this tick."""
    series = state.policy.get(GRAD_NORM.name)
    if series is None or series.updates == before.updates:
        return before
    if series.updates < before.updates:
        before = Gradients()
    values = series.window.items
    came = series.history.items[-min(series.updates - before.updates, len(series.history.items)) :]
    fresh = sum(value is not None for value in came)
    spikes, high = list(before.spikes), before.high
    limit = state.limits(GRAD_NORM).warning
    # Below the least that its limit may be no gradient is large, however it jumped.
    least = 0.0 if limit is None else limit.threshold(0.0) or 0.0
    for back in range(fresh, 0, -1):
        spiked = values[-back] > least and _stands_out(values[-back], values[:-back])
        if spiked and not high:
            spikes.append(series.updates - back + 1)
        high = spiked
    early = before.early
    if early is None and len(values) >= EARLY:
        early = median(values[:EARLY])
    kept = tuple(number for number in spikes if series.updates - number < WITHIN)
    return Gradients(updates=series.updates, early=early, spikes=kept, high=high)


def _stands_out(value: float, before: list[float]) -> bool:
    usual = median(before) if len(before) >= EARLY else None
    if usual is None or usual <= 0:
        return False
    scatter = max(NORMAL * (median([abs(one - usual) for one in before]) or 0.0), LEAST_SCATTER * usual)
    return value > TIMES * usual and value - usual > SCATTERS * scatter


def optimiser_problems(
    state: RunState, known: Gradients, *, succeeded: bool, solved: bool
) -> Iterator[Problem]:
    """What is wrong with gradients and the learning rate.

    They shrink as a policy `succeeded`, and where it `solved` its task and all rewards are equal they are 0.
    What was 0 in all updates of a policy that moves is not measured.
    """
    rests = not (succeeded or moved(state))
    rate = _rate_zero(state, at_birth=rests)
    if rate is not None:
        yield rate
    series = state.policy.get(GRAD_NORM.name)
    if series is None:
        return
    if not series.highest and not rests:
        return
    zero = _zero_gradients(series, known, succeeded=succeeded, solved=solved)
    if zero is not None:
        yield zero
    if known.spikes and series.updates - known.spikes[-1] < LATELY:
        yield _spikes(state, series, known)


def _zero_gradients(series: Series, known: Gradients, *, succeeded: bool, solved: bool) -> Problem | None:
    newest = series.history.items[-IN_A_ROW:]
    zero = len(newest) == IN_A_ROW and all(value == 0.0 for value in newest)
    vanished = None if succeeded else _vanished(series, known)
    if not zero and vanished is None:
        return None
    message = f"gradients exactly 0 in {IN_A_ROW} updates" if zero else vanished or ""
    return of_policy(
        code=ZERO,
        severity="critical" if zero and not solved else "warning",
        subject=GRAD_NORM.short,
        at=series.at,
        message=message,
        hint="look for a detached loss, frozen parameters, saturated units, advantages that are all equal",
    )


def _vanished(series: Series, known: Gradients) -> str | None:
    """What shows that gradients are a trace of what they were; `None` where they are not."""
    lately = series.window.items[-EARLY:]
    now = median(lately)
    if known.early is None or now is None or series.updates < 2 * EARLY or now > VANISHED * known.early:
        return None
    return f"gradients vanished: median {now:.1e} of {EARLY} updates, {known.early:.1e} at first"


def _spikes(state: RunState, series: Series, known: Gradients) -> Problem:
    several = len(known.spikes) >= SEVERAL
    clipped = state.declared("max_grad_norm")
    times = f"{len(known.spikes)} times within {WITHIN} updates" if several else "once"
    shortened = "" if clipped is None else f"; clipped at {clipped:g}"
    return of_policy(
        code=SPIKES,
        # What was clipped made no larger step than any other update.
        severity="warning" if several and clipped is None else "info",
        subject=GRAD_NORM.short,
        at=series.at,
        message=f"gradients spiked {times}, beyond {TIMES:g} times their median{shortened}",
        hint="look at the batches of those updates for outliers in rewards and observations; clip gradients",
    )


def _rate_zero(state: RunState, *, at_birth: bool) -> Problem | None:
    """A learning rate of 0 while updates go on: a schedule that ended too early, or never began."""
    series = state.policy.get(LEARNING_RATE.name)
    newest = [] if series is None else series.history.items[-IN_A_ROW:]
    if series is None or series.highest is None or len(newest) < IN_A_ROW or _is_at_its_end(state):
        return None
    if series.highest <= 0 and (not at_birth or series.updates < AT_BIRTH):
        return None
    if not all(value is not None and abs(value) <= NOTHING_LEFT * series.highest for value in newest):
        return None
    was = "never above it" if series.highest <= 0 else f"{series.highest:.1e} at its highest"
    return of_policy(
        code=RATE,
        subject=LEARNING_RATE.short,
        at=series.at,
        message=f"learning rate 0 in {IN_A_ROW} updates, {was}, and the run goes on",
        hint="the schedule ends before the run does: give it the run's number of updates, or end the run",
    )


def _is_at_its_end(state: RunState) -> bool:
    """Whether the planned updates are done, but for the few that are looked at."""
    planned = None if state.started is None else state.started.updates
    return planned is not None and state.update is not None and state.update >= planned
