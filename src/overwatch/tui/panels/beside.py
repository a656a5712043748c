"""The page of two runs beside one another: verdicts, every number of both, and the curves of one of them."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from overwatch.analyse.effect import change
from overwatch.snapshot import Snapshot
from overwatch.tui.comparison import Comparison, Row
from overwatch.tui.context import Context
from overwatch.tui.curve import braille, scale
from overwatch.tui.grammar import ABSENT, number, severity, sparkline
from overwatch.tui.panels import lists
from overwatch.tui.text import Line, Role, Span, blank, clean, cut, cut_middle, fit, left, right, rule

_NAME: Final = 18
_VALUE: Final = 9
_BARS: Final = 16
_AXIS: Final = 9
_ROLES: Final = {"worse": Role.CRIT, "better": Role.OK, "higher": Role.WARN, "lower": Role.WARN}


def render(shown: Comparison, snapshot: Snapshot, ctx: Context, rows: int) -> lists.Page:
    """Exactly `rows` lines, of both runs at the update where the first one's replay stands."""
    update = float(snapshot.run.update or 0)
    at = [Span(f"both at update {update:,.0f}", Role.MUTED)]
    lines = [rule("COMPARE", at, ctx.width), fit([Span(f" {clean(shown.headline)}")], ctx.width)]
    lines += [_verdict_line(shown, side, update, ctx) for side in (0, 1)]
    lines.append(fit([Span(_head(ctx), Role.MUTED)], ctx.width))
    above = len(lines)
    tall = max(4, min(12, rows // 3))
    seen = lists.window(ctx.ui.picked, len(shown.rows), max(1, rows - above - tall - 1))
    for place in seen:
        line = _row(shown.rows[place], update, ctx)
        lines.append(lists.marked(line, ctx.width, here=place == ctx.ui.picked))
    lines += [blank(ctx.width)] * (rows - tall - 1 - len(lines))
    if shown.rows:
        lines += _curves(shown.rows[min(ctx.ui.picked, len(shown.rows) - 1)], update, ctx, tall)
    return lists.Page(lines=lines[:rows], targets=lists.targets_of(above, seen))


def _verdict_line(shown: Comparison, side: int, update: float, ctx: Context) -> Line:
    """A run's name, and its verdict when it was at this update."""
    newest = shown.verdict_at(side, update)
    name = left(cut_middle(clean(shown.names[side]), _NAME), _NAME)
    start = [Span(f" {'AB'[side]} "), Span(f"{name} ", Role.TITLE)]
    if newest is None:
        return fit([*start, Span("nothing was heard of it yet", Role.MUTED)], ctx.width)
    room = ctx.width - _NAME - 10
    return fit([*start, severity(newest.severity), Span(f" {cut(clean(newest.text), room)}")], ctx.width)


def _head(ctx: Context) -> str:
    bars = "" if ctx.compact else f" {'A':{_BARS}}  {'B':{_BARS}} "
    values = f"{'A':>{_VALUE}} {'B':>{_VALUE}} {'change':>8}"
    return f"  {'number':{_NAME}} {values} {bars} {'at the end':11} parted"


def _row(row: Row, update: float, ctx: Context) -> list[Span]:
    seen = [side.upto(update) for side in row.sides]
    now = [values[-1] if values and math.isfinite(values[-1]) else None for values in seen]
    words = [ABSENT if value is None else number(value, row.fmt, _VALUE) for value in now]
    spans = [
        Span(f" {left(cut_middle(clean(row.label), _NAME), _NAME)} "),
        Span(f"{right(words[0], _VALUE)} {right(words[1], _VALUE)} {right(change(*now), 8)} "),
    ]
    if not ctx.compact:
        ends = scale([*seen[0][-_BARS:], *seen[1][-_BARS:]])
        for values in seen:
            known = [value if math.isfinite(value) else None for value in values[-_BARS:]]
            spans += [Span(" "), *sparkline(known, _BARS, ends), Span(" ")]
    parted = "" if row.parted is None else f"{row.parted:,.0f}"
    spans += [
        Span(f" {left(clean(row.verdict), 11)}", _ROLES.get(row.verdict, Role.MUTED)),
        Span(f" {parted}"),
    ]
    return spans


def _curves(row: Row, update: float, ctx: Context, rows: int) -> list[Line]:
    """A title, and `rows` lines: A's curve at the left, B's at the right, on one scale."""
    seen = [side.upto(update) for side in row.sides]
    wide = max(4, (ctx.width - _AXIS - 4) // 2)
    shown = [tuple(_stretched(values, 2 * wide)) for values in seen]
    ends = scale([*seen[0], *seen[1]])
    drawn = [rule(clean(row.label).upper(), [Span("A left, B right, one scale", Role.MUTED)], ctx.width)]
    charts = [braille(values, wide, rows, ends) for values in shown]
    marks = {0: f"{ends[1]:.3g}", rows - 1: f"{ends[0]:.3g}"}
    for place, (first, second) in enumerate(zip(*charts, strict=True)):
        mark = right(marks.get(place, ""), _AXIS)
        drawn.append(
            fit(
                [Span(mark, Role.MUTED), Span(" "), Span(first), Span(" │ ", Role.MUTED), Span(second)],
                ctx.width,
            )
        )
    return drawn


def _stretched(values: Sequence[float], dots: int) -> Iterator[float | None]:
    """All values over so many dots: repeated while there are few, every so many where there are more."""
    for dot in range(dots if values else 0):
        value = values[dot * len(values) // dots]
        yield value if math.isfinite(value) else None
