"""The page of the configuration: what the trainer is, its revision, and every setting it was started with."""

from collections.abc import Mapping

from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, fit, left, rule, wrapped


def render(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines, scrolled by the page's cursor."""
    lines = text(snapshot, ctx)
    at = max(0, min(ctx.ui.picked, len(lines) - rows + 1))
    shown = lines[at : at + rows - 1]
    more = len(lines) - at - len(shown)
    head = rule("CONFIGURATION", [Span(f"{more} more lines: j", Role.MUTED)] if more > 0 else [], ctx.width)
    return [head, *shown, *[blank(ctx.width)] * (rows - 1 - len(shown))][:rows]


def text(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """All lines."""
    history = ctx.ui.charts.histories.get(snapshot.run.run_id)
    about = None if history is None else history.about
    if about is None:
        return [fit([Span("  waiting for what the collector has of it", Role.MUTED)], ctx.width)]
    none = {"settings": "none was sent; overwatch.run(config={...}) sends them"}
    return [
        *_table(about.revision or {"revision": "none was sent"}, ctx),
        *_table(about.environment, ctx),
        rule("SETTINGS", [Span(f"{len(about.config)}", Role.MUTED)], ctx.width),
        *_table(dict(sorted(about.config.items())) or none, ctx),
    ]


def _table(rows: Mapping[str, str], ctx: Context) -> list[Line]:
    wide = min(32, max((cells(clean(name)) for name in rows), default=0) + 2)
    lines: list[Line] = []
    for name, value in rows.items():
        parts = wrapped(clean(value), max(8, ctx.width - wide - 2))
        for place, part in enumerate(parts):
            title = Span(f" {left(clean(name) if not place else '', wide)}", Role.MUTED)
            lines.append(fit([title, Span(part)], ctx.width))
    return lines
