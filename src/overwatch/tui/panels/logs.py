"""The trainer's own lines: its log and its console, newest first, and all of the one under the cursor."""

from typing import Final

from overwatch.snapshot import FeedLine
from overwatch.tui.context import Context
from overwatch.tui.grammar import clock, quoted, severity
from overwatch.tui.panels import picking
from overwatch.tui.text import Line, Role, Span, blank, clean, cut, fit, left, rule, wrapped

_BY: Final = 12
_DETAIL: Final = 6
"""Lines for the one under the cursor."""

_NONE: Final = (
    "no line of the trainer's own log has come",
    "overwatch.sdk.logs has a handler for logging and a processor for structlog;",
    "overwatch watch -- python train.py takes the console too",
)


def render(ctx: Context, rows: int) -> picking.Page:
    """Exactly `rows` lines."""
    lines = ctx.ui.logs
    note = f"{len(lines):,} lines, newest first" if lines else "none"
    drawn = [rule("LOG", [Span(note, Role.MUTED)], ctx.width)]
    if not lines:
        drawn += [fit([Span(f"  {text}", Role.MUTED)], ctx.width) for text in _NONE]
        return picking.Page(lines=[*drawn, *[blank(ctx.width)] * rows][:rows])
    shown = picking.window(ctx.ui.picked, len(lines), max(1, rows - 2 - _DETAIL))
    drawn += [
        picking.marked(_row(lines[place], ctx), ctx.width, here=place == ctx.ui.picked) for place in shown
    ]
    drawn += [blank(ctx.width)] * (rows - _DETAIL - 1 - len(drawn))
    drawn += _whole(lines[min(ctx.ui.picked, len(lines) - 1)], ctx)
    drawn += [blank(ctx.width)] * (rows - len(drawn))
    return picking.Page(lines=drawn[:rows], targets=picking.targets(1, shown))


def _row(line: FeedLine, ctx: Context) -> list[Span]:
    word = severity(line.severity)
    return [
        Span(f"{clock(line.time, ctx.zone, millis=not ctx.compact)} ", Role.MUTED),
        Span(left(word.text, 5), word.role),
        Span(f"{left(cut(clean(line.subsystem), _BY), _BY)} ", Role.MUTED),
        Span(clean(line.message)),
    ]


def _whole(line: FeedLine, ctx: Context) -> list[Line]:
    """All of a line, with its fields."""
    fields = "  ".join(f"{clean(key)}={quoted(value)}" for key, value in line.fields.items())
    texts = [
        *wrapped(clean(line.message), ctx.width - 2),
        *(wrapped(fields, ctx.width - 2) if fields else ()),
    ]
    head = rule(f"{severity(line.severity).text} {clean(line.subsystem)}", [], ctx.width)
    return [head, *(fit([Span(f" {text}")], ctx.width) for text in texts[:_DETAIL])]
