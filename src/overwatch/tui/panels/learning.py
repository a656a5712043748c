"""Curves in the board's place, for a run that sends no environments: the return large, then the others.

Owns which numbers and how large. Pure. Must not know boards.
"""

from typing import Final

from overwatch.snapshot import Snapshot
from overwatch.snapshot.history import Curve
from overwatch.tui import charts as past
from overwatch.tui.charts import FIRST
from overwatch.tui.context import Context
from overwatch.tui.curve import Plot, draw
from overwatch.tui.panels import parting
from overwatch.tui.panels.curves import titled
from overwatch.tui.text import Line, Role, Span, blank, fit

MOST: Final = 10
"""Numbers that are drawn."""
_HINT: Final = "No envs are sent: run.envs(...) or run.episodes(...) adds the flight board"
_LEAST: Final = 4
_BESIDE: Final = 8
"""Rows of a chart beside the board, at the least."""
_WIDE: Final = 39


def wanted(snapshot: Snapshot) -> bool:
    """Whether there is nothing for a board, and something to draw."""
    board = snapshot.board
    no_envs = not snapshot.envs and not board.groups and board.filter is None
    return no_envs and bool(names(snapshot))


def names(snapshot: Snapshot) -> tuple[str, ...]:
    """The numbers that are drawn, the most important first."""
    told = {
        name: None
        for name, reading in snapshot.policy.items()
        if reading.value is not None or reading.non_finite is not None
    }
    both = [name for name in told if parting.is_drawn_as(name, snapshot)]
    told = {name: None for name in told if not both or name not in past.WITH_PROXY}
    return tuple(dict.fromkeys((*both, *(name for name in FIRST if name in told), *told)))[:MOST]


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
