"""A run beside its own beginning: what an update made worse than it was before anything was learned.

Runs of other trainers often send little that has limits, and no limit of its own past knows a run that went
wrong at once. Its first update still shows what an untrained policy, critic or model is like: a critic that
errs by more than one that knows nothing, a loss above that of random weights, actions that spread further
and further, preferred answers that become unlikely. What returns grew by is allowed for. A run whose returns
come late, or begin at 0, is not judged so, nor one that learns from old experience, whose first errors are
small because its critic predicts nothing yet. Pure.
"""

from typing import Final

from overwatch.catalog import Metric
from overwatch.catalog.gradients import ACTION_STD, ENTROPY_NATS, TOTAL_LOSS
from overwatch.catalog.language import CHOSEN
from overwatch.catalog.policy import KL, POLICY_LOSS, RETURN, VALUE_LOSS
from overwatch.catalog.presets import is_off_policy, is_supervised
from overwatch.diagnose.problem import Problem, of_policy
from overwatch.state.arrays import median
from overwatch.state.policy import Series, known_values
from overwatch.state.run import RunState

EXPLODES: Final = "entropy-explosion"
LOSS: Final = "loss-diverged"
DISPLACEMENT: Final = "likelihood-displacement"
NEEDED: Final = 5
"""Newest updates that are looked at."""
UNTRAINED: Final = 5.0
"""Times the first error of a critic, from which it is worse than none; healthy ones stay below 0.7."""
RETURNS: Final = 3
"""A return in one of so many updates is enough to know what returns grew by."""
ABOVE: Final = 2.0
"""Times the first loss of a model from which it is worse than random weights."""
DISPLACED: Final = 3.0
"""Times the first log probability of preferred answers."""
WIDER: Final = 2.0
"""Times the first spread of actions."""
NATS: Final = 1.0
"""Entropy gained since the first update."""


def worse_than_untrained(state: RunState) -> str | None:
    """What shows that a critic errs by more than before it learned; `None` where nothing does.

    Its error grows with the square of what is earned. One update is luck: the median of those remembered.
    """
    loss, earned = state.policy.get(VALUE_LOSS.name), state.policy.get(RETURN.name)
    if loss is None or earned is None or not loss.first or not earned.first or is_off_policy(state.algo):
        return None
    now = median(known_values(loss))
    if now is None or loss.first < 0 or earned.updates * RETURNS < loss.updates:
        return None
    grown = max(abs(end or 0.0) for end in (earned.highest, earned.lowest)) / abs(earned.first)
    untrained = loss.first * grown * grown
    if now <= UNTRAINED * untrained:
        return None
    return f"value loss {now:.2g}, {untrained:.2g} of one that has learned nothing"


def loss_diverged(state: RunState) -> Problem | None:
    """A loss above that of the untrained model, of a run that sends nothing else to judge learning by."""
    series = state.policy.get(TOTAL_LOSS.name)
    if any(row.name in state.policy for row in (RETURN, VALUE_LOSS, POLICY_LOSS, KL)):
        return None
    if series is None or is_off_policy(state.algo) or series.first is None or series.first <= 0:
        return None
    newest = _newest(series)
    if not newest or min(newest) <= ABOVE * series.first:
        return None
    return of_policy(
        code=LOSS,
        severity="critical" if is_supervised(state.algo) else "warning",
        subject=TOTAL_LOSS.short,
        at=series.at,
        message=(
            f"the loss has diverged: {newest[-1]:.3g}, {series.first:.3g} in the first update; "
            f"worse than before training in {NEEDED} updates"
        ),
        hint="stop: lower the learning rate, warm it up, clip gradients, and start again",
    )


def displaced(state: RunState) -> Problem | None:
    """Preferred answers that became far less likely than before training, however well separated."""
    series = state.policy.get(CHOSEN.name)
    newest = [] if series is None else _newest(series)
    if series is None or series.first is None or series.first >= 0 or not newest:
        return None
    if max(newest) >= DISPLACED * series.first:
        return None
    return of_policy(
        code=DISPLACEMENT,
        subject=CHOSEN.short,
        at=series.at,
        message=(f"preferred answers became unlikely: {newest[-1]:.4g} nats, {series.first:.4g} at first"),
        hint="lower the learning rate, raise beta, or add the loss of the preferred answers",
    )


def entropy_explodes(state: RunState, *, succeeded: bool) -> Problem | None:
    """Actions that spread far more than at first, while returns have not risen."""
    if succeeded:
        return None
    spread = state.policy.get(ACTION_STD.name)
    if spread is not None and spread.first and (newest := _newest(spread)):
        if min(newest) > WIDER * spread.first:
            return _explodes(ACTION_STD, spread, newest[-1])
        return None
    entropy = state.policy.get(ENTROPY_NATS.name)
    newest = [] if entropy is None else _newest(entropy)
    if entropy is None or entropy.first is None or not newest or min(newest) <= entropy.first + NATS:
        return None
    return _explodes(ENTROPY_NATS, entropy, newest[-1])


def _explodes(row: Metric, series: Series, now: float) -> Problem:
    return of_policy(
        code=EXPLODES,
        subject=row.short,
        at=series.at,
        message=f"{row.label} rose to {now:.3g} from {series.first:.3g} at first, and returns did not",
        hint="lower the learning rate or the entropy coefficient; bound the standard deviation of actions",
    )


def _newest(series: Series) -> list[float]:
    """The newest values, where enough came and all are finite; else none."""
    known = [value for value in series.history.items[-NEEDED:] if value is not None]
    return known if len(known) == NEEDED else []
