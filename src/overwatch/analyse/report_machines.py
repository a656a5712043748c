"""Machines in a report: what held each lane back for how long, what that cost, and how hot it ran. Pure."""

from typing import Final

from overwatch.analyse.curves import HOST_FIELDS, Curve
from overwatch.analyse.figure import Line, chart, figure, legend, seconds
from overwatch.analyse.page import Markup, section, table, tag, text
from overwatch.analyse.story import Story
from overwatch.catalog.bounds import BoundState
from overwatch.catalog.durations import duration

_SHOWN: Final = (
    ("utilization", "utilisation", 100.0, "%"),
    ("temperature_c", "temperature", 1.0, "°C"),
    ("power_w", "power", 1.0, "W"),
    ("memory_used_bytes", "memory", 2.0**-30, "GiB"),
)
_MOST_LANES: Final = 6
"""Lanes in one chart."""


def machines(story: Story) -> Markup:
    """Bounds by time, idle time, and a chart for each thing that lanes and the host measure."""
    lanes = sorted({subject for name, subject in story.curves.machine if subject})
    charts = [drawn for shown in _SHOWN if (drawn := _lanes(story, lanes, shown)) is not None]
    charts += [drawn for name in HOST_FIELDS if (drawn := _host(story, name)) is not None]
    if not charts and not story.bounds.of:
        return Markup("")
    colours = legend((f"f{place}", lane) for place, lane in enumerate(lanes[:_MOST_LANES]))
    inside = [tag("div", _bounds(story), class_="card")] if any(story.bounds.of) else []
    gap = tag("div", Markup(""), style="height:10px")
    idle = sum(story.last.system.idle_gpu_s.values())
    note = f"{idle:,.0f} GPU-seconds in which nothing ran" if lanes else ""
    return section(
        "Machines", *inside, gap, tag("div", *charts, class_="grid"), colours if lanes else Markup(""),
        note=note, anchor="machines",
    )  # fmt: skip


def _bounds(story: Story) -> Markup:
    """Each lane's bounds, the longest first, with what was said of them last."""
    rows = []
    for lane in sorted(name for name in story.bounds.of if name):
        whole = sum(story.bounds.seconds(lane).values()) or 1.0
        for word, length in story.bounds.seconds(lane).items():
            last = next(spell for spell in reversed(story.bounds.of[lane]) if spell.word == word)
            rows.append(
                (
                    tag("td", text(lane), class_="nw"),
                    tag("td", text(word if word != BoundState.UNKNOWN.value else "not judged"), class_="nw"),
                    tag("td", text(duration(length)), class_="num"),
                    tag("td", text(f"{length / whole:.0%}"), class_="num"),
                    text(last.why or ""),
                    text(last.hint or ""),
                )
            )
    return table(("lane", "held back by", "for", "share", "why", "do"), rows)


def _lanes(story: Story, lanes: list[str], shown: tuple[str, str, float, str]) -> Markup | None:
    name, label, factor, unit = shown
    found = [
        (place, story.curves.machine.get((name, lane))) for place, lane in enumerate(lanes[:_MOST_LANES])
    ]
    lines = [
        Line(x=curve.time, y=[value * factor for value in curve.value], series=place, name=lanes[place])
        for place, curve in found
        if curve is not None and len(curve) > 1
    ]
    return figure(f"GPU {label}", unit, chart(lines, [], [], seconds)) if lines else None


def _host(story: Story, name: str) -> Markup | None:
    curve: Curve | None = story.curves.machine.get((name, None))
    if curve is None or len(curve) < 2:
        return None
    factor, unit = (2.0**-30, "GiB") if name.endswith("bytes") else (100.0, "%")
    line = Line(x=curve.time, y=[value * factor for value in curve.value])
    return figure(f"host {'memory' if unit == 'GiB' else 'CPU'}", unit, chart([line], [], [], seconds))
