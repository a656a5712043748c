"""A policy that does not move, and a critic that is lost: what can be seen from the first updates on.

Limits that are multiples of a run's own median know no run that was dead at birth; these rules are about
exact zeros and about sizes that nothing healthy has. A policy that earns its best, and rose to it, is done
and not dead. Pure.
"""

from typing import Final

import msgspec

from overwatch.catalog import KL, Metric
from overwatch.catalog.policy import CLIP_FRACTION, ENTROPY, EXPLAINED_VARIANCE, RETURN, VALUE_LOSS
from overwatch.diagnose.problem import UPDATES, Problem
from overwatch.state.arrays import median
from overwatch.state.run import RunState

FROZEN: Final = "policy-frozen"
DIVERGED: Final = "critic-diverged"
UPDATES_NEEDED: Final = 5
"""Newest updates, all of which must agree."""
ZERO: Final = 1e-12
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
    return _problem(
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
    found = _problem(
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
    return any(series is not None and (series.highest or 0.0) > ZERO for series in rows)


def _still_rows(state: RunState) -> list[Metric]:
    """Rows of how far updates move the policy, where all that came are 0."""
    rows = [row for row in (KL, CLIP_FRACTION) if row.name in state.policy]
    still = [row for row in rows if (newest := _newest(state, row)) and _size(newest) <= ZERO]
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


def _problem(state: RunState, code: str, row: Metric, *, message: str, hint: str) -> Problem:
    return Problem(
        code=code,
        severity="critical",
        scope="policy",
        subject=None,
        at=state.policy[row.name].at,
        message=message,
        hint=hint,
        patience=UPDATES,
    )
