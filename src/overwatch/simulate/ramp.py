"""What a fault is: how conditions change by the seconds since it began."""

from collections.abc import Callable
from typing import TypeAlias

from overwatch.simulate.conditions import Conditions

Fault: TypeAlias = Callable[[Conditions, float], Conditions]


def ramp(since_s: float, over_s: float) -> float:
    """From 0 to 1 within so many seconds, then 1."""
    return min(1.0, since_s / over_s)
