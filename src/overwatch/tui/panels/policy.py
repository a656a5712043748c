"""The policy: the pulse with nine values, and the page of every reading with a large chart of one of them."""

import re
from dataclasses import dataclass
from typing import Final

from overwatch.catalog import head_of, row_of
from overwatch.snapshot import Reading, Snapshot
from overwatch.tui import charts as past
from overwatch.tui.charts import resampled
from overwatch.tui.context import Context, Frame
from overwatch.tui.curve import NO_DOT, dotted, scale
from overwatch.tui.grammar import ABSENT, age, no_zero, number, short, sparkline
from overwatch.tui.memory import History
from overwatch.tui.panels import lists
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, cut, cut_middle, fit, left, right, rule

_BESIDE: Final = 30
"""Cells of a place of the pulse that are no sparkline."""
_NAME = 20
_VALUE = 9
_QUESTION = 64
_REQUESTED_FROM = 120
"""Cells from which on every row has its question; narrower, the one under the cursor has it."""
_APART = 16
"""Dots from one update to the next while there are few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One place of the pulse."""

    name: str
    """Short name in the snapshot's `policy`."""
    label: str
    tiny: str
    """At most five cells, for compact."""


CELLS: Final = (
    Cell(name="return", label="return", tiny="ret"),
    Cell(name="kl_divergence", label="KL", tiny="KL"),
    Cell(name="entropy", label="entropy", tiny="ent"),
    Cell(name="explained_variance", label="expl var", tiny="ev"),
    Cell(name="clip_fraction", label="clip", tiny="clip"),
    Cell(name="grad_norm", label="grad", tiny="grad"),
    Cell(name="learning_rate", label="lr", tiny="lr"),
    Cell(name="update_time", label="update", tiny="upd"),
    Cell(name="value_loss", label="val loss", tiny=""),
)
BARS: Final = 10
"""Updates of a sparkline at 120 cells."""
_ARROWS: Final = {"up": "↑", "down": "↓", "flat": "→"}
_WORDS: Final = {"ok": ("OK", Role.TEXT), "warning": ("WARN", Role.WARN), "critical": ("CRIT", Role.CRIT)}
_NONE: Final = Reading()
_NUMBER: Final = re.compile(r"^[-+]?[\d.,]+(e[-+]?\d+)?[kMGT]?")


def pulse(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """Title and three rows of three cells; in compact two rows of four, without a title."""
    old = ctx.fresh.old
    if ctx.compact:
        drawn = [_tiny(cell, snapshot.policy.get(cell.name, _NONE), old=old) for cell in CELLS if cell.tiny]
        return [fit([s for cell in drawn[i : i + 4] for s in cell], ctx.width) for i in (0, 4)]
    drawn = [_full(cell, snapshot, ctx) for cell in CELLS]
    rows = [[s for cell in drawn[i : i + 3] for s in cell] for i in range(0, len(drawn), 3)]
    return [rule("POLICY PULSE", _note(snapshot, ctx), ctx.width), *(fit(row, ctx.width) for row in rows)]


def _note(snapshot: Snapshot, ctx: Context) -> list[Span]:
    run = snapshot.run
    if run.update is None:
        return [Span(f"no update yet · preset {clean(run.preset)}", Role.MUTED)]
    ages = (snapshot.policy[cell.name].age_s for cell in CELLS if cell.name in snapshot.policy)
    newest = next((known for known in ages if known is not None), None)
    ago = "" if newest is None else f", {age(newest + ctx.waited_s)} ago"
    ago = ", END" if ctx.fresh.state == "ended" else ago
    bars = " · bars: whole run" if run.run_id in ctx.ui.charts.histories else ""
    text = f"update {run.update:,}{ago}{bars} · preset {clean(run.preset)} · last column: limit in use"
    return [Span(text, Role.MUTED)]


def judged(reading: Reading, *, old: bool, width: int = 7) -> list[Span]:
    """Value in `width` cells, arrow and status, 7 cells more."""
    word, role = _WORDS.get(reading.status, ("", Role.TEXT))
    word = "" if reading.limit is None and reading.status == "ok" else word
    value = _value(reading, width, old=old, compact=False)
    return [value, _arrow(reading), Span(" "), Span(left(word, 5), role)]


def _full(cell: Cell, snapshot: Snapshot, ctx: Context) -> Line:
    reading, width = snapshot.policy.get(cell.name, _NONE), ctx.width // 3
    bars = past.bars(snapshot, ctx.ui.charts, cell.name)
    limit = clean(reading.limit.text) if reading.limit and reading.status != "absent" else ""
    wide = max(10, width - _BESIDE)
    spans = [
        Span(left(cell.label, 9), Role.MUTED),
        *judged(reading, old=ctx.fresh.old),
        *sparkline(resampled(bars or reading.history, wide), wide, reading.scale),
        Span(" " + left(limit, 5), Role.MUTED),
    ]
    return fit(spans, width)


def _tiny(cell: Cell, reading: Reading, *, old: bool) -> Line:
    word, role = _WORDS.get(reading.status, ("", Role.TEXT))
    letter = word[:1] if reading.status in ("warning", "critical") else " "
    return (
        Span(left(cell.tiny, 5), Role.MUTED),
        _value(reading, 7, old=old, compact=True),
        _arrow(reading),
        Span(letter or " ", role),
        *sparkline(reading.history[-5:], 5, reading.scale),
        Span(" "),
    )


def _value(reading: Reading, width: int, *, old: bool, compact: bool) -> Span:
    text = clean(reading.text)
    if compact:
        text = text.removesuffix("max")
    if compact or len(text) + old > width:
        text = text.replace("e-0", "e-").replace("e+0", "e")
    if len(text) + old > width:
        text = no_zero(text)
    if len(text) + old > width:
        text = _shortened(reading, text, width - old)
    if text in (ABSENT, "n/a"):
        return Span(right(text, width), Role.MUTED)
    if reading.non_finite is not None:
        return Span(right(text, width), Role.CRIT)
    if old:
        return Span(right(f"~{text}", width), Role.STALE)
    return Span(right(text, width), _WORDS[reading.status][1] if reading.status in _WORDS else Role.TEXT)


def _shortened(reading: Reading, text: str, room: int) -> str:
    """A value in fewer cells: with a prefix or an exponent, since digits that are cut are another value."""
    if reading.value is None or reading.non_finite is not None:
        return text
    behind = _NUMBER.sub("", text)
    sign, scale = "+" if text.startswith("+") else "", 100 if behind.startswith("%") else 1
    return next(
        (
            found
            for suffix in (behind, "")
            if len(found := number(scale * reading.value, f"{sign}.3f", room - len(suffix)) + suffix) <= room
        ),
        text,
    )


def _arrow(reading: Reading) -> Span:
    mark = _ARROWS.get(reading.trend or "", " ")
    if reading.trend == "flat" or reading.direction is None:
        return Span(mark, Role.MUTED)
    return Span(mark, Role.GOOD if reading.trend == reading.direction else Role.BAD)


def names(snapshot: Snapshot) -> tuple[str, ...]:
    """The readings in the page's order: those of the pulse first, then the others that have a value."""
    first = [cell.name for cell in CELLS if cell.name in snapshot.policy]
    rest = (name for name, reading in snapshot.policy.items() if reading.status != "absent")
    return tuple(dict.fromkeys((*first, *rest)))


def page(snapshot: Snapshot, history: History, ctx: Context, rows: int) -> Frame:
    """Exactly `rows` lines: a title, the readings, and the chart of the one under the cursor."""
    found = names(snapshot)
    note = f"{len(found)} readings · preset {clean(snapshot.run.preset)}"
    lines = [rule("POLICY", [Span(note, Role.MUTED)], ctx.width)]
    if not found:
        lines.append(fit([Span("  no update yet", Role.MUTED)], ctx.width))
        return Frame(lines=[*lines, *[blank(ctx.width)] * (rows - len(lines))][:rows])
    tall = max(4, min(rows // 2 - 1, max(14, rows - 3 - len(found))))
    shown = lists.window(ctx.ui.picked, len(found), max(1, rows - 2 - tall))
    for place in shown:
        name = found[place]
        row = _row(name, snapshot.policy[name], history, ctx)
        lines.append(lists.marked(row, ctx.width, here=place == ctx.ui.picked))
    lines += [blank(ctx.width)] * (rows - tall - 1 - len(lines))
    name = found[min(ctx.ui.picked, len(found) - 1)]
    question = fit([Span(f" {asks(name)}", Role.INFO)], ctx.width)
    tall -= 1
    lines += [question, *chart(name, snapshot.policy[name], history, ctx, tall)]
    return Frame(lines=lines[:rows], targets=lists.targets_of(1, shown))


def _row(name: str, reading: Reading, history: History, ctx: Context) -> list[Span]:
    """Wide terminals show more updates than a snapshot carries."""
    bars = max(
        10, min(60, ctx.width - _NAME - _VALUE - 40 - (_QUESTION if ctx.width >= _REQUESTED_FROM else 0))
    )
    values = history.of(name)
    limit = "" if reading.limit is None else clean(reading.limit.text)
    spread = "" if reading.spread is None else f"  ranks differ by {short(reading.spread)}"
    # What the row answers, as far as there is room for it beside the row.
    room = ctx.width - 1 - _NAME - _VALUE - 19 - bars - cells(spread)
    has_question = ctx.width >= _REQUESTED_FROM and room > 20
    return [
        Span(f" {left(cut_middle(clean(reading.label or name), _NAME), _NAME)} "),
        *judged(reading, old=ctx.fresh.old, width=_VALUE),
        *sparkline(values if len(values) > len(reading.history) else reading.history, bars, reading.scale),
        Span(f" {left(limit, 8)}{spread}", Role.MUTED),
        *([Span(f"  {cut(asks(name), room - 2)}", Role.MUTED)] if has_question else []),
    ]


def asks(name: str) -> str:
    """What a row answers, in the catalogue's words; nothing for numbers that are not in it."""
    part = head_of(name)
    if part is not None:
        return f"{part[0].asks} Of the {part[0].parts} {clean(part[1])}."
    row = row_of(name)
    return "" if row is None else row.asks


def chart(name: str, reading: Reading, history: History, ctx: Context, rows: int) -> list[Line]:
    """A title and `rows` lines; the limit in use is a line of its own where it is in sight."""
    values = history.of(name) or reading.history
    limit = None if reading.limit is None else reading.limit.value
    low, high = scale(values, limit)
    wide = max(4, ctx.width - 11)
    seen = min(len(values), 2 * wide)
    apart = max(1, min(_APART, 2 * wide // max(1, len(values))))
    values = tuple(value for value in values for _ in range(apart))
    note = [Span(f"the last {seen} updates", Role.MUTED)]
    title = rule(clean(reading.label or name).upper(), note, ctx.width)
    if limit is None or reading.limit is None:
        drawn = dotted(values, wide, rows, (low, high))
    else:
        at = rows - 1 - round((limit - low) / (high - low) * (rows - 1))
        drawn = dotted(values, wide, rows, (low, high), {at: clean(reading.limit.text)})
        mark, gap, dots = drawn[at]
        runs = re.findall(f"{NO_DOT}+|[^{NO_DOT}]+", dots.text)
        drawn[at] = [
            mark,
            gap,
            *(Span("─" * len(one), Role.WARN) if one[0] == NO_DOT else Span(one) for one in runs),
        ]
    return [title, *(fit(spans, ctx.width) for spans in drawn)]
