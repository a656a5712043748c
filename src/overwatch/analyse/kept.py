"""What a page in one file keeps of a run: some moments as a collector would show them, and the whole past.

Owns which moments these are: the end, evenly spaced ones, and where findings began. Read in one pass.
Must not know how a page is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from overwatch.analyse.run_history import RunHistory
from overwatch.feeds.inputs import Input
from overwatch.feeds.player import AnyPlayer, player_of
from overwatch.projection.run import run_list
from overwatch.snapshot import Detail, RunList, Snapshot, View
from overwatch.snapshot.history import MOST_COLUMNS, MOST_CURVES, History, HistoryQuery

EVENLY: Final = 24
"""Moments from the beginning to the end."""
MOST_FOUND: Final = 40
"""Further ones at which findings began, the worst first."""
DETAILS: Final = 64
"""Envs whose details at the end are kept, in the board's order."""
_NS: Final = 1_000_000_000
_SEVERITIES: Final = ("critical", "warning", "info")


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm on the timeline."""

    place: float
    """Where it can be looked at, Unix seconds."""
    severity: str
    code: str


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """What can be gone to."""

    first: float
    last: float
    live: bool = False
    marks: tuple[Mark, ...] = ()


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of the view API, by what they answer."""

    runs: RunList
    moments: tuple[Snapshot, ...]
    """Oldest first; the last one is the end."""
    details: dict[str, Detail]
    """At the end, by env."""
    history: History
    timeline: Span
    heat: dict[str, object] = {}


def kept(recorded: Input, run_history: RunHistory) -> bytes:
    """All of it as JSON. Raises `RecordingError` where the recording cannot be played."""
    player, run_id = player_of(recorded), run_history.run.run_id
    marks = tuple(
        Mark(place=run_history.began + one.seen, severity=one.severity, code=one.finding.code)
        for one in run_history.findings
    )
    first, last = run_history.first.time, run_history.last.time
    moments: list[Snapshot] = []
    for place in _places(first, last, marks):
        player.seek(int(place * _NS))
        snapshot = player.look(run_id, View())
        if snapshot is not None and (not moments or snapshot.time > moments[-1].time):
            moments.append(snapshot)
    end = moments[-1] if moments else run_history.last
    return kept_of(
        moments or [end],
        run_id,
        timeline=Span(first=first, last=last, marks=marks),
        details=dict(_details(player, run_id, end)),
        history=_past(player, run_id),
    )


def kept_of(
    moments: Sequence[Snapshot],
    run_id: str,
    *,
    timeline: Span | None = None,
    details: Mapping[str, Detail] | None = None,
    history: History | None = None,
) -> bytes:
    """The same of what is there: moments, oldest first, and what else is known of the run."""
    first, end = moments[0], moments[-1]
    return msgspec.json.encode(
        Kept(
            runs=run_list({(run_id, View()): end}, run_id),
            moments=tuple(moments),
            details=dict(details or {}),
            history=history or History(run_id=run_id),
            timeline=timeline or Span(first=first.time, last=end.time),
        )
    )


def _places(first: float, last: float, marks: Iterable[Mark]) -> list[float]:
    """In order of time, the end among them."""
    worst = sorted(marks, key=lambda mark: _SEVERITIES.index(mark.severity))[:MOST_FOUND]
    evenly = (first + (last - first) * part / EVENLY for part in range(EVENLY + 1))
    return sorted({*evenly, *(mark.place for mark in worst)})


def _details(player: AnyPlayer, run_id: str, end: Snapshot) -> "Iterable[tuple[str, Detail]]":
    for env in end.envs[:DETAILS]:
        seen = player.look(run_id, View(rows=0, env_id=env.env_id))
        if seen is not None and seen.detail is not None:
            yield str(env.env_id), seen.detail


def _past(player: AnyPlayer, run_id: str) -> History | None:
    """Every curve, however many answers they take."""
    whole = player.history(run_id, HistoryQuery(columns=MOST_COLUMNS, about=True))
    left = () if whole is None else whole.left_out
    while whole is not None and left:
        query = HistoryQuery(names=left[:MOST_CURVES], columns=MOST_COLUMNS)
        more, left = player.history(run_id, query), left[MOST_CURVES:]
        if more is not None:
            whole = msgspec.structs.replace(whole, curves=(*whole.curves, *more.curves), left_out=left)
    return whole
