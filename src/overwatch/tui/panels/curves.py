"""The page of curves: every number of the run as a chart of its whole past, with one cursor over all of them.

Owns the grid: as many charts as have room, each with its value, verdict and limits in its title. Pure.
"""

from dataclasses import dataclass
from typing import Final

from overwatch.snapshot import Snapshot
from overwatch.snapshot.history import Curve
from overwatch.tui import charts as past
from overwatch.tui.charts import Charts
from overwatch.tui.context import Context
from overwatch.tui.curve import Other, Plot, draw, formatted, reading
from overwatch.tui.panels import parting
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, fit, rule, width_of

LEAST_WIDE: Final = 38
"""Cells of a chart in the grid."""
LEAST_HIGH: Final = 6
"""Rows of a chart, its title and axis among them."""
HEAD: Final = 4
"""Lines of the page that are no charts: the head of the run, the title, and the key line."""
_BARE: Final = 3
"""Rows of a chart that has no room for its time axis."""
_STATUS: Final = {"ok": ("OK", Role.OK), "warning": ("WARN", Role.WARN), "critical": ("CRIT", Role.CRIT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Which charts are in sight, and how large they are."""

    names: tuple[str, ...]
    """All that pass the pattern."""
    first: int
    across: int
    down: int
    wide: int
    high: int
    picked: int

    @property
    def many(self) -> int:
        """Charts of a page."""
        return self.across * self.down

    @property
    def shown(self) -> tuple[str, ...]:
        """Those of this page."""
        return self.names[self.first : self.first + self.many]


def layout(snapshot: Snapshot, charts: Charts, width: int, height: int, head: int = HEAD) -> Grid:
    """The grid of a terminal."""
    found = past.names(snapshot, charts)
    picked = max(0, min(charts.picked, len(found) - 1))
    rows = max(1, height - head)
    if charts.whole:
        return Grid(names=found, first=picked, across=1, down=1, wide=width, high=rows, picked=picked)
    across = max(1, min(width // LEAST_WIDE, len(found), 4))
    down = max(1, min(rows // LEAST_HIGH, -(-len(found) // across)))
    page = picked // (across * down)
    return Grid(
        names=found, first=page * across * down, across=across, down=down, wide=width // across,
        high=rows // down, picked=picked,
    )  # fmt: skip


def render(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines."""
    charts = ctx.ui.charts
    grid = layout(snapshot, charts, ctx.width, rows, 1)
    lines = [_title(snapshot, grid, ctx)]
    if not grid.names:
        why = (
            f"no number passes {clean(charts.pattern)!r}" if charts.pattern else "no number was received yet"
        )
        lines.append(fit([Span(f"  {why}; :curves alone shows all", Role.MUTED)], ctx.width))
    shown = [past.curve(snapshot, charts, name) for name in grid.shown]
    whole = past.span(snapshot, charts, tuple(shown))
    for begin in range(0, len(shown), grid.across):
        row = shown[begin : begin + grid.across]
        drawn = [
            _cell(snapshot, ctx, grid, one, whole, here=grid.first + begin + place == grid.picked)
            for place, one in enumerate(row)
        ]
        lines += [fit([s for part in parts for s in part], ctx.width) for parts in zip(*drawn, strict=True)]
    return [*lines, *[blank(ctx.width)] * (rows - len(lines))][:rows]


def _title(snapshot: Snapshot, grid: Grid, ctx: Context) -> Line:
    charts = ctx.ui.charts
    history = charts.histories.get(snapshot.run.run_id)
    pages, page = -(-len(grid.names) // max(1, grid.many)), grid.first // max(1, grid.many) + 1
    words = [f"{len(grid.names)} numbers"]
    words += [f"page {page} of {pages}"] if pages > 1 else []
    words += [f"only {clean(charts.pattern)}"] if charts.pattern else []
    words += ["log scale"] if charts.log else []
    words += [f"over them: {charts.overlay}"] if charts.overlay != past.OVERLAYS[0] else []
    words.append(f"{charts.window[0]:.0%} to {charts.window[1]:.0%}" if charts.zoomed else "whole run")
    words += [f"{len(history.cut)} names cut"] if history is not None and history.cut else []
    words += ["waiting for the past"] if history is None else []
    return rule("CURVES", [Span(" · ".join(words), Role.MUTED)], ctx.width)


def _cell(
    snapshot: Snapshot, ctx: Context, grid: Grid, one: Curve, whole: tuple[float, float], *, here: bool
) -> list[Line]:
    charts = ctx.ui.charts
    begin, end = past.within(whole, charts)
    if parting.is_drawn_as(one.name, snapshot) and charts.overlay == past.OVERLAYS[0]:
        room = parting.Room(
            width=grid.wide - 1, rows=max(2, grid.high), begin=begin, end=end,
            cursor=past.at_cursor(whole, charts), axis=grid.high > _BARE,
        )  # fmt: skip
        return [fit(line, grid.wide) for line in parting.render(snapshot, ctx, room)]
    over = past.others(snapshot, charts, one.name)
    plot = Plot(
        width=grid.wide - 1, rows=max(1, grid.high - 1), begin=begin, end=end,
        moments=past.moments(snapshot, charts), cursor=past.at_cursor(whole, charts), log=charts.log,
        axis=grid.high > _BARE, zoomed=charts.zoomed or charts.log, others=over,
    )  # fmt: skip
    lines = [titled(one, plot, over, here=here), *draw(one, plot)]
    return [fit(line, grid.wide) for line in lines]


def titled(one: Curve, plot: Plot, over: tuple[Other, ...] = (), *, here: bool = False) -> Line:
    """The line over a chart: name, value, verdict; then what is read at the cursor, or limits."""
    word, role = _STATUS.get(one.status, ("", Role.TEXT))
    name = Span(clean(one.label).upper(), Role.ACCENT if here else Role.TITLE)
    start = [Span("─ ", Role.MUTED), name, Span(" "), Span(clean(one.text)), Span(" ")]
    start += [Span(word, role), Span(" ")] if word and (one.limits or one.status != "ok") else []
    words = [f"{other.letter} {clean(other.curve.text)}" for other in over]
    words += [_read(one, plot.cursor)] if plot.cursor is not None else _notes(one)
    room = plot.width - width_of(start) - 3
    while words and cells(" ".join(words)) > room:
        words.pop()
    end = [Span(f" {' '.join(words)} ─" if words else "─", Role.MUTED)]
    fill = plot.width - width_of(start) - width_of(end)
    return fit([*start, Span("─" * max(0, fill), Role.MUTED), *end], plot.width)


def _notes(one: Curve) -> list[str]:
    """Limits, or the best where there are none, and how many samples were not finite."""
    words = [clean(line.text) for line in one.limits]
    if one.best is not None and one.direction == "up" and not words:
        where = "" if one.best_update is None else f" @{one.best_update:,}"
        words.append(f"best {formatted(one, one.best)}{where}")
    return [*words, f"{one.non_finite:,} not finite"] if one.non_finite else words


def _read(one: Curve, at: float | None) -> str:
    place = None if at is None else reading(one, at)
    if place is None:
        return "–"
    low, high = formatted(one, one.low[place]), formatted(one, one.high[place])
    number = one.update[place]
    where = "" if number is None else f"@{number:,} "
    return f"{where}{low}" if low == high else f"{where}{low} to {high}"
