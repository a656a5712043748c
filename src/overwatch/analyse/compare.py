"""Runs beside one another: what was set differently, where they part, and which number got better or worse.

The first run is what the others are compared with. A verdict is about these runs, not about what was changed
between them: two seeds of one configuration differ too. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from overwatch.analyse.align import aligned
from overwatch.analyse.curves import AXES, STEPS_PER_S, TASK_METRIC, Axis, Curve, in_order
from overwatch.analyse.divergence import Divergence, divergence
from overwatch.analyse.effect import Effect, effect
from overwatch.analyse.source import AnalyseError
from overwatch.analyse.story import Story

MOST_RUNS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareConfig:
    """How runs are compared."""

    align: Axis = "update"
    """What stands beside what: the same update, time since each run began, or env steps."""
    last: float = 0.25
    """Share of what both have, at its end, over which verdicts are."""

    def __post_init__(self) -> None:
        if self.align not in AXES:
            raise AnalyseError(f"align is {self.align!r}; use one of {', '.join(AXES)}")
        if not 0 < self.last <= 1:
            raise AnalyseError(f"last is {self.last:g}; use a share above 0 and at most 1, e.g. 0.25")


class RunTold(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a comparison."""

    run: str
    path: str
    outcome: str | None
    open_at_end: tuple[str, ...]
    """Kinds of warnings and criticals that stood when it ended, the worst first."""
    updates: float
    episodes: float
    steps: float
    seconds: float
    findings: dict[str, int]
    """How many there were, by the worst severity of each."""
    codes: dict[str, float]
    """When each kind of finding was first true, seconds since the run began."""

    @property
    def ending(self) -> str:
        """How it ended, in words: `completed, open at the end: policy-collapse`."""
        stood = f", open at the end: {', '.join(self.open_at_end)}" if self.open_at_end else ""
        return f"{self.outcome or 'not ended'}{stood}"


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """One number of one run beside that of the first run."""

    place: int
    """Of the run, 1 being the second."""
    effect: Effect
    divergence: Divergence
    aligned: int
    """Places that both have."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One number of all runs."""

    name: str
    label: str
    unit: str | None
    fmt: str
    """`format()` specification of its values."""
    direction: str | None
    against: tuple[Against, ...]
    """In the order of the runs, the first left out; those without this number too."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Runs beside one another."""

    align: Axis
    last: float
    runs: tuple[RunTold, ...]
    config: dict[str, tuple[str | None, ...]]
    """What was not set the same, by name: a value a run, `None` where it says nothing of it."""
    metrics: tuple[Compared, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """A number that parted from the first run's."""

    metric: Compared
    against: Against
    at: tuple[float, float] = field(default=(0.0, 0.0))


def compare(stories: Sequence[Story], config: CompareConfig) -> Comparison:
    """Compare two or more runs; raises `AnalyseError` for fewer, or too many."""
    if not 2 <= len(stories) <= MOST_RUNS:
        raise AnalyseError(f"{len(stories)} runs cannot be compared; name 2 to {MOST_RUNS}")
    first, *others = stories
    metrics = []
    for name, curve in numbers(first).items():
        pairs = [(place, numbers(other).get(name)) for place, other in enumerate(others, 1)]
        found = [(place, other) for place, other in pairs if other is not None]
        if found:
            direction = direction_of(first, curve)
            against = tuple(_against(curve, other, place, direction, config) for place, other in found)
            metrics.append(_compared(first, name, curve, against))
    return Comparison(
        align=config.align,
        last=config.last,
        runs=tuple(map(_told, stories)),
        config=differences(stories),
        metrics=tuple(metrics),
    )


def numbers(story: Story) -> dict[str, Curve]:
    """The curves of a run that are compared: of the policy, its own metric, and how much it got done."""
    curves = story.curves
    rest = (curves.machine.get((name, None)) for name in (TASK_METRIC, STEPS_PER_S))
    shown = (*in_order(curves.policy.values()), *(curve for curve in rest if curve is not None))
    return {curve.name: curve for curve in shown}


def direction_of(story: Story, curve: Curve) -> str | None:
    """Which way is good for a number of this run."""
    if curve.name == STEPS_PER_S:
        return "up"
    if curve.name == TASK_METRIC:
        metric = story.run.metric
        return None if metric is None else "up" if metric.higher_is_better else "down"
    return curve.direction


def differences(stories: Sequence[Story]) -> dict[str, tuple[str | None, ...]]:
    """What the runs were not started with alike."""
    configs = [story.config for story in stories]
    names = dict.fromkeys(name for config in configs for name in config)
    table = {name: tuple(config.get(name) for config in configs) for name in names}
    return {name: values for name, values in table.items() if len(set(values)) > 1}


def partings(comparison: Comparison) -> list[Parted]:
    """Numbers of the policy that parted, the first to part first; those apart from the start come last."""
    found = [
        Parted(metric=metric, against=against, at=against.divergence.parted)
        for metric in comparison.metrics
        for against in metric.against
        if against.divergence.parted is not None
    ]
    return sorted(
        found,
        key=lambda one: (
            one.against.divergence.from_start,
            one.at,
            -(one.against.divergence.times_noise or 0),
        ),
    )


def alike_until(comparison: Comparison, place: int) -> float | None:
    """The last place up to which all numbers of a run are those of the first to the bit; `None` for none."""
    untils = [
        one.divergence.identical_until for m in comparison.metrics for one in m.against if one.place == place
    ]
    known = [until for until in untils if until is not None]
    return min(known) if known and len(known) == len(untils) else None


def _against(base: Curve, curve: Curve, place: int, direction: str | None, config: CompareConfig) -> Against:
    pair = aligned(base, curve, config.align)
    low, high = (pair.x[0], pair.x[-1]) if len(pair.x) else (0.0, 0.0)
    late = pair.x >= high - config.last * (high - low)
    parting = divergence(pair)
    told = effect(pair.a[late], pair.b[late], direction, parted=parting.parted is not None)
    return Against(place=place, effect=told, divergence=parting, aligned=len(pair.x))


def _compared(story: Story, name: str, curve: Curve, against: tuple[Against, ...]) -> Compared:
    row = curve.row
    label = curve.label
    if name == TASK_METRIC and story.run.metric is not None:
        label = story.run.metric.name
    return Compared(
        name=name,
        label=label,
        unit=None if row is None else row.unit,
        fmt=".4g" if row is None else row.fmt,
        direction=direction_of(story, curve),
        against=against,
    )


def _told(story: Story) -> RunTold:
    counters = story.last.counters
    counts: dict[str, int] = {}
    codes: dict[str, float] = {}
    stood = [one for one in story.found.standing if one.severity != "info"]
    for found in story.findings:
        counts[found.severity] = counts.get(found.severity, 0) + 1
        codes.setdefault(found.finding.code, round(found.since, 3))
    return RunTold(
        run=story.run.run_id,
        path=str(story.path),
        outcome=story.run.outcome,
        open_at_end=tuple(dict.fromkeys(one.finding.code for one in stood)),
        updates=counters.get("updates", 0),
        episodes=counters.get("episodes", 0),
        steps=counters.get("steps", 0),
        seconds=round(story.length, 3),
        findings=counts,
        codes=codes,
    )
