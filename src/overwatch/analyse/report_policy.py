"""The policy in a report: a chart a number, with the limits that judge it. Pure."""

import math
from typing import Final

import numpy as np

from overwatch.analyse.align import along
from overwatch.analyse.curves import TASK_METRIC, in_order
from overwatch.analyse.figure import Line, chart, figure, legend
from overwatch.analyse.page import Markup, section, tag, text
from overwatch.analyse.story import Story
from overwatch.catalog import Scope
from overwatch.snapshot.history import Curve

_MORE: Final = 9
"""Charts shown before the others are folded away."""


def policy(story: Story) -> Markup:
    """All numbers of the policy by update, those of the pulse first."""
    names = [curve.name for curve in in_order(story.curves.policy.values())]
    curves = [curve for curve in story.drawn(names).values() if len(curve.at) > 1]
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
    """From the least to the most of each column of samples; a gap where none was finite."""
    ends = [
        math.nan if one is None else one for pair in zip(curve.low, curve.high, strict=True) for one in pair
    ]
    line = Line(x=[place for place in _places(story, curve) for _ in range(2)], y=ends)
    good = "" if curve.direction is None else f"good is {curve.direction} · "
    note = good + ("" if curve.text == "–" else f"now {curve.text}")
    return figure(curve.label, note, chart([line], curve.limits, _marks(story)))


def _places(story: Story, curve: Curve) -> list[float]:
    """The policy's update of each column; a service counts its own, so there it is the one of that time."""
    own = story.curves.policy[curve.name]
    then = np.interp(np.array(curve.at) - story.began, own.time, own.update).tolist()
    pairs = zip(curve.update, then, strict=True)
    return [float(update) if update is not None and own.scope is Scope.POLICY else at for update, at in pairs]


def _marks(story: Story) -> list[tuple[float, str]]:
    """Where findings that are no mere info began, by update."""
    return [
        (float(found.update), found.severity)
        for found in story.findings
        if found.update is not None and found.severity != "info" and found.finding.subject.scope != "env"
    ]
