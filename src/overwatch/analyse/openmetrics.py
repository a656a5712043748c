"""A run as OpenMetrics 1.0 text with times, as `promtool tsdb create-blocks-from openmetrics` reads it. Pure.

Samples of a series stand in order of time, each time once: of two values at one time the later told counts.
What was not finite has no sample.
"""

from collections.abc import Iterator
from typing import Final

from overwatch.analyse.samples import Series, samples, series
from overwatch.analyse.story import Story
from overwatch.catalog import label_name, plain_name, prometheus_name
from overwatch.serve.metrics_text import labels_text
from overwatch.serve.prometheus import RUN_LABEL

LANE_LABEL: Final = label_name("hw.id")


def openmetrics(story: Story) -> Iterator[tuple[str, bool]]:
    """Lines, and whether each is a value."""
    families: dict[str, list[Series]] = {}
    for one in series(story):
        families.setdefault(_name(one), []).append(one)
    for name, members in families.items():
        counts = members[0].counts
        yield f"# TYPE {name} {'counter' if counts else 'gauge'}", False
        yield f"# HELP {name} {_help(members[0].asks)}", False
        for member in members:
            yield from _samples(story, member, name + ("_total" if counts else ""))
    yield "# EOF", False


def _samples(story: Story, one: Series, name: str) -> Iterator[tuple[str, bool]]:
    words = {RUN_LABEL: story.run.run_id}
    if one.curve.subject is not None:
        words[LANE_LABEL] = _lane(story, one.curve.subject)
    words |= {label_name(key): word for key, word in one.labels.items()}
    head = f"{name}{{{labels_text(words)}}}"
    by_time = {round(one.time, 3): one.value for one in samples(story, one) if one.value is not None}
    for time in sorted(by_time):
        yield f"{head} {by_time[time]!r} {time:.3f}", True


def _lane(story: Story, name: str) -> str:
    """What `/metrics` calls a lane."""
    return next((lane.uuid for lane in story.last.system.gpus if lane.gpu_id == name and lane.uuid), name)


def _name(one: Series) -> str:
    row = one.curve.row
    known = row is not None and row.name == one.name
    name = prometheus_name(row) if known and row is not None else plain_name(one.name)
    return name.removesuffix("_total") if one.counts else name


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
