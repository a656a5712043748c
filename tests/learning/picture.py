"""Panels of curves beside one another, as one SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from overwatch.analyse.page import Markup, Scale, join, number, tag, text, ticks

WIDTH, HEIGHT, GAP, LEFT, TOP, FOOT = 250, 190, 46, 44, 30, 54
COLOURS: Final = ("#d9730d", "#1f6feb", "#57606a")
_GREY: Final = "#57606a"
_LINE: Final = "#d0d7de"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A value an update, from the first; nothing where it is `None`."""

    values: Sequence[float | None]
    colour: int
    is_bold: bool = False
    marks: Sequence[int] = ()
    """Updates that are marked on it."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Curves over the same axes."""

    title: str
    curves: Sequence[Curve]
    ends: tuple[float, float]
    """Of the values' axis."""


def picture(panels: Sequence[Panel], legend: Sequence[str], note: str) -> str:
    """The whole file; `legend` has a word a colour."""
    width = LEFT + len(panels) * (WIDTH + GAP)
    height = TOP + HEIGHT + FOOT
    drawn = [tag("rect", width=width, height=height, fill="#ffffff")]
    drawn += [_panel(panel, LEFT + place * (WIDTH + GAP)) for place, panel in enumerate(panels)]
    at = float(LEFT)
    for word, colour in zip(legend, COLOURS, strict=False):
        drawn.append(tag("rect", x=at, y=height - 20, width=14, height=4, fill=colour))
        drawn.append(_word(word, at + 19, height - 13))
        at += 34 + 6.4 * len(word)
    drawn.append(_word(note, at, height - 13))
    whole = tag(
        "svg", join(drawn), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", role="img",
        font_family="system-ui, sans-serif", font_size=11,
    )  # fmt: skip
    return f"{whole}\n"


def _word(word: object, x: float, y: float, anchor: str = "start", weight: int | None = None) -> Markup:
    return tag("text", text(word), x=x, y=y, text_anchor=anchor, font_weight=weight, fill=_GREY)


def _panel(panel: Panel, left: float) -> Markup:
    longest = max(len(curve.values) for curve in panel.curves)
    x = Scale(low=1, high=longest, start=left, end=left + WIDTH)
    y = Scale(low=panel.ends[0], high=panel.ends[1], start=TOP + HEIGHT, end=TOP)
    drawn = [_word(panel.title, left, TOP - 12, weight=600)]
    for value in ticks(*panel.ends, about=6):
        drawn.append(tag("line", x1=left, x2=left + WIDTH, y1=y(value), y2=y(value), stroke=_LINE))
        drawn.append(_word(number(value), left - 5, y(value) + 4, "end"))
    for value in ticks(0, longest):
        place = x(max(value, 1))
        drawn.append(_word(number(max(value, 1)), place, TOP + HEIGHT + 15, "middle"))
    drawn += [_curve(curve, x, y) for curve in panel.curves]
    return join(drawn)


def _curve(curve: Curve, x: Scale, y: Scale) -> Markup:
    colour = COLOURS[curve.colour]
    places = [
        f"{x(update):g},{y(value):g}"
        for update, value in enumerate(curve.values, start=1)
        if value is not None
    ]
    line = tag(
        "polyline", points=" ".join(places), fill="none", stroke=colour,
        stroke_width=2.2 if curve.is_bold else 0.8, opacity=None if curve.is_bold else 0.55,
    )  # fmt: skip
    dots = [
        tag("circle", cx=x(update), cy=y(value), r=4, fill="#cf222e")
        for update in curve.marks
        if (value := curve.values[update - 1]) is not None
    ]
    return join([line, *dots])
