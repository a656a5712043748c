"""Whether what we know is fresh: the age of the data, with clock skew removed, and a word for it. Pure."""

from typing import Final

import msgspec

from overwatch.diagnose.overlap import overlapping
from overwatch.diagnose.skew import clocks_ahead
from overwatch.state.run import RunState
from overwatch.state.sources import OUTAGE_S, SECOND_NS, Source, speed

SLOW_S: Final = 2.0
STALE_S: Final = 5.0
LOST_S: Final = 60.0
INTERVALS: Final = 3
"""A source is slow or stale after this many of its own intervals, if that is longer."""
SHORTEST_S: Final = 1.0
"""An interval of so much may be any shorter one: it allows for nothing."""


class LinkJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The link at one tick."""

    state: str
    """`live`, `slow`, `stale`, `catching_up`, `lost` or `ended`."""
    data_age_s: float
    lag_s: float
    last_from: str | None = None
    """Who spoke last: `rank 0`, or the role with the rank where it is no trainer."""
    away_s: float | None = None
    """While a spool drains: how long nothing had come before."""
    speed: float | None = None
    """While a spool drains: seconds of the run told in one second."""
    overlapping: tuple[str, ...] = ()
    """Keys of the sources that speak at once for one role and rank."""
    ahead: tuple[str, ...] = ()
    """Keys of the sources whose clock is ahead of ours."""


def judge_link(state: RunState, tick: int) -> LinkJudgement:
    """Judge the freshest source of a run at `tick` (Unix ns on the stamp clock)."""
    quiet_s = max(0.0, (tick - state.last_stamp) / 1e9)
    live = [source for source in state.sources.values() if source.stamp == state.last_stamp]
    latest = min(live, key=Source.lag_s) if live else None
    lag_s = 0.0 if latest is None else latest.lag_s()
    word = _word(state, tick, lag_s)
    drain = None if latest is None or word != "catching_up" else latest.drain
    return LinkJudgement(
        state=word,
        data_age_s=quiet_s + lag_s,
        lag_s=lag_s,
        last_from=None if latest is None else latest.speaker,
        away_s=None if drain is None else drain.away_s,
        speed=None if latest is None or drain is None else speed(latest),
        overlapping=overlapping(state, tick),
        ahead=clocks_ahead(state, tick),
    )


def _interval_s(state: RunState) -> float:
    """That of who speaks most often of those that spoke in the newest second; 0 where it allows for nothing.

    Who of them spoke last, a thinned recording does not tell.
    """
    second = state.last_stamp // SECOND_NS
    newest = [source for source in state.sources.values() if source.stamp // SECOND_NS == second]
    known = [interval for source in newest if (interval := source.interval_s()) is not None]
    shortest = min(known, default=0.0)
    return shortest if shortest > SHORTEST_S else 0.0


def _word(state: RunState, tick: int, lag_s: float) -> str:
    if state.finished is not None:
        return "ended"
    # While the collector was away nobody could be heard: silence counts from its return.
    quiet_s = (tick - max(state.last_stamp, state.back_stamp)) / 1e9
    was_away = state.back_stamp > state.last_stamp
    if quiet_s < SLOW_S and not was_away:
        return "catching_up" if lag_s >= OUTAGE_S else "live"
    patience_s = INTERVALS * _interval_s(state)
    if was_away and quiet_s < max(STALE_S, patience_s):
        return "slow"
    if quiet_s >= max(LOST_S, 4 * patience_s):
        return "lost"
    if quiet_s >= max(STALE_S, patience_s):
        return "stale"
    if lag_s >= OUTAGE_S:
        return "catching_up"
    return "slow" if quiet_s >= max(SLOW_S, patience_s) else "live"
