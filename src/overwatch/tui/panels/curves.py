"""Charts of the run's past: a page of all numbers, and what matters most in the board's place or beside it.

Owns the grid of the page, each chart with its value, verdict and limits in its title and one cursor over all;
which numbers matter most, and how wide the board is beside them; and how the proxy and the true return come
into one chart: each on the range that it had in what is shown, the gap between them shaded. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from overwatch.catalog.goodhart import FOOD, POISON, PROXY, TRUE
from overwatch.snapshot import Parting, Snapshot, Trend
from overwatch.snapshot.history import Curve
from overwatch.tui import charts as past
from overwatch.tui.charts import Charts
from overwatch.tui.context import Context
from overwatch.tui.curve import Other, Plot, dotted, draw, formatted, reading, scale
from overwatch.tui.grammar import number, sparkline
from overwatch.tui.panels import rows as rows_of
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

MOST: Final = 10
"""Numbers that are drawn in the board's place."""
_HINT: Final = "No envs are sent: run.envs(...) or run.episodes(...) adds the flight board"
_LEAST: Final = 4
_BESIDE: Final = 8
"""Rows of a chart beside the board, at the least."""
_WIDE: Final = 39
LEAST_WIDTH: Final = 180
LEAST_HEIGHT: Final = 40
_BOARD: Final = 120
"""Cells of the board at the least."""
_CHARTS: Final = 48
"""Cells of the charts at the least."""
_STEP: Final = 10
"""The board grows by so many cells at a time, so that it does not move with every reason."""
_TALLEST: Final = 14

_EATEN_FROM: Final = 100
"""Cells from which on the shares of what is eaten have a chart of their own."""
_SHARES: Final = 3
"""Parts of the width, of which they have one."""
_WORDY: Final = 92
"""Cells from which on the title of both returns has the state in words."""
_TITLED: Final = 76
"""Cells from which on it has both values."""
_BARS: Final = 10
_STATES: Final = {"parted": Role.WARN, "parting": Role.INFO, "together": Role.OK}


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
    """The page: exactly `rows` lines."""
    charts = ctx.ui.charts
    grid = layout(snapshot, charts, ctx.width, rows, 1)
    lines = [_page_title(snapshot, grid, ctx)]
    if not grid.names:
        no_such = f"no number passes {clean(charts.pattern)!r}"
        why = no_such if charts.pattern else "no number was received yet"
        lines.append(fit([Span(f"  {why}; :curves alone shows all", Role.MUTED)], ctx.width))
    shown = [past.curve(snapshot, charts, name) for name in grid.shown]
    whole = past.span(snapshot, charts, shown)
    begin, end = past.within(whole, charts)
    cursor = None if charts.cursor is None else whole[0] + (whole[1] - whole[0]) * charts.cursor
    plot = Plot(
        width=grid.wide - 1, rows=max(1, grid.high - 1), begin=begin, end=end, log=charts.log, cursor=cursor,
        moments=past.moments(snapshot, charts), axis=grid.high > _BARE, zoomed=charts.zoomed or charts.log,
    )  # fmt: skip
    together = charts.overlay == past.OVERLAYS[0]
    drawn = []
    for place, one in enumerate(shown, grid.first):
        over = past.others(snapshot, charts, one.name)
        cell = replace(plot, others=over)
        drawn.append(_chart(snapshot, charts, one, cell, here=place == grid.picked, together=together))
    lines += _side_by_side(drawn, grid.across, grid.wide, ctx.width)
    return [*lines, *[blank(ctx.width)] * (rows - len(lines))][:rows]


def _side_by_side(drawn: Sequence[list[Line]], across: int, wide: int, width: int) -> list[Line]:
    """Charts of one height, so many in a row, each in so many cells."""
    return [
        fit([span for line in parts for span in fit(line, wide)], width)
        for begin in range(0, len(drawn), across)
        for parts in zip(*drawn[begin : begin + across], strict=True)
    ]


def _page_title(snapshot: Snapshot, grid: Grid, ctx: Context) -> Line:
    charts = ctx.ui.charts
    history = charts.of(snapshot)
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


def _chart(
    snapshot: Snapshot, charts: Charts, one: Curve, plot: Plot, *, here: bool = False, together: bool = True
) -> list[Line]:
    """A number's chart under its title; that of both returns in the place of the proxy's alone."""
    if together and _has_both(one.name, snapshot):
        return _both(snapshot, charts, replace(plot, gap=True, log=False, zoomed=False, others=()))
    return [_title(one, plot, here=here), *draw(one, plot)]


def _title(one: Curve, plot: Plot, *, here: bool) -> Line:
    """The line over a chart: name, value, verdict; then what is read at the cursor, or limits."""
    word, role = _STATUS.get(one.status, ("", Role.TEXT))
    name = Span(clean(one.label).upper(), Role.ACCENT if here else Role.TITLE)
    start = [Span("─ ", Role.MUTED), name, Span(" "), Span(clean(one.text)), Span(" ")]
    start += [Span(word, role), Span(" ")] if word and (one.limits or one.status != "ok") else []
    words = [f"{other.letter} {clean(other.curve.text)}" for other in plot.others]
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


def _read(one: Curve, at: float) -> str:
    place = reading(one, at)
    if place is None:
        return "–"
    low, high = formatted(one, one.low[place]), formatted(one, one.high[place])
    number = one.update[place]
    where = "" if number is None else f"@{number:,} "
    return f"{where}{low}" if low == high else f"{where}{low} to {high}"


def _has_both(name: str, snapshot: Snapshot) -> bool:
    """Whether the chart of this number is the one of the proxy and the true return."""
    return name == PROXY.short and snapshot.parting is not None


def parting(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """Both returns in one line below the pulse; none without a proxy."""
    known = snapshot.parting
    if known is None or PROXY.short not in snapshot.policy or ctx.compact:
        return []
    spans = [Span(" "), *_state(known)]
    for row, read in ((row, snapshot.policy.get(row.short)) for row in (PROXY, TRUE, FOOD, POISON)):
        if read is not None:
            spans += [Span(f"   {row.label} ", Role.MUTED), Span(f"{clean(read.text)} ")]
            spans += sparkline(read.history[-_BARS:], _BARS, read.scale)
    return [fit(spans, ctx.width)]


def _state(known: Parting) -> list[Span]:
    word = "ABSTAINS" if known.state in ("no-true-signal", "waiting") else known.state.upper()
    gap = "" if known.gap is None else f"gap {known.gap:+.0%} "
    return [Span(gap), Span(f"{clean(word)} ", _STATES.get(known.state, Role.MUTED)), Span(clean(known.text))]


def _both(snapshot: Snapshot, charts: Charts, plot: Plot) -> list[Line]:
    """Proxy and true return in one chart, and beside it, where there is room, what is eaten."""

    def read(curve: Curve) -> str:
        place = None if plot.cursor is None else reading(curve, plot.cursor)
        return clean(curve.text) if place is None else formatted(curve, curve.high[place])

    shares = plot.width // _SHARES if plot.width >= _EATEN_FROM and FOOD.short in snapshot.policy else 0
    lines = _returns(snapshot, charts, replace(plot, width=plot.width - shares), read)
    if not shares:
        return lines
    beside = _eaten(snapshot, charts, replace(plot, width=shares, gap=False), read)
    return [fit((*one, *other), plot.width) for one, other in zip(lines, beside, strict=True)]


def _returns(snapshot: Snapshot, charts: Charts, plot: Plot, read: Callable[[Curve], str]) -> list[Line]:
    known = snapshot.parting
    proxy, true = (past.curve(snapshot, charts, row.short) for row in (PROXY, TRUE))
    is_titled = plot.width >= _TITLED or plot.cursor is not None
    note = [Span("proxy ", Role.MUTED), Span(read(proxy)), Span(" · true ", Role.MUTED)]
    note = [*note, Span(read(true), Role.STAGE_NEW), Span(" · ")] if is_titled else []
    spans = [] if known is None else _state(known)
    note += spans if plot.width >= _WORDY or (known and known.state == "no-true-signal") else spans[:2]
    over = (Other(letter="t", curve=_placed(true), begin=plot.begin),) if true.samples else ()
    title = rule("PROXY AND TRUE RETURN" if is_titled else "PROXY, TRUE", note, plot.width)
    return [title, *draw(_placed(proxy), replace(plot, others=over))]


def _eaten(snapshot: Snapshot, charts: Charts, plot: Plot, read: Callable[[Curve], str]) -> list[Line]:
    """Shares of food and poison in what was eaten, on a scale of all of it."""
    food, poison = (past.curve(snapshot, charts, row.short) for row in (FOOD, POISON))
    note = [Span("food ", Role.MUTED), Span(read(food)), Span(" · poison ", Role.MUTED)]
    note += [Span(read(poison), Role.STAGE_NEW), Span(" ")]
    over = (Other(letter="p", curve=poison, begin=plot.begin),) if poison.samples else ()
    whole = msgspec.structs.replace(food, scale=(0.0, 1.0), fmt=".0%")
    return [rule("EATEN", note, plot.width), *draw(whole, replace(plot, others=over))]


def _placed(curve: Curve) -> Curve:
    """The curve as places between its own lowest and highest; the middle where these are one."""
    seen = [value for column in (curve.low, curve.high) for value in column if value is not None]
    low, high = (min(seen), max(seen)) if seen else (0.0, 0.0)
    span = high / 2 - low / 2

    def place(value: float | None) -> float | None:
        return None if value is None else (value / 2 - low / 2) / span if span > 0 else 0.5

    return msgspec.structs.replace(
        curve, low=tuple(map(place, curve.low)), high=tuple(map(place, curve.high)),
        scale=(0.0, 1.0), limits=(), fmt=".0%",
    )  # fmt: skip


def replaces_board(snapshot: Snapshot) -> bool:
    """Whether there is nothing for a board, and something to draw."""
    board = snapshot.board
    return not snapshot.envs and not board.groups and board.filter is None and bool(names(snapshot))


def names(snapshot: Snapshot) -> tuple[str, ...]:
    """The numbers that are drawn without the page, the most important first."""
    reported = past.reported(snapshot)
    both = [name for name in reported if _has_both(name, snapshot)]
    reported = [name for name in reported if not both or name not in past.WITH_PROXY]
    first = (name for name in past.FIRST if name in reported)
    return tuple(dict.fromkeys((*both, *first, *reported)))[:MOST]


def worst(snapshot: Snapshot) -> tuple[str, ...]:
    """The return, then the rows that are worst: critical ones, those that warn, then by their order."""
    order = {"critical": 0, "warning": 1}
    first, *rest = names(snapshot) or ("return",)
    return (first, *sorted(rest, key=lambda name: order.get(snapshot.policy[name].status, 2)))


def in_place_of_board(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines: the most important number large, the others below."""
    curves = [past.curve(snapshot, ctx.ui.charts, name) for name in names(snapshot)]
    hint = fit([Span(f" {_HINT}", Role.MUTED)], ctx.width)
    room = rows - 1
    across = max(1, ctx.width // _WIDE)
    rest = -(-(len(curves) - 1) // across)
    large = max(_LEAST + 2, room // 2)
    small = min(rest, max(0, (room - large) // _LEAST))
    high = (room - large) // small if small else 0
    chart = _charts(snapshot, ctx, curves)
    lines = chart(curves[0], ctx.width, room - small * high)
    for row in range(small):
        some = curves[1 + row * across : 1 + (row + 1) * across]
        wide = ctx.width // (max(1, len(some)) if row == small - 1 else across)
        drawn = [chart(one, wide, high) for one in some]
        lines += _side_by_side(drawn, across, wide, ctx.width)
    return [*lines, *[blank(ctx.width)] * (room - len(lines)), hint][:rows]


def _charts(
    snapshot: Snapshot, ctx: Context, curves: Sequence[Curve]
) -> Callable[[Curve, int, int], list[Line]]:
    """What draws each of them on one axis of time, in so many cells and lines."""
    charts = ctx.ui.charts
    begin, end = past.span(snapshot, charts, curves)
    moments = past.moments(snapshot, charts)

    def chart(one: Curve, wide: int, high: int) -> list[Line]:
        plot = Plot(
            width=wide - (wide < ctx.width), rows=max(1, high - 1), begin=begin, end=end, moments=moments,
            axis=high > _LEAST,
        )  # fmt: skip
        return [fit(line, wide) for line in _chart(snapshot, charts, one, plot)]

    return chart


def fit_beside_board(snapshot: Snapshot, ctx: Context) -> bool:
    """Whether there is room for charts, and anything to draw beside a board."""
    is_large = ctx.width >= LEAST_WIDTH and ctx.height >= LEAST_HEIGHT
    return is_large and bool(names(snapshot)) and not replaces_board(snapshot)


def board_width(snapshot: Snapshot, ctx: Context) -> int:
    """As wide as its longest reasons need it; the rest goes to the charts."""
    reasons = (" · ".join(map(clean, env.anomaly.reasons)) for env in snapshot.envs)
    room = rows_of.layout(snapshot, replace(ctx, width=_BOARD)).why
    more = max(0, max(map(cells, reasons), default=0) - room)
    return min(_BOARD + -(-more // _STEP) * _STEP, ctx.width - _CHARTS - 1)


def beside_board(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines: the return and the rows that are worst, one under another.

    Below them the return of the selected env, with the fleet's p10 to p90.
    """
    trend = None if snapshot.detail is None else snapshot.detail.trends.get("return")
    if trend is not None and any(value is not None for value in trend.values):
        tall = min(_TALLEST, rows // 4)
        return [*_worst(snapshot, ctx, rows - tall), *_of_env(snapshot, trend, ctx, tall - 1)]
    return _worst(snapshot, ctx, rows)


def _worst(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    many = max(1, min(3, rows // _BESIDE))
    curves = [past.curve(snapshot, ctx.ui.charts, name) for name in worst(snapshot)[:many]]
    chart = _charts(snapshot, ctx, curves)
    lines: list[Line] = []
    for place, one in enumerate(curves):
        lines += chart(one, ctx.width, (rows - len(lines)) // (len(curves) - place))
    return [*lines, *[blank(ctx.width)] * (rows - len(lines))][:rows]


def _of_env(snapshot: Snapshot, trend: Trend, ctx: Context, rows: int) -> list[Line]:
    env_id = snapshot.detail.env_id if snapshot.detail is not None else 0
    groups = [group for group in snapshot.board.groups if group.p10_return is not None]
    band = "".join(
        f" · fleet {number(group.p10_return, '+.2f', 7)} to {number(group.p90_return, '+.2f', 7)}"
        for group in groups[:1]
        if group.p10_return is not None and group.p90_return is not None
    )
    wide = max(4, ctx.width - 11)
    title = rule(f"ENV {env_id} RETURN", [Span(f"{clean(trend.window)}{band}", Role.MUTED)], ctx.width)
    apart = max(1, 2 * wide // max(1, len(trend.values)))
    values = tuple(value for value in trend.values for _ in range(apart))
    drawn = dotted(values, wide, rows, scale(trend.values))
    return [title, *(fit(spans, ctx.width) for spans in drawn)]
