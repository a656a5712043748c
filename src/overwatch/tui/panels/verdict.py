"""The verdict line: the worst severity, its causes, and the counts. The text is the snapshot's own."""

from overwatch.snapshot import Snapshot, Verdict
from overwatch.tui.context import Context
from overwatch.tui.grammar import duration, severity
from overwatch.tui.text import Line, Role, Span, cells, clean, cut, spread, width_of

_COUNTED = (("critical", "crit"), ("warning", "warn"))
_BETWEEN = " · "


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
        ending = _counts(snapshot.verdict, compact=ctx.compact)
        word = severity(snapshot.verdict.severity)
        text = clean(snapshot.verdict.text)
    start = [Span(" "), word, Span(gap)]
    room = ctx.width - width_of(start) - width_of(ending) - 3
    if room < 24:
        ending, room = [], ctx.width - width_of(start) - 1
    return [spread([*start, Span(_causes(text, room))], ending, ctx.width)]


def _causes(text: str, room: int) -> str:
    """Whole causes as long as they fit; a single one is cut at its end."""
    if cells(text) <= room:
        return text
    causes = text.split(_BETWEEN)
    for keep in range(len(causes) - 1, 0, -1):
        shown = f"{_BETWEEN.join(causes[:keep])} +{len(causes) - keep}"
        if cells(shown) <= room:
            return shown
    return cut(text, room)


def _counts(verdict: Verdict, *, compact: bool) -> list[Span]:
    words = [f"{verdict.counts[key]} {word}" for key, word in _COUNTED if verdict.counts.get(key)]
    if verdict.acknowledged and not compact:
        words.append(f"{verdict.acknowledged} acked")
    return [Span("  ".join(words))] if words else []
