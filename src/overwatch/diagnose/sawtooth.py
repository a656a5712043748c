"""A lane that works and rests in turn: its utilisation goes up and down, several times, by much. Pure."""

from itertools import pairwise
from typing import Final

import msgspec

from overwatch.events.adding import added
from overwatch.state.machines import Gauge

SWING: Final = 0.4
"""Between the level when it works and the level when it rests."""
TURNS: Final = 3
"""Crossings of the middle among the newest readings."""
LEAST: Final = 6


class Sawtooth(msgspec.Struct, frozen=True, kw_only=True):
    """Working and resting in turn."""

    high: float
    low: float
    period_s: float
    """From one rise to the next."""

    @property
    def said(self) -> str:
        """`util swings 20% to 95% every 4.0s`."""
        return f"util swings {self.low:.0%} to {self.high:.0%} every {self.period_s:.1f}s"


def sawtooth(gauge: Gauge | None) -> Sawtooth | None:
    """The saw in the newest readings of utilisation; `None` where there is none.

    A driver averages over up to a second: a saw of shorter teeth is not in the readings, only in phases.
    """
    values = [value for value in gauge.history.items if value is not None] if gauge else []
    if gauge is None or len(values) < LEAST:
        return None
    ordered = sorted(values)
    quarter = max(1, len(ordered) // 4)
    low, high = added(ordered[:quarter]) / quarter, added(ordered[-quarter:]) / quarter
    if high - low < SWING:
        return None
    middle = (low + high) / 2
    turns = sum((before < middle) != (after < middle) for before, after in pairwise(values))
    span_s = (gauge.times.items[-1] - gauge.times.items[-len(values)]) / 1e9
    if turns < TURNS or span_s <= 0:
        return None
    return Sawtooth(high=high, low=low, period_s=2 * span_s / turns)
