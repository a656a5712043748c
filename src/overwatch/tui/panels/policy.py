"""The page of the policy: every reading with status, limit and spread, and a large chart of one of them."""

import re

from overwatch.catalog import Scope, find, head_of
from overwatch.snapshot import Reading, Snapshot
from overwatch.tui.chart import NO_DOT, braille, scale
from overwatch.tui.context import Context
from overwatch.tui.grammar import short, sparkline
from overwatch.tui.memory import History
from overwatch.tui.panels import picking, pulse
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, cut, cut_middle, fit, left, right, rule

_NAME = 20
_VALUE = 9
_AXIS = 9
_QUESTION = 64
_ASKED_FROM = 120
"""Cells from which on every row has its question; narrower, the one under the cursor has it."""
_APART = 16
"""Dots from one update to the next while there are few."""


def names(snapshot: Snapshot) -> tuple[str, ...]:
    """The readings in the page's order: those of the pulse first, then the others that have a value."""
    first = [cell.name for cell in pulse.CELLS if cell.name in snapshot.policy]
    rest = (name for name, reading in snapshot.policy.items() if reading.status != "absent")
    return tuple(dict.fromkeys((*first, *rest)))


def render(snapshot: Snapshot, history: History, ctx: Context, rows: int) -> picking.Page:
    """Exactly `rows` lines: a title, the readings, and the chart of the one under the cursor."""
    found = names(snapshot)
    note = f"{len(found)} readings · preset {clean(snapshot.run.preset)}"
    lines = [rule("POLICY", [Span(note, Role.MUTED)], ctx.width)]
    if not found:
        lines.append(fit([Span("  no update yet", Role.MUTED)], ctx.width))
        return picking.Page(lines=[*lines, *[blank(ctx.width)] * (rows - len(lines))][:rows])
    tall = max(4, min(rows // 2 - 1, max(14, rows - 3 - len(found))))
    shown = picking.window(ctx.ui.picked, len(found), max(1, rows - 2 - tall))
    for place in shown:
        name = found[place]
        row = _row(name, snapshot.policy[name], history, ctx)
        lines.append(picking.marked(row, ctx.width, here=place == ctx.ui.picked))
    lines += [blank(ctx.width)] * (rows - tall - 1 - len(lines))
    name = found[min(ctx.ui.picked, len(found) - 1)]
    question = fit([Span(f" {asks(name)}", Role.INFO)], ctx.width)
    tall -= 1
    lines += [question, *chart(name, snapshot.policy[name], history, ctx, tall)]
    return picking.Page(lines=lines[:rows], targets=picking.targets(1, shown))


def _row(name: str, reading: Reading, history: History, ctx: Context) -> list[Span]:
    """Wide terminals show more updates than a snapshot carries."""
    bars = max(10, min(60, ctx.width - _NAME - _VALUE - 40 - (_QUESTION if ctx.width >= _ASKED_FROM else 0)))
    values = history.of(name)
    limit = "" if reading.limit is None else clean(reading.limit.text)
    spread = "" if reading.spread is None else f"  ranks differ by {short(reading.spread)}"
    return [
        Span(f" {left(cut_middle(clean(reading.label or name), _NAME), _NAME)} "),
        *pulse.judged(reading, old=ctx.fresh.old, width=_VALUE),
        *sparkline(values if len(values) > len(reading.history) else reading.history, bars, reading.scale),
        Span(f" {left(limit, 8)}{spread}", Role.MUTED),
        *_question(name, spread, bars, ctx),
    ]


def _question(name: str, spread: str, bars: int, ctx: Context) -> list[Span]:
    """What the row answers, as far as there is room for it beside the row."""
    room = ctx.width - 1 - _NAME - _VALUE - 19 - bars - cells(spread)
    return (
        [Span(f"  {cut(asks(name), room - 2)}", Role.MUTED)] if ctx.width >= _ASKED_FROM and room > 20 else []
    )


def asks(name: str) -> str:
    """What a row answers, in the catalogue's words; nothing for numbers that are not in it."""
    part = head_of(name)
    if part is not None:
        return f"{part[0].asks} Of the {part[0].parts} {clean(part[1])}."
    row = find(name, Scope.POLICY)
    return "" if row is None else row.asks


def chart(name: str, reading: Reading, history: History, ctx: Context, rows: int) -> list[Line]:
    """A title and `rows` lines; the limit in use is a line of its own where it is in sight."""
    values = history.of(name) or reading.history
    limit = None if reading.limit is None else reading.limit.value
    low, high = scale(values, limit)
    wide = max(4, ctx.width - _AXIS - 2)
    seen = min(len(values), 2 * wide)
    apart = max(1, min(_APART, 2 * wide // max(1, len(values))))
    values = tuple(value for value in values for _ in range(apart))
    note = [Span(f"the last {seen} updates", Role.MUTED)]
    drawn = [rule(clean(reading.label or name).upper(), note, ctx.width)]
    marks, at = {0: _axis(high), rows - 1: _axis(low)}, -1
    if reading.limit is not None:
        at = rows - 1 - round((reading.limit.value - low) / (high - low) * (rows - 1))
        marks[at] = clean(reading.limit.text)
    for place, dots in enumerate(braille(values, wide, rows, (low, high))):
        mark = right(marks.get(place, ""), _AXIS)
        shown = _crossed(dots) if place == at else [Span(dots)]
        drawn.append(fit([Span(mark, Role.MUTED), Span(" "), *shown], ctx.width))
    return drawn


def _crossed(dots: str) -> list[Span]:
    """A row of the chart that the limit runs through: a line where there is no dot."""
    return [
        Span("─" * len(run), Role.WARN) if run[0] == NO_DOT else Span(run)
        for run in re.findall(f"{NO_DOT}+|[^{NO_DOT}]+", dots)
    ]


def _axis(value: float) -> str:
    return f"{value:.3g}"
