"""The figure on the first screen: findings, bounds, envs and the policy over one axis of time. Pure."""

from collections.abc import Sequence
from typing import Final

from overwatch.analyse.curves import NOT_OK, STEPS_PER_S, Curve
from overwatch.analyse.figure import Line, Scale, bar, fitted, legend, number, path, seconds, time_ticks
from overwatch.analyse.found import Found
from overwatch.analyse.groups import Group, foremost
from overwatch.analyse.page import Markup, section, tag, text
from overwatch.analyse.story import Story
from overwatch.catalog.bounds import ROWS, Colour
from overwatch.catalog.durations import duration


def _css(colour: Colour) -> str:
    """The class of the page's style sheet."""
    return f"b-{colour.name.lower()}"


_LEFT: Final = 172.0
_RIGHT: Final = 1150.0
_ROW: Final = 20.0
_CURVE: Final = 46.0
_MOST_FINDINGS: Final = 12
_MOST_LANES: Final = 16
_COLOURS: Final = {row.state.value: _css(row.colour) for row in ROWS}
_LEGEND: Final = tuple((_css(colour), colour.value) for colour in Colour)
_CURVES: Final = ("return", "kl_divergence", "entropy")


def timeline(story: Story, found: list[Group]) -> Markup:
    """Everything over time, in rows."""
    x = Scale(low=0.0, high=max(story.length, 1.0), start=_LEFT, end=_RIGHT)
    rows: list[Markup] = []
    y = 8.0
    shown = foremost(found, _MOST_FINDINGS)
    for group in shown:
        rows += [_name(group.name, y), *(_finding(one, x, y) for one in group.found)]
        y += _ROW
    if len(found) > len(shown):
        rows.append(_name(f"and {len(found) - len(shown)} more kinds", y))
        y += _ROW
    y += 6.0 if shown else 0.0
    lanes = sorted(name for name in story.bounds.of if name)[:_MOST_LANES]
    for lane in lanes:
        rows += [_name(lane, y), *(bound_bar(story, lane, x, y))]
        y += _ROW
    y += 4.0 if lanes else 0.0
    for label, curve in _curves(story):
        rows += _small(label, curve, x, y)
        y += _CURVE + 6
    ends = [_axis(x, y)] + [_mark(group, x, y) for group in shown if group.severity != "info"]
    drawn = tag("svg", *_grid(x, y), *ends, *rows, viewBox=f"0 0 1160 {y + 24:g}", role="img")
    colours = legend(_LEGEND) if lanes else Markup("")
    return section(
        "When", tag("figure", drawn, colours, class_="card"), note="time since the run began", anchor="when"
    )


def bound_bar(story: Story, lane: str, x: Scale, y: float) -> list[Markup]:
    """What held one lane back, over time."""
    return [
        bar(x, (spell.start - 1, spell.end - 1), (y, _ROW - 5), _COLOURS.get(spell.word, "b-none"),
            f"{lane} {spell.word} from {duration(max(0.0, spell.start - 1))} for {duration(spell.length)}: "
            f"{spell.why or ''}")
        for spell in story.bounds.of[lane]
    ]  # fmt: skip


def _finding(one: Found, x: Scale, y: float) -> Markup:
    title = f"{one.finding.message}: {duration(max(0.0, one.since))} to {duration(one.until)}"
    return bar(x, (one.since, one.until), (y, _ROW - 5), f"x-{one.severity}", title)


def _name(word: str, y: float) -> Markup:
    short = word if len(word) <= 26 else word[:25] + "…"
    return tag("text", text(short), x=_LEFT - 10, y=y + 12, text_anchor="end", class_="name")


def _curves(story: Story) -> list[tuple[str, Curve]]:
    told: list[tuple[str, Curve]] = []
    bad = story.curves.machine.get((NOT_OK, None))
    if bad is not None and any(bad.value):
        told.append(("envs not OK", bad))
    for name in _CURVES:
        curve = story.curves.policy.get(name)
        if curve is not None and len(curve) > 1:
            told.append((curve.label, curve))
    pace = story.curves.machine.get((STEPS_PER_S, None))
    if pace is not None and len(pace) > 1:
        told.append(("steps/s", pace))
    return told


def _small(label: str, curve: Curve, x: Scale, top: float) -> list[Markup]:
    low, high = fitted(curve.value)
    y = Scale(low=low, high=high, start=top + _CURVE - 4, end=top + 4)
    ends = (min(curve.value, key=_known), max(curve.value, key=_known))
    return [
        _name(label, top + _CURVE / 2 - 8),
        tag("text", text(f"{number(_round(ends[0]))} … {number(_round(ends[1]))}"), x=_LEFT - 10,
            y=top + _CURVE / 2 + 18, text_anchor="end"),
        tag("line", x1=_LEFT, x2=_RIGHT, y1=top + _CURVE, y2=top + _CURVE, class_="gridline"),
        path(Line(x=curve.time, y=curve.value, name=label), x, y),
    ]  # fmt: skip


def _known(value: float) -> float:
    return value if value == value else 0.0  # noqa: PLR0124 not a number is not equal to itself


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def _mark(group: Group, x: Scale, bottom: float) -> Markup:
    at = x(group.first.since)
    return tag("line", x1=at, x2=at, y1=8, y2=bottom, class_=f"mark x-{group.severity}")


def _grid(x: Scale, bottom: float) -> Sequence[Markup]:
    return [
        tag("line", x1=x(at), x2=x(at), y1=4, y2=bottom, class_="gridline")
        for at in time_ticks(x.low, x.high, 10)
    ]


def _axis(x: Scale, y: float) -> Markup:
    words = (
        tag("text", text(seconds(at)), x=x(at), y=y + 16, text_anchor="middle")
        for at in time_ticks(x.low, x.high, 10)
    )
    return tag("g", tag("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="axis"), *words)
