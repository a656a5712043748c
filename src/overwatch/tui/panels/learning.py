"""Curves of the return and of what is worst: in the board's place or beside it.

Owns which numbers, how large, and how wide the board is beside them. Pure.
"""

from dataclasses import replace
from typing import Final

from overwatch.snapshot import Snapshot, Trend
from overwatch.snapshot.history import Curve
from overwatch.tui import charts as past
from overwatch.tui.charts import FIRST
from overwatch.tui.context import Context
from overwatch.tui.curve import Plot, braille, draw, scale
from overwatch.tui.grammar import number
from overwatch.tui.panels import parting
from overwatch.tui.panels import rows as rows_of
from overwatch.tui.panels.curves import titled
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, fit, right, rule

MOST: Final = 10
"""Numbers that are drawn."""
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
_VALUES: Final = 9


def wanted(snapshot: Snapshot) -> bool:
    """Whether there is nothing for a board, and something to draw."""
    board = snapshot.board
    no_envs = not snapshot.envs and not board.groups and board.filter is None
    return no_envs and bool(names(snapshot))


def names(snapshot: Snapshot) -> tuple[str, ...]:
    """The numbers that are drawn, the most important first."""
    reported = {
        name: None
        for name, reading in snapshot.policy.items()
        if reading.value is not None or reading.non_finite is not None
    }
    both = [name for name in reported if parting.is_drawn_as(name, snapshot)]
    reported = {name: None for name in reported if not both or name not in past.WITH_PROXY}
    return tuple(dict.fromkeys((*both, *(name for name in FIRST if name in reported), *reported)))[:MOST]


def render(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines."""
    charts = ctx.ui.charts
    curves = [past.curve(snapshot, charts, name) for name in names(snapshot)]
    begin, end = past.span(snapshot, charts, tuple(curves))
    hint = fit([Span(f" {_HINT}", Role.MUTED)], ctx.width)
    room = rows - 1
    across = max(1, ctx.width // _WIDE)
    rest = -(-(len(curves) - 1) // across)
    small = min(rest, max(0, (room - max(_LEAST + 2, room // 2)) // _LEAST))
    high = (room - max(_LEAST + 2, room // 2)) // small if small else 0
    lines = _chart(snapshot, ctx, curves[0], (ctx.width, room - small * high), (begin, end))
    for row in range(small):
        some = curves[1 + row * across : 1 + (row + 1) * across]
        wide = (
            ctx.width // max(1, len(some)) if row == small - 1 and len(some) < across else ctx.width // across
        )
        drawn = [_chart(snapshot, ctx, one, (wide, high), (begin, end)) for one in some]
        lines += [fit([s for part in parts for s in part], ctx.width) for parts in zip(*drawn, strict=True)]
    return [*lines, *[blank(ctx.width)] * (room - len(lines)), hint][:rows]


def beside(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """The return and the rows that are worst, one under another, in exactly `rows` lines."""
    charts = ctx.ui.charts
    many = max(1, min(3, rows // _BESIDE))
    curves = [past.curve(snapshot, charts, name) for name in worst(snapshot)[:many]]
    times = past.span(snapshot, charts, tuple(curves))
    lines: list[Line] = []
    for place, one in enumerate(curves):
        high = (rows - len(lines)) // (len(curves) - place)
        lines += _chart(snapshot, ctx, one, (ctx.width, high), times)
    return [*lines, *[blank(ctx.width)] * (rows - len(lines))][:rows]


def worst(snapshot: Snapshot) -> tuple[str, ...]:
    """The return, then the rows that are worst: critical ones, those that warn, then by their order."""
    order = {"critical": 0, "warning": 1}
    first, *rest = names(snapshot) or ("return",)
    return (first, *sorted(rest, key=lambda name: order.get(snapshot.policy[name].status, 2)))


def _chart(
    snapshot: Snapshot, ctx: Context, one: Curve, size: tuple[int, int], times: tuple[float, float]
) -> list[Line]:
    wide, high = size
    if parting.is_drawn_as(one.name, snapshot):
        narrow = wide - (wide < ctx.width)
        room = parting.Room(width=narrow, rows=max(2, high), begin=times[0], end=times[1], axis=high > _LEAST)
        return [fit(line, wide) for line in parting.render(snapshot, ctx, room)]
    plot = Plot(
        width=wide - (wide < ctx.width), rows=max(1, high - 1), begin=times[0], end=times[1],
        moments=past.moments(snapshot, ctx.ui.charts), axis=high > _LEAST,
    )  # fmt: skip
    return [fit(line, wide) for line in (titled(one, plot), *draw(one, plot))]


def fits_beside(snapshot: Snapshot, ctx: Context) -> bool:
    """Whether there is room for charts, and anything to draw beside a board."""
    is_large = ctx.width >= LEAST_WIDTH and ctx.height >= LEAST_HEIGHT
    return is_large and bool(names(snapshot)) and not wanted(snapshot)


def board_width(snapshot: Snapshot, ctx: Context) -> int:
    """As wide as its longest reasons need it; the rest goes to the charts."""
    reasons = (" · ".join(map(clean, env.anomaly.reasons)) for env in snapshot.envs)
    room = rows_of.layout(snapshot, replace(ctx, width=_BOARD)).why
    more = max(0, max(map(cells, reasons), default=0) - room)
    return min(_BOARD + -(-more // _STEP) * _STEP, ctx.width - _CHARTS - 1)


def beside_board(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines of `ctx.width` cells."""
    trend = _env(snapshot)
    if trend is None:
        return beside(snapshot, ctx, rows)
    tall = min(_TALLEST, rows // 4)
    return [*beside(snapshot, ctx, rows - tall), *_own(snapshot, trend, ctx, tall - 1)]


def _env(snapshot: Snapshot) -> Trend | None:
    """How the return of the selected env went."""
    detail = snapshot.detail
    trend = None if detail is None else detail.trends.get("return")
    return trend if trend is not None and any(value is not None for value in trend.values) else None


def _own(snapshot: Snapshot, trend: Trend, ctx: Context, rows: int) -> list[Line]:
    """The selected env's return, with the fleet's p10 to p90 at the axis."""
    env_id = snapshot.detail.env_id if snapshot.detail is not None else 0
    low, high = scale(trend.values, None)
    groups = [group for group in snapshot.board.groups if group.p10_return is not None]
    band = "".join(
        f" · fleet {number(group.p10_return, '+.2f', 7)} to {number(group.p90_return, '+.2f', 7)}"
        for group in groups[:1]
        if group.p10_return is not None and group.p90_return is not None
    )
    wide = max(4, ctx.width - _VALUES - 2)
    note = [Span(f"{clean(trend.window)}{band}", Role.MUTED)]
    lines = [rule(f"ENV {env_id} RETURN", note, ctx.width)]
    marks = {0: f"{high:.3g}", rows - 1: f"{low:.3g}"}
    apart = max(1, 2 * wide // max(1, len(trend.values)))
    values = tuple(value for value in trend.values for _ in range(apart))
    for place, dots in enumerate(braille(values, wide, rows, (low, high))):
        lines.append(
            fit([Span(f"{right(marks.get(place, ''), _VALUES)} ", Role.MUTED), Span(dots)], ctx.width)
        )
    return lines
