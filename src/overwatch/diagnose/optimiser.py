"""What the optimiser works with: gradients that vanish, are 0 or spike, and a learning rate that reached 0.

Spikes are counted one by one as updates come, so a little is remembered; the rest looks at the newest
updates. Pure; the memory is kept in the assessment.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from overwatch.catalog.policy import GRAD_NORM, LEARNING_RATE
from overwatch.diagnose.frozen import moved
from overwatch.diagnose.problem import UPDATES, Problem
from overwatch.state.arrays import NORMAL, median
from overwatch.state.policy import Series
from overwatch.state.run import RunState

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
    return Problem(
        code=ZERO,
        severity="critical" if zero and not solved else "warning",
        scope="policy",
        subject=GRAD_NORM.short,
        at=series.at,
        message=message,
        hint="look for a detached loss, frozen parameters, saturated units, advantages that are all equal",
        patience=UPDATES,
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
    return Problem(
        code=SPIKES,
        # What was clipped made no larger step than any other update.
        severity="warning" if several and clipped is None else "info",
        scope="policy",
        subject=GRAD_NORM.short,
        at=series.at,
        message=f"gradients spiked {times}, beyond {TIMES:g} times their median{shortened}",
        hint="look at the batches of those updates for outliers in rewards and observations; clip gradients",
        patience=UPDATES,
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
    return Problem(
        code=RATE,
        severity="warning",
        scope="policy",
        subject=LEARNING_RATE.short,
        at=series.at,
        message=f"learning rate 0 in {IN_A_ROW} updates, {was}, and the run goes on",
        hint="the schedule ends before the run does: give it the run's number of updates, or end the run",
        patience=UPDATES,
    )


def _is_at_its_end(state: RunState) -> bool:
    """Whether the planned updates are done, but for the few that are looked at."""
    planned = None if state.started is None else state.started.updates
    return planned is not None and state.update is not None and state.update >= planned
