"""Census of the seeds, mix of the recent actions, and the envs at both ends of the fleet."""

from typing import Final

from overwatch.catalog import Stage
from overwatch.snapshot import Best, Snapshot
from overwatch.tui.context import Context
from overwatch.tui.grammar import number, operation, short, stage_role
from overwatch.tui.panels.columns import metric_word
from overwatch.tui.text import Line, Role, Span, clean, fit

_OPS: Final = ("WAIT", "GERM", "ADV", "SETA", "FOSS", "PRUNE")
"""The usual operations in the order of a seed's life; others follow."""
_WORST_AT: Final = 53


def render(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """The census and, in the standard layout, best and worst; what nothing filled is left out."""
    lines = []
    if ctx.beside:
        alone = _census(snapshot, compact=False)[2:]
        return [fit([Span(" "), *alone], ctx.width)] if alone else []
    census = _census(snapshot, compact=ctx.compact)
    room = ctx.width - 2 - sum(len(span.text) for span in census) - (4 if census else 0)
    actions = _actions(snapshot, room, compact=ctx.compact)
    if census or actions:
        between = [Span("  " if ctx.compact else "    ")] if census and actions else []
        lines.append(fit([Span(" "), *census, *between, *actions], ctx.width))
    ends = snapshot.aggregates
    if (ends.best or ends.worst) and not ctx.compact and not ctx.short:
        lines.append(_ends(snapshot, ctx.width))
    return lines


def _census(snapshot: Snapshot, *, compact: bool) -> list[Span]:
    counts = snapshot.aggregates.seed_census
    if not counts or not snapshot.run.slots_enabled:
        return []
    spans = [] if compact else [Span("seeds", Role.MUTED), Span("  ")]
    for stage in (*(stage for stage in Stage if stage is not Stage.UNKNOWN), Stage.UNKNOWN):
        if stage.value in counts:
            spans += [Span(stage.glyph, stage_role(stage)), Span("" if compact else " ")]
            spans += [Span(short(counts[stage.value])), Span(" " if compact else "  ")]
    return spans[:-1]


def _actions(snapshot: Snapshot, room: int, *, compact: bool) -> list[Span]:
    """The usual operations, then others, as many as fit whole."""
    shares = {operation(name): share for name, share in snapshot.aggregates.actions.items()}
    names = [*(name for name in _OPS if name in shares), *(name for name in shares if name not in _OPS)]
    if not names:
        return []
    start, gap = ("", " ") if compact else ("actions  ", "  ")
    called = {name: clean(name) for name in names}
    words = [f"{called[name][:4] if compact else called[name]} {shares[name]:.0%}" for name in names]
    if compact:
        words = [word.removesuffix("%") for word in words]
    kept = 0
    while kept < len(words) and len(start + gap.join(words[: kept + 1])) + compact <= room:
        kept += 1
    if not kept:
        return []
    text = gap.join(words[:kept]) + ("%" if compact else "")
    return [Span(start, Role.MUTED), Span(text)] if start else [Span(text)]


def _ends(snapshot: Snapshot, width: int) -> Line:
    best = [Span(" "), Span("best", Role.MUTED), Span("  " + _named(snapshot.aggregates.best, snapshot))]
    worst = [Span("worst", Role.MUTED), Span("  " + _named(snapshot.aggregates.worst, snapshot))]
    at = min(max(_WORST_AT, sum(len(span.text) for span in best) + 2), width // 2 + 12)
    return fit((*fit(best, at), *worst), width)


def _named(ends: tuple[Best, ...], snapshot: Snapshot) -> str:
    words = []
    for end in ends:
        name = metric_word(snapshot) if end.field == "metric" else clean(end.field)
        spec = ".2f" if end.field == "metric" else "+.2f"
        words.append(f"env {end.env_id} {name} {number(end.value, spec, 8)}")
    return " · ".join(words)
