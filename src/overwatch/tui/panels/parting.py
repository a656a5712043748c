"""Proxy and true return in one chart, the gap between them shaded, and beside it what is eaten.

Owns how two returns of any scales come into one chart: each on the range that it had in what is shown. Only
where a proxy is reported. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from overwatch.catalog.goodhart import FOOD, POISON, PROXY, TRUE
from overwatch.snapshot import Parting, Snapshot
from overwatch.snapshot.history import Curve
from overwatch.tui import charts as past
from overwatch.tui.charts import Charts
from overwatch.tui.context import Context
from overwatch.tui.curve import Other, Plot, draw, formatted, reading
from overwatch.tui.grammar import sparkline
from overwatch.tui.text import Line, Role, Span, clean, fit, rule

_BESIDE: Final = 100
"""Cells from which on the shares have a chart of their own."""
_SHARES: Final = 3
"""Parts of the width, of which they have one."""
_WORDY: Final = 92
"""Cells from which on the title has the state in words."""
_TITLED: Final = 76
"""Cells from which on it has both values."""
_BARS: Final = 10
_WORDS: Final = {"parted": Role.WARN, "parting": Role.INFO, "together": Role.OK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Where a chart is drawn."""

    width: int
    rows: int
    """With its title."""
    begin: float
    end: float
    cursor: float | None = None
    axis: bool = True


def is_drawn_as(name: str, snapshot: Snapshot) -> bool:
    """Whether the chart of this number is the one of both returns."""
    return name == PROXY.short and snapshot.parting is not None


def strip(snapshot: Snapshot, ctx: Context) -> list[Line]:
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
    return [Span(gap), Span(f"{clean(word)} ", _WORDS.get(known.state, Role.MUTED)), Span(clean(known.text))]


def render(snapshot: Snapshot, ctx: Context, room: Room) -> list[Line]:
    """Exactly `room.rows` lines of `room.width` cells."""
    shares = room.width // _SHARES if room.width >= _BESIDE and FOOD.short in snapshot.policy else 0
    left = replace(room, width=room.width - shares)
    lines = _returns(snapshot, ctx, left)
    if not shares:
        return lines
    beside = _eaten(snapshot, ctx, replace(room, width=shares))
    return [fit((*one, *other), room.width) for one, other in zip(lines, beside, strict=True)]


def _returns(snapshot: Snapshot, ctx: Context, room: Room) -> list[Line]:
    charts, known = ctx.ui.charts, snapshot.parting
    proxy, true = (past.curve(snapshot, charts, row.short) for row in (PROXY, TRUE))
    read = _reader(room.cursor)
    is_titled = room.width >= _TITLED or room.cursor is not None
    title = "PROXY AND TRUE RETURN" if is_titled else "PROXY, TRUE"
    note = [Span("proxy ", Role.MUTED), Span(read(proxy)), Span(" · true ", Role.MUTED)]
    note = [*note, Span(read(true), Role.STAGE_NEW), Span(" · ")] if is_titled else []
    spans = [] if known is None else _state(known)
    note += spans if room.width >= _WORDY or (known and known.state == "no-true-signal") else spans[:2]
    plot = _plot(snapshot, charts, room)
    over = (Other(letter="t", curve=_placed(true), begin=plot.begin),) if true.samples else ()
    return [_titled(title, note, room), *draw(_placed(proxy), replace(plot, others=over))]


def _eaten(snapshot: Snapshot, ctx: Context, room: Room) -> list[Line]:
    """Shares of food and poison in what was eaten, on a scale of all of it."""
    charts = ctx.ui.charts
    food, poison = (past.curve(snapshot, charts, row.short) for row in (FOOD, POISON))
    read = _reader(room.cursor)
    note = [Span("food ", Role.MUTED), Span(read(food)), Span(" · poison ", Role.MUTED)]
    note += [Span(read(poison), Role.STAGE_NEW), Span(" ")]
    plot = replace(_plot(snapshot, charts, room), gap=False)
    over = (Other(letter="p", curve=poison, begin=plot.begin),) if poison.samples else ()
    whole = msgspec.structs.replace(food, scale=(0.0, 1.0), fmt=".0%")
    return [_titled("EATEN", note, room), *draw(whole, replace(plot, others=over))]


def _titled(title: str, note: list[Span], room: Room) -> Line:
    return fit(rule(title, note, room.width), room.width)


def _reader(cursor: float | None) -> Callable[[Curve], str]:
    """The newest value as shown, or the one under the cursor."""

    def read(curve: Curve) -> str:
        place = None if cursor is None else reading(curve, cursor)
        return clean(curve.text) if place is None else formatted(curve, curve.high[place])

    return read


def _plot(snapshot: Snapshot, charts: Charts, room: Room) -> Plot:
    return Plot(
        width=room.width, rows=max(1, room.rows - 1), begin=room.begin, end=room.end, cursor=room.cursor,
        moments=past.moments(snapshot, charts), axis=room.axis, gap=True,
    )  # fmt: skip


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
