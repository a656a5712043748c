"""The clock of the data: how much of the run's own time has passed, by what its producers told.

Machine readings and counts are held for so long of this clock, so that a spool which drains at nine times the
pace is judged as it would have been live. Rules: it never goes back; each producer's clock counts from where
it was first heard, so that skew does not matter; a silence lets it run on for a while, then it stands. Pure.
"""

from typing import Final

import msgspec

from overwatch.state.run import RunState

SILENCE_NS: Final = 5_000_000_000
"""So long the clock runs on while nobody speaks."""


class DataClock(msgspec.Struct, frozen=True, kw_only=True):
    """The clock at one tick."""

    now: int = 0
    """Nanoseconds; only differences mean something."""
    lead: int = 0
    """What the producers told of it."""
    heard: int = 0
    """Tick at which `lead` last moved."""
    anchors: dict[str, int] = {}
    """What to add to each producer's time."""


def advanced(before: DataClock, state: RunState, tick: int) -> DataClock:
    """The clock at `tick`, after what the producers have told by then."""
    if not before.heard:
        first = {key: tick - source.at for key, source in state.sources.items()}
        return DataClock(now=tick, lead=tick, heard=tick, anchors=first)
    anchors, told = before.anchors, before.lead
    if anchors.keys() != state.sources.keys():
        anchors = {key: anchors.get(key, before.now - source.at) for key, source in state.sources.items()}
    for key, source in state.sources.items():
        told = max(told, anchors[key] + source.at)
    lead, heard = (told, tick) if told > before.lead else (before.lead, before.heard)
    now = max(before.now, lead + min(max(0, tick - heard), SILENCE_NS))
    return DataClock(now=now, lead=lead, heard=heard, anchors=anchors)
