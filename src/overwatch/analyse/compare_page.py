"""A comparison as a page: what differs first, then each number of all runs in one chart. Pure."""

from collections.abc import Sequence
from typing import Final

from overwatch.analyse.align import along
from overwatch.analyse.compare import (
    Against,
    Compared,
    Comparison,
    alike_until,
    numbers,
    partings,
)
from overwatch.analyse.figure import Line, chart, figure, legend, number, seconds
from overwatch.analyse.page import Markup, join, page, section, table, tag, text
from overwatch.analyse.story import Story
from overwatch.analyse.words import change, letter
from overwatch.catalog.durations import duration
from overwatch.catalog.titles import title

_SERIES: Final = 6
_MOST_PARTED: Final = 6


def compare_page(stories: Sequence[Story], comparison: Comparison) -> str:
    """The page; ends without a newline."""
    return page(
        " · ".join(run.run for run in comparison.runs) + " · Overwatch",
        tag("header", tag("h1", text(" and ".join(dict.fromkeys(run.run for run in comparison.runs))))),
        _banner(comparison),
        _runs(comparison),
        _settings(comparison),
        _verdicts(comparison),
        _charts(stories, comparison),
        tag(
            "footer",
            text(
                "Verdicts are about these runs over the last "
                f"{comparison.last:.0%} of what they have in common: Cliff's delta with its 99 % interval."
                " Two seeds of one configuration differ too."
            ),
        ),
    )


def _banner(comparison: Comparison) -> Markup:
    """Where they part first, and how many numbers got better or worse."""
    found = [one for one in partings(comparison) if not one.against.divergence.from_start]
    words = [one.effect.verdict for metric in comparison.metrics for one in metric.against]
    worse, better = words.count("worse"), words.count("better")
    severity = "critical" if worse else "ok" if better else "info"
    if found:
        first = found[0]
        others = ", ".join(one.metric.label for one in found[1:_MOST_PARTED])
        where = f"{comparison.align} {_place(first.at[0], comparison)}"
        head = f"{letter(first.against.place)} parts from A at {where}: {first.metric.label}"
        head += f", then {others}" if others else ""
    else:
        head = "No number leaves the noise of the runs."
    untils = [(place, alike_until(comparison, place)) for place in range(1, len(comparison.runs))]
    alike = [f"A and {letter(place)} are the same to the bit up to {_place(until, comparison)}. "
             for place, until in untils if until is not None]  # fmt: skip
    rest = f"{''.join(alike)}{worse} numbers are worse than in A, {better} better."
    return tag("div", tag("b", text(head)), tag("p", text(rest)), class_=f"card banner {severity}")


def _place(at: float, comparison: Comparison) -> str:
    return duration(at) if comparison.align == "time" else number(at)


def _runs(comparison: Comparison) -> Markup:
    rows = [
        (
            tag(
                "td",
                tag("span", tag("i", class_=f"f{place % _SERIES}"), text(letter(place)), class_="legend"),
            ),
            text(run.run),
            text(run.path),
            text(run.ending),
            tag("td", text(f"{run.updates:,.0f}"), class_="num"),
            tag("td", text(f"{run.steps:,.0f}"), class_="num"),
            tag("td", text(duration(run.seconds)), class_="num"),
            _codes(run.codes),
        )
        for place, run in enumerate(comparison.runs)
    ]
    head = (
        "",
        "run",
        "recording",
        "outcome",
        "updates",
        "steps",
        "took",
        "findings, and when each kind began",
    )
    return section("Runs", tag("div", table(head, rows), class_="card"))


def _codes(codes: dict[str, float]) -> Markup:
    return text(", ".join(f"{title(code)} {duration(max(0.0, at))}" for code, at in codes.items()) or "none")


def _settings(comparison: Comparison) -> Markup:
    if not comparison.config:
        return section("Configuration", tag("p", text("Nothing was set differently."), class_="card muted"))
    head = ("setting", *(letter(place) for place in range(len(comparison.runs))))
    rows = (
        (text(name), *(text("–" if one is None else one) for one in values))
        for name, values in comparison.config.items()
    )
    return section("Configuration", tag("div", table(head, rows), class_="card"), note="what differs")


def _verdicts(comparison: Comparison) -> Markup:
    head = ("number", "run", "A", "it", "change", "delta", "99 % interval", "verdict", "parted")
    rows = [
        _verdict(metric, against, comparison) for metric in comparison.metrics for against in metric.against
    ]
    note = f"over the last {comparison.last:.0%} in common, by {comparison.align}"
    return section("Verdicts", tag("div", table(head, rows), class_="card"), note=note, anchor="verdicts")


def _verdict(metric: Compared, against: Against, comparison: Comparison) -> tuple[Markup, ...]:
    effect, parting = against.effect, against.divergence
    values = ("–" if value is None else format(value, metric.fmt) for value in effect.median)
    interval = "" if effect.interval is None else f"{effect.interval[0]:+.2f} … {effect.interval[1]:+.2f}"
    why = tag("span", text(f" {effect.why}"), class_="muted") if effect.why else Markup("")
    where = "–"
    if parting.parted is not None:
        where = "from the start" if parting.from_start else _place(parting.parted[0], comparison)
        where += f" ({parting.times_noise:,.1f}× noise)" if (parting.times_noise or 0) < 1e6 else ""
    numbers_ = (
        *values,
        change(*effect.median),
        "" if effect.delta is None else f"{effect.delta:+.2f}",
        interval,
    )
    return (
        tag("td", text(metric.label), class_="nw"),
        text(letter(against.place)),
        *(tag("td", text(word), class_="num") for word in numbers_),
        tag("td", tag("span", text(effect.verdict), class_=effect.verdict.split()[0]), why),
        tag("td", text(where), class_="nw"),
    )


def _charts(stories: Sequence[Story], comparison: Comparison) -> Markup:
    charts = [_chart(stories, metric, comparison) for metric in comparison.metrics]
    colours = legend(
        (f"f{place % _SERIES}", f"{letter(place)} {run.run}") for place, run in enumerate(comparison.runs)
    )
    return section("Curves", colours, tag("div", join(charts), class_="grid"), note=f"by {comparison.align}")


def _chart(stories: Sequence[Story], metric: Compared, comparison: Comparison) -> Markup:
    lines = []
    for place, story in enumerate(stories):
        curve = numbers(story).get(metric.name)
        if curve is not None:
            x, y = along(curve, comparison.align)
            lines.append(
                Line(x=x.tolist(), y=y.tolist(), series=place, name=f"{letter(place)} {story.run.run_id}")
            )
    judged = stories[0].drawn((metric.name,)).get(metric.name)
    levels = () if judged is None else judged.limits
    firsts = {one.divergence.parted[0] for one in metric.against if one.divergence.parted is not None}
    good = f"good is {metric.direction}" if metric.direction else ""
    verdicts = ", ".join(f"{letter(one.place)} {one.effect.verdict}" for one in metric.against)
    drawn = chart(
        lines, levels, [(at, "info") for at in firsts], seconds if comparison.align == "time" else number
    )
    return figure(metric.label, " · ".join(word for word in (good, verdicts) if word), drawn)
