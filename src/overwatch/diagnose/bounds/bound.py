"""The shape of a verdict and of a rule, and how evidence is written. Pure."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from overwatch.diagnose.lanes import LaneFacts
from overwatch.diagnose.limits import AnomalyLimits


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict about one lane, or about all."""

    state: str
    """A word of `overwatch.catalog.bounds.BoundState`."""
    mark: str = ""
    """`!!` critical, `!` warning, `?` abstains, none = as it should be."""
    why: str = ""
    hint: str = ""
    confidence: float
    evidence: tuple[str, ...] = ()


Rule: TypeAlias = Callable[[LaneFacts, AnomalyLimits], Bound | None]
"""What one rule says of a lane; `None` where it does not apply, or lacks a signal."""


def evidence(lane: LaneFacts, *more: str) -> tuple[str, ...]:
    """The numbers that a verdict rests on: the rule's own first, then the lane's levels."""
    shares = (
        ("util", lane.util), ("memory", lane.memory), ("power", lane.power), ("clock", lane.clock),
        ("processors", lane.sm),
    )  # fmt: skip
    numbers = (*more, *(f"{name} {share:.0%}" for name, share in shares if share is not None))
    if not lane.dips or lane.dip_s is None:
        return numbers
    return (
        *numbers,
        f"below 50% for {lane.dips:.0%} of a minute, p95 {duration_like(lane.dip_s, lane.dip_s)}",
    )


def duration_like(value: float, like: float) -> str:
    """A duration as shown, in the unit that suits `like`."""
    return f"{value:.2f}s" if like >= 1 else f"{value * 1000:.3g}ms"
