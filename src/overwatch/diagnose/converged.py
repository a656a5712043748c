"""Whether a policy that hardly explores is sick or solved, and whether returns vary at all. Pure."""

from typing import Final

import numpy as np

from overwatch.catalog.policy import ENTROPY, RETURN, VALUE_LOSS
from overwatch.diagnose.fleet import Fleet
from overwatch.state.arrays import median
from overwatch.state.policy import (
    BAD_LUCK,
    LEVEL,
    NEAR_BEST,
    Series,
    Status,
    at_its_best,
    known_values,
    rises,
    scatter,
)
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
FAST_FALL: Final = 0.15
"""Entropy, as a share of its maximum, lost over ten updates."""
NEWEST: Final = 3
"""Newest updates whose median is where entropy is now."""
NEGLIGIBLE: Final = 0.01
"""A critic's squared error, as a share of the largest it ever made, below which its targets hardly vary.

Untrained it errs by the targets' mean square; without any use it errs by their variance. So at this share
they vary by less than a tenth of their size.
"""
VARIES: Final = 0.05
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


def has_converged(state: RunState, fleet: Fleet) -> bool:
    """Whether entropy is low because the task is solved: it falls no more, and returns are at their best."""
    entropy = state.policy.get(ENTROPY.name)
    if entropy is None or entropy.judgement is None or not (is_warm(state) or has_risen(state)):
        return False
    # One update above the limit is no recovery.
    low = entropy.value is not None and any(status > Status.OK for status in entropy.statuses.items)
    return low and not falls_fast(entropy) and earns_its_best(state, fleet)


def falls_fast(entropy: Series) -> bool:
    """Whether entropy lost much within the updates remembered; medians, so that one update says nothing."""
    known = known_values(entropy)
    before, now = median(known[:-NEWEST][:LEVEL]), median(known[-NEWEST:])
    return before is not None and now is not None and before - now >= FAST_FALL


def swings_up(entropy: Series) -> bool:
    """Whether entropy gained as much as `falls_fast` looks for: towards a policy that acts at random."""
    known = known_values(entropy)
    before, now = median(known[:-NEWEST][:LEVEL]), median(known[-NEWEST:])
    return before is not None and now is not None and now - before >= FAST_FALL


def has_risen(state: RunState) -> bool:
    """Whether returns are well above the lowest ones, beyond luck; `False` where none are sent."""
    sent = state.policy.get(RETURN.name)
    level = None if sent is None else median(known_values(sent)[-LEVEL:])
    if sent is None or level is None or sent.lowest is None or sent.highest_level is None:
        return False
    gained = level - sent.lowest
    return gained > max(NEAR_BEST * abs(sent.highest_level), BAD_LUCK * scatter(sent.window.items))


def earns_its_best(state: RunState, fleet: Fleet) -> bool:
    """Whether returns are as high as they ever were, but for luck; `False` where nobody told."""
    earned = state.policy.get(RETURN.name)
    if earned is not None and earned.highest_level is not None:
        return at_its_best(earned)
    returns = fleet.returns
    return returns is not None and returns.fleet.recent >= returns.fleet.earlier - returns.fleet.noise


def earns_more(state: RunState, fleet: Fleet) -> bool:
    """Whether returns rise, by more than luck; `False` where none are known."""
    earned = state.policy.get(RETURN.name)
    if earned is not None and earned.highest_level is not None:
        return rises(earned)
    returns = fleet.returns
    return returns is not None and returns.fleet.recent > returns.fleet.earlier + returns.fleet.noise


def returns_vary(state: RunState, fleet: Fleet) -> bool:
    """Whether episodes earn differently; `True` where nobody told what they earn."""
    if fleet.returns is not None:
        return fleet.returns.fleet.noise > VARIES * abs(fleet.returns.fleet.recent)
    told = state.policy.get(RETURN.name)
    known = np.array([] if told is None else known_values(told))
    if known.size < 2:
        known = state.envs.returns[: fleet.n]
        known = known[np.isfinite(known)]
    if known.size < 2:
        return True
    # Telemetry may hold any number; a sum that overflows is infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        return float(known.max() - known.min()) > VARIES * abs(float(known.mean()))


def targets_vary(state: RunState) -> bool:
    """Whether what the critic should predict varies; `True` where nobody told its loss."""
    loss = state.policy.get(VALUE_LOSS.name)
    newest = None if loss is None else median(known_values(loss)[-LEVEL:])
    if loss is None or newest is None or loss.highest is None:
        return True
    return newest > NEGLIGIBLE * loss.highest
