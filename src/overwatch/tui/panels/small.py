"""Below 80 × 24: identity, verdict and as many alarms as fit."""

from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context
from overwatch.tui.panels import alarms, verdict
from overwatch.tui.text import Line, Role, Span, blank, clean, cut_middle, fit, spread

LEAST_WIDTH = 80
LEAST_HEIGHT = 24


def fits(ctx: Context) -> bool:
    """Whether the full layout has room."""
    return ctx.width >= LEAST_WIDTH and ctx.height >= LEAST_HEIGHT


def needed(ctx: Context) -> Line:
    """What is missing."""
    text = f"{LEAST_WIDTH}x{LEAST_HEIGHT} needed, {ctx.width}x{ctx.height} here"
    return fit([Span(text, Role.MUTED)], ctx.width)


def render(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """Exactly `ctx.height` lines."""
    state = [Span(ctx.fresh.text, ctx.fresh.role)]
    name = cut_middle(clean(snapshot.run.run_id), max(3, ctx.width - 3 - len(ctx.fresh.text)))
    lines = [spread([Span(" "), Span(name, Role.TITLE)], state, ctx.width)]
    lines += verdict.render(snapshot, ctx)
    lines += alarms.render(snapshot, ctx, max(1, ctx.height - 4))[1:]
    above = (lines + [blank(ctx.width)] * ctx.height)[: max(0, ctx.height - 1)]
    return [*above, needed(ctx)]
