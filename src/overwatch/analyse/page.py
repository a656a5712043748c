"""A page in one file: HTML whose text is escaped, charts as SVG, and nothing from a network.

Markup is its own type: whatever else comes into an element or an attribute is text, and escaped. Pure; must
not know what is shown.
"""

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.snapshot.history import Line as Level


class Markup(str):
    """HTML that is safe to put into a page."""

    __slots__ = ()


_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
STYLE: Final = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_STEPS: Final = (1, 2, 5)
_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_SERIES: Final = 6
_LEFT, _TOP, _RIGHT, _BOTTOM = 46, 6, 345, 128
"""Where a chart lies in its figure."""
_VOID: Final = frozenset({"meta", "br", "line", "rect", "circle", "path", "polyline"})


def text(word: object) -> Markup:
    """Any text, escaped."""
    return Markup(html.escape(str(word), quote=True))


def tag(name: str, /, *inside: object, **attributes: object) -> Markup:
    """An element. Attributes that are `None` are left out; `class_` is `class`, `a_b` is `a-b`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not inside:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(inside)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """One after another."""
    return Markup("".join(one if isinstance(one, Markup) else text(one) for one in parts))


def table(head: Iterable[object], rows: Iterable[Sequence[object]]) -> Markup:
    """A table. A cell that is no `td` becomes one; a heading stands where the cells below it do.

    Raises `ValueError` for a row without a cell for each heading: the rest would be under wrong ones.
    """
    cells = [
        [one if isinstance(one, Markup) and one.startswith("<td") else tag("td", one) for one in row]
        for row in rows
    ]
    words = list(head)
    for row in cells:
        if len(row) != len(words):
            raise ValueError(
                f"a row of {len(row)} cells below {len(words)} headings: {', '.join(map(str, words))}"
            )
    first = cells[0] if cells else [Markup("")] * len(words)
    kinds = ["num" if one.startswith('<td class="num"') else None for one in first]
    top = tag("tr", *(tag("th", word, class_=kind) for word, kind in zip(words, kinds, strict=True)))
    body = join(tag("tr", *row) for row in cells)
    return tag("div", tag("table", tag("thead", top), tag("tbody", body)), class_="wide")


def section(title: str, *inside: object, note: str = "", anchor: str | None = None) -> Markup:
    """A part of a page with its heading."""
    heading = tag("h2", title, tag("small", note) if note else Markup(""))
    return tag("section", heading, *inside, id=anchor)


def page(title: str, *body: object) -> str:
    """The whole page; ends without a newline."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', *body)), lang='en')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value lies; beyond the ends, at the end."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve: places, values, and which colour."""

    x: Sequence[float]
    y: Sequence[float]
    series: int = 0
    name: str = ""


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers within two ends."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    raw = span / about
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next((unit * scale for unit in _STEPS if unit * scale >= raw), 10 * scale)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def time_ticks(low: float, high: float, about: int = 8) -> list[float]:
    """Round times, in seconds."""
    step = next((unit for unit in _SECONDS if (high - low) / unit <= about), None)
    if step is None:
        return ticks(low, high, about)
    return [float(place * step) for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def number(value: float) -> str:
    """A number as an axis shows it."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.6g}"


def seconds(value: float) -> str:
    """A time as an axis shows it."""
    return "0" if not value else duration(value)


def fitted(values: Iterable[float], levels: Sequence[Level] = ()) -> tuple[float, float]:
    """Ends of an axis: around the values without the outermost hundredth, with the limits near them.

    Over no less than 5 % of their median: noise never looks like drama.
    """
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return 0.0, 1.0
    cut = len(finite) // 100
    low, high = finite[cut], finite[-1 - cut]
    least = 0.05 * abs(finite[len(finite) // 2]) or 1e-9
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    span = high - low
    for level in levels:
        if low - span <= level.value <= high + span:
            low, high = min(low, level.value), max(high, level.value)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


def path(line: Line, x: Scale, y: Scale) -> Markup:
    """A curve; gaps where a value is not finite. Of many values in one place the extremes are drawn."""
    parts: list[str] = []
    column: list[float] = []
    pen_up, at = True, None
    for place, value in zip(line.x, line.y, strict=True):
        if not math.isfinite(value):
            parts += _column(at, column, y, pen_up=pen_up)
            column, pen_up, at = [], True, None
            continue
        here = round(x(place))
        if at is not None and here != at:
            parts += _column(at, column, y, pen_up=pen_up)
            column, pen_up = [], False
        column.append(value)
        at = here
    parts += _column(at, column, y, pen_up=pen_up)
    if not parts:
        return Markup("")
    return tag(
        "path",
        *([tag("title", line.name)] if line.name else []),
        d="".join(parts),
        class_=f"curve s{line.series % _SERIES}",
    )


def _column(at: int | None, values: list[float], y: Scale, *, pen_up: bool) -> list[str]:
    if at is None or not values:
        return []
    places = [values[0], min(values), max(values), values[-1]] if len(values) > 2 else values
    kept = [place for i, place in enumerate(places) if i == 0 or place != places[i - 1]]
    drawn = [f"L{at} {y(value):g}" for value in kept]
    if pen_up:
        drawn[0] = "M" + drawn[0][1:]
        if len(drawn) == 1:
            drawn.append("h.1")
    return drawn


def chart(
    lines: Sequence[Line],
    levels: Sequence[Level],
    marks: Sequence[tuple[float, str]],
    axis: Callable[[float], str] = number,
) -> Markup:
    """A small chart with axes. `marks` are vertical: a place and a severity."""
    places = [place for line in lines for place in line.x]
    low, high = (min(places), max(places)) if places else (0.0, 1.0)
    x = Scale(low=low, high=high if high > low else low + 1, start=_LEFT, end=_RIGHT)
    ends = fitted((value for line in lines for value in line.y), levels)
    y = Scale(low=ends[0], high=ends[1], start=_BOTTOM, end=_TOP)
    drawn = [*_bands(levels, y, ends), *_axes(x, y, axis)]
    drawn += [
        tag("line", x1=x(at), x2=x(at), y1=_TOP, y2=_BOTTOM, class_=f"mark x-{severity}")
        for at, severity in marks
        if low <= at <= high
    ]
    drawn += [path(line, x, y) for line in lines]
    return tag("svg", *drawn, viewBox="0 0 360 146", role="img")


def _bands(levels: Sequence[Level], y: Scale, ends: tuple[float, float]) -> list[Markup]:
    """What lies beyond a limit is shaded; the limit itself is a line."""
    drawn = []
    for level in levels:
        if not ends[0] <= level.value <= ends[1]:
            continue
        at = y(level.value)
        top, bottom = (_TOP, at) if level.above else (at, _BOTTOM)
        drawn.append(
            tag("rect", x=_LEFT, y=top, width=_RIGHT - _LEFT, height=round(bottom - top, 1),
                class_=f"band {level.severity}")
        )  # fmt: skip
        title = tag("title", f"{level.severity} {'above' if level.above else 'below'} {number(level.value)}")
        drawn.append(tag("line", title, x1=_LEFT, x2=_RIGHT, y1=at, y2=at, class_=f"limit {level.severity}"))
    return drawn


def _axes(x: Scale, y: Scale, axis: Callable[[float], str]) -> list[Markup]:
    drawn = []
    for value in ticks(y.low, y.high, 4):
        drawn.append(tag("line", x1=_LEFT, x2=_RIGHT, y1=y(value), y2=y(value), class_="gridline"))
        drawn.append(tag("text", number(value), x=_LEFT - 5, y=y(value) + 4, text_anchor="end"))
    found = time_ticks(x.low, x.high, 5) if axis is seconds else ticks(x.low, x.high, 5)
    drawn += [tag("text", axis(value), x=x(value), y=_BOTTOM + 14, text_anchor="middle") for value in found]
    drawn.append(tag("line", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="axis"))
    return drawn


def bar(x: Scale, span: tuple[float, float], row: tuple[float, float], class_: str, title: str) -> Markup:
    """A stretch of time in a row, which is its top and its height; at least a pixel and a half wide."""
    left = x(span[0])
    width = max(1.5, round(x(span[1]) - left, 1))
    words = tag("title", title)
    return tag("rect", words, x=left, y=row[0], width=width, height=row[1], rx=1.5, class_=class_)


def legend(words: Iterable[tuple[str, str]]) -> Markup:
    """Colours with their words."""
    return tag("div", *(tag("span", tag("i", class_=kind), word) for kind, word in words), class_="legend")


def figure(title: str, note: str, drawn: Markup) -> Markup:
    """A chart with its caption, in a card."""
    caption = tag("figcaption", tag("b", title), tag("span", note))
    return tag("figure", caption, drawn, class_="card")
