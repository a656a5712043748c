"""Policy pulse: nine policy values with status, sparkline and limit in use; eight short ones in compact."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from overwatch.snapshot import Reading, Snapshot
from overwatch.tui import charts as past
from overwatch.tui.cache import kept
from overwatch.tui.charts import resampled
from overwatch.tui.context import Context
from overwatch.tui.grammar import ABSENT, age, no_zero, sparkline
from overwatch.tui.text import Line, Role, Span, clean, fit, left, right, rule

ROWS: Final = 3
_BESIDE: Final = 30
"""Cells of a place of the pulse that are no sparkline."""
Bars: TypeAlias = tuple[float | None, ...]


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


def render(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """Title and three rows of three cells; in compact two rows of four, without a title."""
    old = ctx.fresh.old
    if ctx.compact:
        cells = [_tiny(cell, _reading(cell, snapshot), old) for cell in CELLS if cell.tiny]
        return [fit([s for cell in cells[i : i + 4] for s in cell], ctx.width) for i in (0, 4)]
    pitch = ctx.width // 3
    lines = [rule("POLICY PULSE", _note(snapshot, ctx), ctx.width)]
    for row in range(ROWS):
        drawn = [
            _full(cell, _reading(cell, snapshot), old, pitch, past.bars(snapshot, ctx.ui.charts, cell.name))
            for cell in CELLS[3 * row : 3 * row + 3]
        ]
        lines.append(fit([span for cell in drawn for span in cell], ctx.width))
    return lines


def _reading(cell: Cell, snapshot: Snapshot) -> Reading:
    """Without its age, which goes on while nothing changes."""
    known = snapshot.policy.get(cell.name)
    return _NONE if known is None else replace(known, age_s=None)


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


@kept
def _full(cell: Cell, reading: Reading, old: bool, width: int, bars: Bars) -> Line:  # noqa: FBT001 (kept by position)
    limit = clean(reading.limit.text) if reading.limit and reading.status != "absent" else ""
    wide = max(10, width - _BESIDE)
    spans = [
        Span(left(cell.label, 9), Role.MUTED),
        *judged(reading, old=old),
        *sparkline(resampled(bars or reading.history, wide), wide, reading.scale),
        Span(" " + left(limit, 5), Role.MUTED),
    ]
    return fit(spans, width)


@kept
def _tiny(cell: Cell, reading: Reading, old: bool) -> Line:  # noqa: FBT001 (kept by position)
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
    if text in (ABSENT, "n/a"):
        return Span(right(text, width), Role.MUTED)
    if reading.non_finite is not None:
        return Span(right(text, width), Role.CRIT)
    if old:
        return Span(right(f"~{text}", width), Role.STALE)
    return Span(right(text, width), _WORDS[reading.status][1] if reading.status in _WORDS else Role.TEXT)


def _arrow(reading: Reading) -> Span:
    mark = _ARROWS.get(reading.trend or "", " ")
    if reading.trend == "flat" or reading.direction is None:
        return Span(mark, Role.MUTED)
    return Span(mark, Role.GOOD if reading.trend == reading.direction else Role.BAD)
