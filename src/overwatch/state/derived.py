"""Policy rows that follow from others: what a trainer need not tell, since the fold can work it out.

Rules: what the trainer itself told stays; nothing is made of what was not told or not finite. Adds to
series, and is pure besides.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from overwatch.catalog import KL, Metric
from overwatch.catalog.gradients import ENTROPY_NATS
from overwatch.catalog.moves import KL_DRIFT, KL_JOINT, TRUST_REGION
from overwatch.catalog.policy import ENTROPY, GRAD_CLIPPED, GRAD_NORM
from overwatch.events import Measured
from overwatch.events.adding import added
from overwatch.state.policy import new_series, observe, share_above
from overwatch.state.run import RunState

SLOPE_OF: Final = 10
"""Newest values of KL whose slope is told."""
SLOPE_NEEDS: Final = 5


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


def slope(values: Sequence[float]) -> float:
    """Least-squares slope of equally spaced values, at least two of them, from one to the next."""
    middle, mean = (len(values) - 1) / 2, added(values) / len(values)
    spread = added((i - middle) * (i - middle) for i in range(len(values)))
    return added((i - middle) * (value - mean) for i, value in enumerate(values)) / spread
