"""The charts of the policy in a report: drawn from the run's past, as the terminal draws them."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from overwatch.analyse.report_policy import policy
from overwatch.analyse.story import Story, read_story
from overwatch.catalog.policy import KL
from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording
from overwatch.snapshot.history import Ask
from overwatch.state.past import Past


@pytest.fixture(scope="module")
def sick_story(sick: Path) -> Story:
    """Of the run whose policy collapses."""
    return read_story(sick)


def charts(story: Story) -> dict[str, str]:
    """The figures of the section, by their title."""
    figures = re.findall(r"<figure.*?</figure>", str(policy(story)), re.DOTALL)
    return {re.findall(r"<b>(.*?)</b>", one)[0]: one for one in figures}


def test_its_curves_and_limits_are_those_of_the_terminal(sick: Path, sick_story: Story) -> None:
    """The same answer to the same question, at the end of the recording."""
    recording = open_input(sick)
    assert isinstance(recording, Recording)
    player = Player(recording)
    player.seek(player.last)
    names = tuple(sick_story.curves.policy)
    shown = player.history(sick_story.run.run_id, Ask(names=names, columns=512))

    assert shown is not None
    assert sick_story.drawn(names) == {one.name: one for one in shown.curves} != {}


@pytest.mark.parametrize("what", ["recording", "log of snapshots"])
def test_a_chart_has_limits_and_the_begin_of_each_finding(sick: Path, sick_story: Story, what: str) -> None:
    """Both limits of a row, each with its side; a mark at the update of each finding that is no mere info."""
    story = sick_story if what == "recording" else read_story(sick / "snapshots.jsonl")
    chart = charts(story)[KL.label]
    kl = story.drawn((KL.short,))[KL.short]
    bad = [one for one in story.findings if one.severity != "info" and one.finding.subject.scope != "env"]

    assert [(one.severity, one.above) for one in kl.limits] == [("warning", True), ("critical", True)]
    assert chart.count('class="limit ') == len(kl.limits)
    assert chart.count('class="mark ') == len(bad) > 0


def test_an_update_that_no_snapshot_shows_is_in_the_chart(sick_story: Story) -> None:
    """Where updates come faster than snapshots, the least and the most of those between are drawn."""
    tracked = sick_story.tracked
    assert tracked is not None
    past = Past.load(tracked.past.dump())
    line = past.lines[KL.name]
    line.take(line.at[-1], line.index[-1] + 1, 0.001, 10 * max(line.high))
    spiked = replace(sick_story, tracked=msgspec.structs.replace(tracked, past=past))

    before, after = (_highest(charts(one)[KL.label]) for one in (sick_story, spiked))
    assert after > 5 * before


def _highest(chart: str) -> float:
    """Number at the axis."""
    return max(float(one) for one in re.findall(r'text-anchor="end"[^>]*>([^<]*)', chart))
