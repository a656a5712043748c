"""Help: the keys, from the key table, and the legend of the stages, from the catalogue."""

from overwatch.catalog import Stage
from overwatch.snapshot import Snapshot
from overwatch.tui.context import Context
from overwatch.tui.grammar import stage_role
from overwatch.tui.keys import KEYS
from overwatch.tui.panels import keyline
from overwatch.tui.text import Line, Role, Span, blank, clean, fit, left, rule

_MARKS = (
    (">", "the cursor"),
    ("~", "an old value"),
    ("–", "never measured"),
    ("+2", "two more that had no room"),
    ("! !! ?", "warning, critical, abstains"),
)


def render(snapshot: Snapshot | None, ctx: Context) -> list[Line]:
    """Exactly `ctx.height` lines; a run without slots has no word about them."""
    lines = [rule("KEYS", [Span("Esc back", Role.MUTED)], ctx.width)]
    lines += [fit([Span(" " + left(key.shown, 10), Role.TITLE), Span(key.does)], ctx.width) for key in KEYS]
    lines.append(rule("MARKS", [], ctx.width))
    lines += [fit([Span(" " + left(mark, 10), Role.TITLE), Span(text)], ctx.width) for mark, text in _MARKS]
    if snapshot is not None and snapshot.run.slots_enabled:
        lines.append(
            rule("STAGES", [Span("the fuller the circle, the further the seed", Role.MUTED)], ctx.width)
        )
        lines += _stages(ctx.width)
    if snapshot is not None:
        board = snapshot.board
        words = f" sort {clean(board.sort)}, filter {clean(board.filter or 'none')}"
        lines.append(fit([Span(words, Role.MUTED)], ctx.width))
    lines = lines[: ctx.height - 1]
    return [*lines, *[blank(ctx.width)] * (ctx.height - 1 - len(lines)), keyline.render(ctx)]


def _stages(width: int) -> list[Line]:
    stages = list(Stage)
    half = (len(stages) + 1) // 2
    return [fit([s for stage in stages[i::half] for s in _stage(stage)], width) for i in range(half)]


def _stage(stage: Stage) -> list[Span]:
    return [Span(f" {stage.glyph} ", stage_role(stage)), Span(left(stage.label, 14)), Span(left("", 10))]
