"""Beside board and feed on a wide terminal: the return, the two worst rows, and the env under the cursor.

Owns which charts there are, and how wide the board is beside them. Pure. Draws what this terminal has seen.
"""

from dataclasses import replace
from typing import Final

from overwatch.snapshot import Snapshot, Trend
from overwatch.tui.chart import braille, scale
from overwatch.tui.context import Context
from overwatch.tui.grammar import number
from overwatch.tui.panels import columns, policy, pulse
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, fit, right, rule

LEAST_WIDTH: Final = 180
LEAST_HEIGHT: Final = 40
_BOARD: Final = 120
"""Cells of the board at the least."""
_CHARTS: Final = 48
"""Cells of the charts at the least."""
_STEP: Final = 10
"""The board grows by so many cells at a time, so that it does not move with every reason."""
_TALLEST: Final = 14
_AXIS: Final = 9
_RANK: Final = {"critical": 0, "warning": 1}


def fits(snapshot: Snapshot, ctx: Context) -> bool:
    """Whether there is room for charts, and anything to draw."""
    return ctx.width >= LEAST_WIDTH and ctx.height >= LEAST_HEIGHT and bool(rows_of(snapshot))


def board_width(snapshot: Snapshot, ctx: Context) -> int:
    """As wide as its longest reasons need it; the rest goes to the charts."""
    reasons = (" · ".join(map(clean, env.anomaly.reasons)) for env in snapshot.envs)
    room = columns.layout(snapshot, replace(ctx, width=_BOARD)).why
    more = max(0, max(map(cells, reasons), default=0) - room)
    return min(_BOARD + -(-more // _STEP) * _STEP, ctx.width - _CHARTS - 1)


def rows_of(snapshot: Snapshot) -> tuple[str, ...]:
    """The return, and the two rows that are worst; of those that are alike the first of the pulse."""
    named = (cell.name for cell in pulse.CELLS)
    known = [name for name in dict.fromkeys((*named, *snapshot.policy)) if _is_there(snapshot, name)]
    worst = sorted(
        (name for name in known if name != "return"),
        key=lambda name: _RANK.get(snapshot.policy[name].status, 2),
    )
    return tuple([*(name for name in known if name == "return"), *worst][:3])


def _is_there(snapshot: Snapshot, name: str) -> bool:
    reading = snapshot.policy.get(name)
    return reading is not None and reading.status != "absent"


def render(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines of `ctx.width` cells."""
    names = rows_of(snapshot)
    own = _env(snapshot)
    tall = min(_TALLEST, max(3, rows // (len(names) + (own is not None))) - 1)
    lines: list[Line] = []
    for name in names:
        lines += policy.chart(name, snapshot.policy[name], ctx.ui.history, ctx, tall)
    if own is not None:
        lines += _own(snapshot, own, ctx, tall)
    return [*lines, *[blank(ctx.width)] * (rows - len(lines))][:rows]


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
    wide = max(4, ctx.width - _AXIS - 2)
    note = [Span(f"{clean(trend.window)}{band}", Role.MUTED)]
    lines = [rule(f"ENV {env_id} RETURN", note, ctx.width)]
    marks = {0: f"{high:.3g}", rows - 1: f"{low:.3g}"}
    apart = max(1, 2 * wide // max(1, len(trend.values)))
    values = tuple(value for value in trend.values for _ in range(apart))
    for place, dots in enumerate(braille(values, wide, rows, (low, high))):
        lines.append(fit([Span(f"{right(marks.get(place, ''), _AXIS)} ", Role.MUTED), Span(dots)], ctx.width))
    return lines
