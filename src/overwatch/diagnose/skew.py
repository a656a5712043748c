"""Producers whose clock is ahead of the collector's: what they tell is from the future. Pure.

Rules: only what is certain is said. A record that comes before it was told is that of a wrong clock; one that
comes late may have waited in a spool as well.
"""

from collections.abc import Sequence
from typing import Final

from overwatch.diagnose.problem import STEADY, Problem
from overwatch.state.run import RunState
from overwatch.state.sources import Source, spoken_for

AHEAD_S: Final = 2.0
"""Synchronised clocks are within a tenth of a second; ages are shown in tenths, judged in seconds."""


def ahead_s(source: Source) -> float | None:
    """How far its clock is ahead at the least, in seconds; `None` where that is little or not known."""
    seconds = -source.delay / 1e9
    return seconds if seconds >= AHEAD_S else None


def clocks_ahead(state: RunState, tick: int) -> tuple[str, ...]:
    """Keys of the sources whose newest record is from the future, of those that speak at `tick`."""
    return tuple(
        key for key, source in state.sources.items() if ahead_s(source) is not None and source.is_live(tick)
    )


def wrong_clocks(state: RunState, keys: Sequence[str]) -> list[Problem]:
    """One problem for all producers whose clock is ahead."""
    if not keys:
        return []
    sources = [state.sources[key] for key in keys]
    said, most_s = spoken_for(sources), max(-source.delay for source in sources) / 1e9
    return [
        Problem(
            code="clock-ahead",
            severity="warning",
            scope="run",
            subject=None,
            at=state.last_at,
            message=f"clock of {said} is {most_s:.0f} s ahead: what it tells is from the future",
            hint="synchronise the clocks of both machines; `overwatch doctor` on each says which one is not",
            patience=STEADY,
        )
    ]
