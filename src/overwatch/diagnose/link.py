"""Whether what we know is fresh: the age of the data, with clock skew removed, and a word for it. Pure."""

from typing import Final

import msgspec

from overwatch.state.run import RunState

SLOW_S: Final = 2.0
STALE_S: Final = 5.0
LOST_S: Final = 60.0
CATCHING_UP_S: Final = 5.0
INTERVALS: Final = 3
"""A source is stale after this many of its own intervals, if that is longer."""


class LinkJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The link at one tick."""

    state: str
    """`live`, `slow`, `stale`, `catching_up`, `lost` or `ended`."""
    data_age_s: float
    lag_s: float


def judge_link(state: RunState, tick: int) -> LinkJudgement:
    """Judge the freshest source of a run at `tick` (Unix ns on the stamp clock)."""
    quiet_s = max(0.0, (tick - state.last_stamp) / 1e9)
    live = [source for source in state.sources.values() if source.stamp == state.last_stamp]
    lag_s = min((source.lag_s() for source in live), default=0.0)
    interval = max((source.interval_s() or 0.0 for source in live), default=0.0)
    word = _word(state, quiet_s, lag_s, INTERVALS * interval)
    return LinkJudgement(state=word, data_age_s=quiet_s + lag_s, lag_s=lag_s)


def _word(state: RunState, quiet_s: float, lag_s: float, patience_s: float) -> str:
    if state.finished is not None:
        return "ended"
    if quiet_s >= max(LOST_S, 4 * patience_s):
        return "lost"
    if quiet_s >= max(STALE_S, patience_s):
        return "stale"
    if lag_s >= CATCHING_UP_S:
        return "catching_up"
    return "slow" if quiet_s >= max(SLOW_S, patience_s) else "live"
