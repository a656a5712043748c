"""The verdict line: the worst severity, its causes, and the counts. The text is the snapshot's own."""

import re
from datetime import datetime
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.snapshot import Snapshot, Verdict
from overwatch.tui.context import Context
from overwatch.tui.grammar import clock, date, severity
from overwatch.tui.text import Line, Role, Span, cells, clean, cut, fit, spread, width_of, wrapped

_COUNTED = (("critical", "crit"), ("warning", "warn"))
_BETWEEN = " · "
LEAST_COUNTED: Final = 80
"""Narrower terminals list the findings and have no room for their number."""
LEAST_CAUSE: Final = 45
"""No cause of several is cut to less, as long as others can be counted instead."""
_CLAUSE: Final = re.compile("; |, (?=last |catching up )")
"""Where the sentence about a silent or late run may end."""
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def render(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """One line. When nothing reaches this terminal, no verdict is given from what is old."""
    gap = " " if ctx.compact else "  "
    if ctx.fresh.cut_off:
        waited = duration(ctx.waited_s)
        old = waited if ctx.fresh.age_s is None else duration(ctx.fresh.age_s)
        ending = [Span(f"everything below is {old} old", Role.STALE)]
        word = Span("CRIT", Role.CRIT)
        text = f"collector silent for {waited}; reconnecting"
    else:
        ending = _ending(snapshot.verdict, ctx)
        word = severity(snapshot.verdict.severity)
        text = _text(snapshot, ctx)
    start = [Span(" "), word, Span(gap)]
    gives_way = snapshot.verdict.note is not None or (ctx.fresh.state == "lost" and not ctx.ui.recorded)
    alone = ctx.width - width_of(start) - 1
    room = alone - width_of(ending) - 2
    if room < 24 or (ctx.compact and not ctx.fresh.cut_off and gives_way and cells(text) > room):
        ending, room = [], alone
    return [spread([*start, Span(_causes(text, room))], ending, ctx.width)]


def wrapped_lines(snapshot: Snapshot, ctx: Context, most: int) -> list[Line]:
    """The same on narrow terminals: the text goes on in at most so many lines, before a cause is left out."""
    text, word = _text(snapshot, ctx), severity(snapshot.verdict.severity)
    indent = width_of([word]) + 2
    room = ctx.width - indent
    rows = [] if ctx.fresh.cut_off else wrapped(text, room)
    if len(rows) > most:
        rows = wrapped(_causes(text, most * room - room // 3), room)
    if not 1 < len(rows) <= most:
        return render(snapshot, ctx)
    first = fit([Span(" "), word, Span(f" {rows[0]}")], ctx.width)
    return [first, *(fit([Span(" " * indent + row)], ctx.width) for row in rows[1:])]


def _text(snapshot: Snapshot, ctx: Context) -> str:
    """The snapshot's words, with moments in the terminal's zone."""
    return _MOMENT.sub(lambda found: _local(found[0], snapshot.time, ctx), clean(snapshot.verdict.text))


def _causes(text: str, room: int) -> str:
    """Whole where it fits; else the longest causes are cut, and then the last ones counted.

    A single one loses its last clauses, and is then cut at its end.
    """
    if cells(text) <= room:
        return text
    clauses = [found.start() for found in _CLAUSE.finditer(text)] if _BETWEEN not in text else []
    for end in reversed(clauses):
        if cells(text[:end]) <= room:
            return text[:end]
    causes = text.split(_BETWEEN)
    for keep in range(len(causes), 0, -1):
        more = f" +{len(causes) - keep}" if keep < len(causes) else ""
        for most in range(room, LEAST_CAUSE - 1, -1):
            shown = _BETWEEN.join(cut(cause, most) for cause in causes[:keep]) + more
            if cells(shown) <= room:
                return shown
    return cut(text, room)


def _ending(verdict: Verdict, ctx: Context) -> list[Span]:
    """What is to be known beside the text; without that, the counts."""
    if ctx.ui.recorded and ctx.fresh.state in ("lost", "ended"):
        return [Span("r replay", Role.INFO)]
    if ctx.fresh.state == "lost" and verdict.note is None:
        return [Span("overwatch tui --replay DIR", Role.INFO)]
    if verdict.note is not None:
        return [Span(clean(verdict.note), Role.STALE if ctx.fresh.old else Role.MUTED)]
    return [] if ctx.width < LEAST_COUNTED else _counts(verdict, compact=ctx.compact)


def _local(moment: str, now: float, ctx: Context) -> str:
    """A moment in UTC as time of day in the terminal's zone, with its date when that is not today's."""
    try:
        unix_s = datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return moment
    time, day = clock(unix_s, ctx.zone, millis=False), date(unix_s, ctx.zone)
    return time if day == date(now, ctx.zone) else f"{day} {time}"


def _counts(verdict: Verdict, *, compact: bool) -> list[Span]:
    words = [f"{verdict.counts[key]} {word}" for key, word in _COUNTED if verdict.counts.get(key)]
    if verdict.acknowledged and not compact:
        words.append(f"{verdict.acknowledged} acked")
    return [Span("  ".join(words))] if words else []
