"""Beside board and feed on a wide terminal: the return, the two worst rows, and the env under the cursor.

Owns which charts there are, and how wide the board is beside them. Pure.
"""

from dataclasses import replace
from typing import Final

from overwatch.snapshot import Snapshot, Trend
from overwatch.tui.chart import braille, scale
from overwatch.tui.context import Context
from overwatch.tui.grammar import number
from overwatch.tui.panels import columns, learning
from overwatch.tui.text import Line, Role, Span, cells, clean, fit, right, rule

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


def fits(snapshot: Snapshot, ctx: Context) -> bool:
    """Whether there is room for charts, and anything to draw beside a board."""
    is_large = ctx.width >= LEAST_WIDTH and ctx.height >= LEAST_HEIGHT
    return is_large and bool(learning.names(snapshot)) and not learning.wanted(snapshot)


def board_width(snapshot: Snapshot, ctx: Context) -> int:
    """As wide as its longest reasons need it; the rest goes to the charts."""
    reasons = (" · ".join(map(clean, env.anomaly.reasons)) for env in snapshot.envs)
    room = columns.layout(snapshot, replace(ctx, width=_BOARD)).why
    more = max(0, max(map(cells, reasons), default=0) - room)
    return min(_BOARD + -(-more // _STEP) * _STEP, ctx.width - _CHARTS - 1)


def render(snapshot: Snapshot, ctx: Context, rows: int) -> list[Line]:
    """Exactly `rows` lines of `ctx.width` cells."""
    trend = _env(snapshot)
    if trend is None:
        return learning.beside(snapshot, ctx, rows)
    tall = min(_TALLEST, rows // 4)
    return [*learning.beside(snapshot, ctx, rows - tall), *_own(snapshot, trend, ctx, tall - 1)]


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
