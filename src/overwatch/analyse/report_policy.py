"""The policy in a report: a chart a number, with the limits that judge it. Pure."""

import math
from collections.abc import Iterator
from typing import Final

from overwatch.analyse.align import along
from overwatch.analyse.curves import TASK_METRIC, Curve, in_order
from overwatch.analyse.figure import Level, Line, chart, figure, legend
from overwatch.analyse.page import Markup, section, tag, text
from overwatch.analyse.story import Story
from overwatch.catalog import Side
from overwatch.catalog.judging import run_limits

_MORE: Final = 9
"""Charts shown before the others are folded away."""


def policy(story: Story) -> Markup:
    """All numbers of the policy by update, those of the pulse first."""
    curves = [curve for curve in in_order(story.curves.policy.values()) if len(curve) > 1]
    if not curves:
        return section("Policy", tag("p", text("No update was seen."), class_="muted"))
    metric = story.curves.machine.get((TASK_METRIC, None))
    drawn = [_figure(story, curve) for curve in curves]
    if metric is not None and story.run.metric is not None and len(metric) > 1:
        x, y = along(metric, "update")
        line = Line(x=x.tolist(), y=y.tolist(), series=2)
        drawn.insert(1, figure(story.run.metric.name, "median of envs", chart([line], [], _marks(story))))
    parts = [tag("div", *drawn[:_MORE], class_="grid")]
    if len(drawn) > _MORE:
        rest = tag("div", *drawn[_MORE:], class_="grid")
        parts.append(tag("details", tag("summary", text(f"{len(drawn) - _MORE} more")), rest))
    colours = legend(
        (("x-warning", "beyond the warning limit"), ("x-critical", "beyond the critical limit"),
         ("f0", "by update; dotted: a finding began"))
    )  # fmt: skip
    return section("Policy", *parts, colours, note=f"preset {story.run.preset}", anchor="policy")


def _figure(story: Story, curve: Curve) -> Markup:
    last = next((value for value in reversed(curve.value) if math.isfinite(value)), None)
    row = curve.row
    now = "" if last is None else format(last, row.fmt if row else ".4g")
    levels = list(levels_of(story, curve))
    drawn = chart([Line(x=curve.update, y=curve.value)], levels, _marks(story))
    return figure(curve.label if row is None else row.label, f"{_asks(curve)} now {now}".strip(), drawn)


def _asks(curve: Curve) -> str:
    if curve.direction is None:
        return ""
    return "good is up ·" if curve.direction == "up" else "good is down ·"


def levels_of(story: Story, curve: Curve) -> Iterator[Level]:
    """The limits of a row in this run; those relative to its own median by the median of all of it."""
    row = curve.row
    if row is None:
        return
    finite = sorted(value for value in curve.value if math.isfinite(value))
    median = finite[len(finite) // 2] if finite else None
    for limits in run_limits(row, story.run.preset, story.facts.config).sides:
        for severity, limit in (("warning", limits.warning), ("critical", limits.critical)):
            value = None if limit is None else limit.threshold(median)
            if limit is not None and value is not None:
                above = limit.side in (Side.ABOVE, Side.AT_OR_ABOVE)
                yield Level(value=value, severity=severity, above=above)


def _marks(story: Story) -> list[tuple[float, str]]:
    """Where findings that are no mere info began, by update."""
    return [
        (float(found.update), found.severity)
        for found in story.findings
        if found.update is not None and found.severity != "info" and found.finding.subject.scope != "env"
    ]
