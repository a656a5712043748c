"""Bounds over time: a lane's verdict changes only when another one has held for a while. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from overwatch.catalog.bounds import BoundState
from overwatch.diagnose.bounds import Bound

HOLD_NS: Final = 3_000_000_000
FORECAST_NS: Final = 2_000_000_000
"""The same of a forecast: it rests on many readings already, and waiting eats the time that it gives."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict about one lane, and the one that may follow it."""

    bound: Bound
    next_state: str | None = None
    next_since: int = 0


def hold(previous: Mapping[str, Held], now: Mapping[str, Bound], tick: int) -> dict[str, Held]:
    """Verdicts after this tick; the same verdict takes its newest words, a first one is believed at once."""
    return {name: _hold(previous.get(name), bound, tick) for name, bound in now.items()}


def _hold(known: Held | None, bound: Bound, tick: int) -> Held:
    if known is None or known.bound.state == bound.state:
        return Held(bound=bound)
    since = known.next_since if known.next_state == bound.state else tick
    needed = FORECAST_NS if bound.state == BoundState.OOM_RISK.value else HOLD_NS
    if tick - since >= needed:
        return Held(bound=bound)
    return Held(bound=known.bound, next_state=bound.state, next_since=since)
