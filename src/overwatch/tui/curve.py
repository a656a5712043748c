"""Charts of braille dots, two samples a cell across, four levels a cell down.

A curve is one number over a whole run with its limits as dotted lines and findings on the time axis. It owns
the two scales: values on the row's own fixed ends or on round bounds, times from the run's begin. A column's
least and most are both drawn, so no spike is lost however short the chart is. What is missing is a gap. Pure.
Must not know snapshots, pages or keys. `to_ascii` draws a star for each cell that has a dot.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from overwatch.snapshot.history import Curve, Moment
from overwatch.tui.grammar import number, short
from overwatch.tui.text import Line, Role, Span, clean, fit, right

_BLANK: Final = 0x2800
NO_DOT: Final = chr(_BLANK)
"""A cell without a dot."""
_DOTS: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of the left and the right column, from the lowest dot up."""
AXIS: Final = 7
"""Cells of the labels at the left."""
_ENDS: Final = 9
"""The same of a chart without an axis of time."""
LIMIT: Final = "┈"
MARK: Final = "▲"
GAP: Final = "░"
"""Between a curve and the one that lies below it."""
LETTERS: Final = "abcdefgh"
_ROLES: Final = {"critical": Role.CRIT, "warning": Role.WARN, "info": Role.INFO}
_SEVERITIES: Final = {"critical": 2, "warning": 1}
_BESIDE: Final = (Role.STAGE_NEW, Role.STAGE_BLEND, Role.STAGE_HOLD, Role.STAGE_TRAIN, Role.STAGE_DONE)
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_APART: Final = 12
"""Cells from one label of the time axis to the next, at the least."""


def scale(values: Sequence[float | None], *also: float | None) -> tuple[float, float]:
    """Lowest and highest of the finite values and of what else has to be in sight; never the same."""
    finite = [one for one in (*values, *also) if one is not None and math.isfinite(one)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    least = 0.05 * max(abs(low), abs(high)) or 1e-9
    if high - low < least:
        middle = (low + high) / 2
        return middle - least / 2, middle + least / 2
    return low, high


def braille(
    values: Sequence[float | None], width: int, height: int, limits: tuple[float, float]
) -> list[str]:
    """`height` lines of `width` cells, newest value at the right; a gap where a value is missing.

    Values beyond the limits are drawn at their edge. Neighbours are joined by a vertical stroke.
    """
    shown = [one if one is not None and math.isfinite(one) else None for one in values[-2 * width :]]
    grid = _Grid(width, height)
    grid.trace([(x, one, one) for x, one in enumerate(shown, 2 * width - len(shown))], limits, Role.TEXT)
    return grid.dots


def dotted(
    values: Sequence[float | None],
    width: int,
    height: int,
    limits: tuple[float, float],
    marks: Mapping[int, str] = MappingProxyType({}),
) -> list[list[Span]]:
    """The same, each line behind its mark: the limits at both ends, and further ones by line."""
    known = {0: f"{limits[1]:.3g}", height - 1: f"{limits[0]:.3g}", **marks}
    lines = enumerate(braille(values, width, height, limits))
    return [
        [Span(right(known.get(place, ""), _ENDS), Role.MUTED), Span(" "), Span(dots)] for place, dots in lines
    ]


Columns: TypeAlias = Sequence[tuple[int, float | None, float | None]]
"""Dot column, least and most of each sample, from left to right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A curve that is drawn over another."""

    letter: str
    curve: Curve
    begin: float
    """Unix seconds that lie over the begin of the time axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """How a curve is drawn."""

    width: int
    rows: int
    """Of the chart, the time axis among them where there is one."""
    begin: float
    """Left end of the time axis, Unix seconds."""
    end: float
    moments: tuple[Moment, ...] = ()
    cursor: float | None = None
    """Unix seconds at which values are read."""
    log: bool = False
    axis: bool = True
    """With the time axis."""
    zoomed: bool = False
    """Values without a scale of their own fill the chart with what is in sight."""
    others: tuple[Other, ...] = ()
    gap: bool = False
    """Shade what is between the curve and the first of the others where it lies above that."""

    @property
    def wide(self) -> int:
        """Cells of the chart itself."""
        return max(1, self.width - AXIS - 1)

    @property
    def high(self) -> int:
        """Rows of the chart itself."""
        return max(1, self.rows - self.axis)

    def dot(self, at: float) -> int:
        """The column of dots of a time; beyond the ends for what is not in sight."""
        span = self.end - self.begin
        return round((at - self.begin) / span * (2 * self.wide - 1)) if span > 0 else 2 * self.wide - 1


@lru_cache(maxsize=64)
def draw(curve: Curve, plot: Plot) -> tuple[Line, ...]:
    """Exactly `plot.rows` lines of `plot.width` cells; a past that came once a second is drawn as often."""
    ends = bounds(curve, plot)
    grid = _Grid(plot.wide, plot.high, log=plot.log)
    own = _columns(curve, plot, 0.0)
    for place, other in enumerate(plot.others):
        columns = _columns(other.curve, plot, plot.begin - other.begin)
        if plot.gap and not place:
            grid.shade(own, columns, ends)
        grid.trace(columns, ends, _BESIDE[place % len(_BESIDE)])
    grid.trace(own, ends, _ROLES.get(curve.status, Role.TEXT))
    inside = [line for line in curve.limits if ends[0] <= line.value <= ends[1]]
    limits = {grid.row_of(line.value, ends): line.severity for line in inside}
    labels = {0: _label(curve, ends[1])}
    if plot.high > 1:
        labels[plot.high - 1] = _label(curve, ends[0])
        for line in inside:
            labels.setdefault(grid.row_of(line.value, ends), _label(curve, line.value))
    cursor = None if plot.cursor is None else min(plot.wide - 1, max(0, plot.dot(plot.cursor) // 2))
    lines: list[Line] = []
    for row in range(plot.high):
        mark = Span(right(labels.get(row, ""), AXIS), Role.MUTED)
        edge = Span("┤" if row in labels else "│", Role.MUTED)
        lines.append(fit([mark, edge, *grid.row(row, limits.get(row), cursor)], plot.width))
    return (*lines, _time_axis(curve, plot)) if plot.axis else tuple(lines)


def bounds(curve: Curve, plot: Plot) -> tuple[float, float]:
    """Lowest and highest of the chart: the row's own where all values are within, else round ones."""
    curves = [curve, *(other.curve for other in plot.others)]
    seen = [value for one in curves for value in _values(one, plot if plot.zoomed else None)]
    if plot.log:
        seen = [value for value in seen if value > 0]
    low, high = (min(seen), max(seen)) if seen else (0.0, 1.0)
    if curve.scale is not None and not plot.zoomed and not plot.log:
        if not seen or (curve.scale[0] <= low and high <= curve.scale[1]):
            return curve.scale
        low, high = min(low, curve.scale[0]), max(high, curve.scale[1])
    near = [line.value for line in curve.limits if low - (high - low) <= line.value <= high + (high - low)]
    if plot.log:
        near = [value for value in near if value > 0]
    low, high = min([low, *near]), max([high, *near])
    if plot.log:
        # Two ends that differ by a rounding may have one logarithm.
        is_range = low > 0 and math.log10(high) > math.log10(low)
        return (low, high) if is_range else (low / 2 or 0.5, high * 2 or 2.0)
    return round_bounds(low, high)


def round_bounds(low: float, high: float) -> tuple[float, float]:
    """The nearest ends of one or two digits around two values, never the same."""
    span = high - low
    least = 0.05 * max(abs(low), abs(high)) or 4.0
    if not math.isfinite(span):
        return low / 2, high / 2
    step = _step(max(span, least) / 5)
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    return (first, last) if last > first else (first, first + step)


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least)) if least > 1e-300 else 1e-300
    return next((power * step for step in _STEPS if power * step >= least), power * 10)


def _values(curve: Curve, within: Plot | None) -> Iterator[float]:
    for at, low, high in zip(curve.at, curve.low, curve.high, strict=True):
        if within is None or within.begin <= at <= within.end:
            yield from (value for value in (low, high) if value is not None)


def reading(curve: Curve, at: float) -> int | None:
    """The place of the column that a time falls into: the first that ends at or after it."""
    return min(bisect_left(curve.at, at - 1e-6), len(curve.at) - 1) if curve.at else None


def formatted(curve: Curve, value: float | None, width: int = 9) -> str:
    """A value as the row writes it."""
    return "–" if value is None else number(value, curve.fmt, width) + clean(curve.suffix)


def _columns(curve: Curve, plot: Plot, shift: float) -> Columns:
    """Dot column, least and most, merged where several fall into one; at most one of each column."""
    found: dict[int, tuple[float | None, float | None]] = {}
    for at, low, high in zip(curve.at, curve.low, curve.high, strict=True):
        x = plot.dot(at + shift)
        before = found.get(x, (None, None))
        found[x] = _merged(before[0], low, min), _merged(before[1], high, max)
    return [(x, low, high) for x, (low, high) in found.items()]


def _merged(one: float | None, other: float | None, pick: Callable[[float, float], float]) -> float | None:
    """The one of two that is picked; the one that is there where the other is missing."""
    if one is None or other is None:
        return other if one is None else one
    return pick(one, other)


class _Grid:
    """Cells of dots, each with the role of what was drawn into it last."""

    def __init__(self, width: int, height: int, *, log: bool = False) -> None:
        self._width, self._height, self._log = width, height, log
        self._bits = [[0] * width for _ in range(height)]
        self._roles = [[Role.TEXT] * width for _ in range(height)]
        self._shaded: set[tuple[int, int]] = set()

    def level(self, value: float, ends: tuple[float, float]) -> int:
        """The dot of a value, from the lowest up; those beyond the ends are at their edge."""
        low, high = ends
        if self._log:
            if value <= 0:
                return 0
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        share = (value - low) / (high - low)
        top = 4 * self._height - 1
        return min(top, max(0, round(share * top))) if math.isfinite(share) else 0

    def row_of(self, value: float, ends: tuple[float, float]) -> int:
        """The row of a value, from the highest down."""
        return self._height - 1 - self.level(value, ends) // 4

    def shade(self, above: Columns, below: Columns, ends: tuple[float, float]) -> None:
        """Fill what is between two curves, where the first one lies above the other."""
        middles = zip(self._middles(above, ends), self._middles(below, ends), strict=False)
        for x, (high, low) in enumerate(middles):
            if high is not None and low is not None:
                for level in range(low // 4 + 1, high // 4):
                    self._shaded.add((self._height - 1 - level, x))

    def _middles(self, columns: Columns, ends: tuple[float, float]) -> Iterator[int | None]:
        """The middle level of each cell, that of the one before where it has none, up to a gap."""
        found: dict[int, int | None] = {}
        for x, low, high in columns:
            if low is None or high is None:
                found[x // 2] = None
            else:
                found[x // 2] = (self.level(low, ends) + self.level(high, ends)) // 2
        before = None
        for x in range(self._width if found else 0):
            before = found.get(x, before) if x <= max(found) else None
            yield before

    def trace(self, columns: Columns, ends: tuple[float, float], role: Role) -> None:
        """Draw a curve: each column from its least to its most, joined to the one before it."""
        before: tuple[int, int, int] | None = None
        for x, low, high in columns:
            if low is None or high is None:
                before = None
                continue
            first, last = self.level(low, ends), self.level(high, ends)
            for level in range(first, last + 1):
                self._dot(x, level, role)
            if before is not None:
                self._join(before, (x, first, last), role)
            before = x, first, last

    def _join(self, one: tuple[int, int, int], other: tuple[int, int, int], role: Role) -> None:
        """A line from one column to the next, which touch where they overlap."""
        (x, low, high), (to, first, last) = one, other
        begin, end = (high, first) if first > high else (low, last) if last < low else (0, -1)
        if end < 0:
            shared = max(low, first)
            begin = end = shared
        steps = max(1, to - x)
        level = begin
        for step in range(1, steps + 1):
            following = begin + round((end - begin) * step / steps)
            for between in range(min(level, following), max(level, following) + 1):
                self._dot(x + step if between != level or level == following else x + step - 1, between, role)
            level = following

    def _dot(self, x: int, level: int, role: Role) -> None:
        if 0 <= x < 2 * self._width:
            row = self._height - 1 - level // 4
            self._bits[row][x // 2] |= _DOTS[x % 2][level % 4]
            self._roles[row][x // 2] = role

    @property
    def dots(self) -> list[str]:
        """The rows as text."""
        return ["".join(chr(_BLANK + bits) for bits in row) for row in self._bits]

    def row(self, row: int, limit: str | None, cursor: int | None) -> list[Span]:
        """One row as spans, the limit and the cursor where there is no dot."""
        spans: list[tuple[str, Role]] = []
        for x, (bits, role) in enumerate(zip(self._bits[row], self._roles[row], strict=True)):
            if bits:
                one = chr(_BLANK + bits), role
            elif x == cursor:
                one = "│", Role.TITLE
            elif (row, x) in self._shaded:
                one = GAP, Role.WARN
            elif limit is not None:
                one = LIMIT, _ROLES.get(limit, Role.MUTED)
            else:
                one = " ", Role.TEXT
            if spans and spans[-1][1] is one[1]:
                spans[-1] = spans[-1][0] + one[0], one[1]
            else:
                spans.append(one)
        return [Span(text, role) for text, role in spans]


def _label(curve: Curve, value: float) -> str:
    if curve.fmt.endswith("%"):
        return f"{value:.0%}"
    return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e") if abs(value) < 1e4 else short(value)


def _time_axis(curve: Curve, plot: Plot) -> Line:
    """The axis: numbers of updates, else time since the begin, with a mark for each finding."""
    marks: dict[int, Role] = {}
    for moment in sorted(plot.moments, key=lambda one: _SEVERITIES.get(one.severity, 0)):
        if plot.begin <= moment.since <= plot.end:
            marks[min(plot.wide - 1, plot.dot(moment.since) // 2)] = _ROLES.get(moment.severity, Role.INFO)
    row, before = ["─"] * plot.wide, ""
    for x in range(0, plot.wide, _APART):
        at = plot.begin + (plot.end - plot.begin) * x / max(1, plot.wide - 1)
        text = _when(curve, at, plot)
        hidden = any(x <= mark < x + len(text) for mark in marks)
        if text != before and x + len(text) < plot.wide and not hidden:
            row[x : x + len(text)] = text
        before = text
    roles = [marks.get(x, Role.MUTED) for x in range(plot.wide)]
    row = [MARK if x in marks else letter for x, letter in enumerate(row)]
    spans = [
        Span(" " * AXIS + "└", Role.MUTED),
        *(Span(one, role) for one, role in zip(row, roles, strict=True)),
    ]
    return fit(spans, plot.width)


def _when(curve: Curve, at: float, plot: Plot) -> str:
    place = reading(curve, at)
    update = None if place is None or at > curve.at[-1] + 1e-6 else curve.update[place]
    if update is not None:
        return f"{update:,}"
    seconds = max(0, round(at - plot.begin))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return (
        f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"
    )
