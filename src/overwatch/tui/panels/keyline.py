"""The last line: what the keys do, from the key table."""

from overwatch.tui.context import Context
from overwatch.tui.keys import KEYS
from overwatch.tui.text import Line, Role, Span, fit


def render(ctx: Context) -> Line:
    """One line."""
    hints = [key.hint for key in KEYS if key.hint is not None]
    return fit([Span(" " + "  ".join(hints), Role.MUTED)], ctx.width)
