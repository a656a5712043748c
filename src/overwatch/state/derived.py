"""Policy rows that follow from others: what a trainer need not tell, since the fold can work it out.

Rules: what the trainer itself told stays; nothing is made of what was not told or not finite. Adds to
series, and is pure besides.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from overwatch.catalog import KL, Metric
from overwatch.catalog.critic import VALUE_MAX, VALUE_MIN, VALUE_SPREAD
from overwatch.catalog.goodhart import FOOD, GAP, POISON, PROXY, TRUE
from overwatch.catalog.gradients import ENTROPY_CLIP, ENTROPY_NATS
from overwatch.catalog.moves import KL_DRIFT, KL_JOINT, TRUST_REGION
from overwatch.catalog.policy import CLIP_FRACTION, ENTROPY, GRAD_CLIPPED, GRAD_NORM
from overwatch.events import Measured
from overwatch.events.adding import added
from overwatch.state.policy import LEVEL, Series, new_series, observe, share_above
from overwatch.state.ring import median
from overwatch.state.run import RunState

SLOPE_OF: Final = 10
"""Newest values of KL whose slope is told."""
SLOPE_NEEDS: Final = 5
SPREAD_FROM: Final = 50
"""Updates after which the range of values is what later ones are compared with."""


def derive(state: RunState, event: Measured, stamp: int) -> None:
    """Add to the rows that follow from this update."""
    for row, value in _derived(state, event):
        if row.name in event.values:
            continue
        series = state.policy.setdefault(row.name, new_series())
        observe(series, row, state.limits(row), value)
        series.at, series.stamp = event.at, stamp


def _derived(state: RunState, event: Measured) -> Iterator[tuple[Metric, float]]:
    if GRAD_NORM.name in event.values:
        norms, limit = state.policy.get(GRAD_NORM.name), state.declared("max_grad_norm")
        if limit is not None and norms is not None and norms.value is not None:
            yield GRAD_CLIPPED, share_above(norms, limit)
    if ENTROPY_NATS.name in event.values:
        nats, most = state.policy.get(ENTROPY_NATS.name), state.declared("max_entropy")
        if most is not None and nats is not None and nats.value is not None and nats.value >= 0:
            yield ENTROPY, min(nats.value / most, 1.0)
    if KL.name in event.values:
        newest = state.policy[KL.name].window.items[-SLOPE_OF:] if KL.name in state.policy else []
        if len(newest) >= SLOPE_NEEDS:
            yield KL_DRIFT, slope(newest)
    # The joint policy is what clipping and early stops act on.
    moved = next((row for row in (KL_JOINT, KL) if row.name in event.values), None)
    told = None if moved is None else state.policy.get(moved.name)
    # A target that the run declared is where its KL warns.
    target = state.limits(KL).warning
    if told is not None and told.value is not None and target is not None:
        yield TRUST_REGION, told.value / target.value
    yield from _of_goodhart(state, event)
    if (together := _together(state, event)) is not None:
        yield ENTROPY_CLIP, together
    if (spread := _spread(state, event)) is not None:
        yield VALUE_SPREAD, spread


def _of_goodhart(state: RunState, event: Measured) -> Iterator[tuple[Metric, float]]:
    """The gap of the two returns, and the one share of what was eaten that follows from the other."""
    for known, other in ((FOOD, POISON), (POISON, FOOD)):
        share = state.policy.get(known.name) if known.name in event.values else None
        if share is not None and share.value is not None and 0.0 <= share.value <= 1.0:
            yield other, 1.0 - share.value
    proxy, true = state.policy.get(PROXY.name), state.policy.get(TRUE.name)
    if proxy is None or true is None or not event.values.keys() & {PROXY.name, TRUE.name}:
        return
    places = _place(proxy), _place(true)
    if places[0] is not None and places[1] is not None:
        yield GAP, places[0] - places[1]


def _place(series: Series) -> float | None:
    """Where its level is between the lowest and the highest that it had; `None` where it never differed."""
    level = median(series.window.items[-LEVEL:])
    if level is None or series.lowest is None or series.highest is None:
        return None
    # Halves, so that no range of numbers overflows.
    span = series.highest / 2 - series.lowest / 2
    return (level / 2 - series.lowest / 2) / span if span > 0 else None


def _newest(state: RunState, event: Measured, *rows: Metric) -> list[Series] | None:
    """Series of rows that this event brought a finite value of each; `None` when it did not."""
    found = [state.policy[row.name] for row in rows if row.name in event.values and row.name in state.policy]
    return found if len(found) == len(rows) and all(one.value is not None for one in found) else None


def _together(state: RunState, event: Measured) -> float | None:
    """Correlation of the newest entropies and clip fractions; `None` while few, or when one does not vary."""
    both = _newest(state, event, ENTROPY, CLIP_FRACTION)
    if both is None or both[0].updates != both[1].updates:
        return None
    pairs = [
        (left, right)
        for left, right in zip(both[0].history.items, both[1].history.items, strict=False)
        if left is not None and right is not None
    ]
    return correlation(pairs) if len(pairs) >= SLOPE_NEEDS else None


def _spread(state: RunState, event: Measured) -> float | None:
    """The range of values over that of update `SPREAD_FROM`, or of the first with a range after it."""
    both = _newest(state, event, VALUE_MIN, VALUE_MAX)
    if both is None or both[1].updates < SPREAD_FROM or both[0].value is None or both[1].value is None:
        return None
    wide = both[1].value - both[0].value
    series = state.policy.get(VALUE_SPREAD.name)
    if series is not None and series.usual.items:
        return wide / series.usual.items[0]
    if not 0 < wide < math.inf:
        return None
    # No limit of this row is relative, so nothing else is kept here.
    state.policy.setdefault(VALUE_SPREAD.name, new_series()).usual.push(wide)
    return 1.0


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's, of pairs; `None` when either side does not vary."""
    n = len(pairs)
    left, right = (added(side) / n for side in zip(*pairs, strict=True))
    apart = [(x - left, y - right) for x, y in pairs]
    # Each root alone, as a product of squares overflows first.
    spread = math.sqrt(added(x * x for x, _ in apart)) * math.sqrt(added(y * y for _, y in apart))
    if not 0 < spread < math.inf:
        return None
    return max(-1.0, min(1.0, added(x * y for x, y in apart) / spread))


def slope(values: Sequence[float]) -> float:
    """Least-squares slope of equally spaced values, at least two of them, from one to the next."""
    middle, mean = (len(values) - 1) / 2, added(values) / len(values)
    spread = added((i - middle) * (i - middle) for i in range(len(values)))
    return added((i - middle) * (value - mean) for i, value in enumerate(values)) / spread
