"""Whether what we know is fresh: the age of the data, with clock skew removed, and a word for it. Pure.

Rules: the producers that hold a run decide; what others emit, or do not emit, changes nothing. Each is judged
by its own rhythm. One that promised an end record is stale, then lost; one that did not is only silent.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from overwatch.diagnose.overlap import overlapping
from overwatch.diagnose.skew import clocks_ahead
from overwatch.state.run import RunState
from overwatch.state.sources import OUTAGE_S, Source, holder_of, speed, team_of

SLOW_S: Final = 2.0
LOST_S: Final = 60.0
LOST_TIMES: Final = 4
"""Times its patience until a source that is stale is lost."""
QUIET: Final = frozenset({"stale", "silent", "lost", "ended"})
"""Words for a run that emits nothing: what stood when it last did is kept, and not judged again."""
OVER: Final = frozenset({"ended", "lost"})
"""Words for a run of which nothing more is expected."""


class LinkJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The link at one tick."""

    state: str
    """`live`, `slow`, `stale`, `silent`, `catching_up`, `lost` or `ended`."""
    data_age_s: float
    lag_s: float
    last_from: str | None = None
    """The holder that emitted last: `rank 0`, or the role with the rank."""
    away_s: float | None = None
    """While a spool drains: how long nothing had come before."""
    speed: float | None = None
    """While a spool drains: seconds of the run told in one second."""
    overlapping: tuple[str, ...] = ()
    """Keys of the sources that speak at once for one role and rank."""
    ahead: tuple[str, ...] = ()
    """Keys of the sources whose clock is ahead of ours."""


def judge_link(state: RunState, tick: int) -> LinkJudgement:
    """Judge those that hold a run at `tick` (Unix ns on the stamp clock)."""
    holders = _holders(state)
    newest = max((source.stamp for source in holders.values()), default=state.last_stamp)
    live = [source for source in holders.values() if source.stamp == newest]
    latest = min(live, key=Source.lag_s) if live else None
    lag_s = 0.0 if latest is None else latest.lag_s()
    word = _word(state, holders, tick, lag_s)
    drain = None if latest is None or word != "catching_up" else latest.drain
    return LinkJudgement(
        state=word,
        data_age_s=max(0.0, (tick - newest) / 1e9) + lag_s,
        lag_s=lag_s,
        last_from=None if latest is None else latest.speaker,
        away_s=None if drain is None else drain.away_s,
        speed=None if latest is None or drain is None else speed(latest),
        overlapping=overlapping(state, tick),
        ahead=clocks_ahead(state, tick),
    )


def _holders(state: RunState) -> Mapping[str, Source]:
    """The lives whose silence is the run's: those that go on; of a run that is over, its last holder."""
    if state.finished is None:
        return {key: source for key, source in team_of(state.sources).items() if not source.finished}
    key = holder_of(state.sources)
    return {} if key is None else {key: state.sources[key]}


def _word(state: RunState, holders: Mapping[str, Source], tick: int, lag_s: float) -> str:
    if state.finished is not None:
        return "lost" if state.finished.outcome == "lost" else "ended"
    newest = max((source.stamp for source in holders.values()), default=state.last_stamp)
    # While the collector was away nothing could be received: silence counts from its return.
    quiet_s = (tick - max(newest, state.back_stamp)) / 1e9
    was_away = state.back_stamp > newest
    if quiet_s < SLOW_S and not was_away:
        return "catching_up" if lag_s >= OUTAGE_S else "live"
    if not holders:
        return "lost"
    # The life that is least overdue: another may have been replaced, or be gone.
    calmest = min(holders.values(), key=lambda source: _overdue_s(source, state.back_stamp, tick))
    quiet_s = (tick - max(calmest.stamp, state.back_stamp)) / 1e9
    allowed_s, patience_s = calmest.allowed_s(), calmest.patience_s()
    if was_away and quiet_s < patience_s:
        return "slow"
    if quiet_s >= patience_s:
        is_lost = quiet_s >= max(LOST_S, LOST_TIMES * allowed_s)
        return "silent" if not calmest.promised else "lost" if is_lost else "stale"
    if lag_s >= OUTAGE_S:
        return "catching_up"
    return "slow" if calmest.promised and quiet_s >= max(SLOW_S, allowed_s) else "live"


def _overdue_s(source: Source, back: int, tick: int) -> float:
    """Seconds for which it is quieter than its rhythm makes usual; below 0 while it is not."""
    return (tick - max(source.stamp, back)) / 1e9 - source.patience_s()
