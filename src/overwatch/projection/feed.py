"""The feed: the newest lines, structured, and how fast they come."""

from typing import Final

from overwatch.projection.text import safe, safe_fields, safe_or_none
from overwatch.snapshot import FeedLine
from overwatch.state.run import Entry, RunState

FEED_LINES: Final = 100
RATE_NS: Final = 10_000_000_000


def feed_rate(state: RunState) -> float | None:
    """Lines a second over the newest ten seconds of producer time; `None` before the first line."""
    marks = state.feed_marks.items
    if not marks:
        return None
    young = [mark for mark in marks if state.last_at - mark[0] < RATE_NS]
    before = young[0][1] if young else state.feed_total
    span_s = min(RATE_NS, state.last_at - state.first_at) / 1e9
    return (state.feed_total - before) / max(1.0, span_s)


def feed_view(state: RunState) -> tuple[FeedLine, ...]:
    """The newest lines of the feed, oldest first."""
    newest = state.feed.items[-FEED_LINES:]
    return tuple(feed_line(entry, _lane_of(state, entry.env_id)) for entry in newest)


def feed_line(entry: Entry, gpu_id: str | None = None) -> FeedLine:
    """One line as a view may show it, of an env on a lane."""
    return FeedLine(
        time=entry.at / 1e9,
        severity=entry.severity,
        subsystem=safe(entry.subsystem),
        message=safe(entry.message),
        env_id=entry.env_id,
        gpu_id=gpu_id,
        slot=safe_or_none(entry.slot),
        seed_id=safe_or_none(entry.seed_id),
        kind=entry.kind,
        fields=safe_fields(entry.fields),
    )


def _lane_of(state: RunState, env_id: int | None) -> str | None:
    if env_id is None:
        return None
    row = state.envs.find(env_id)
    lane = -1 if row is None else int(state.envs.lane[row])
    return None if lane < 0 else safe(state.lane_names.words[lane])
