"""All numbers of a run as samples of named series: what every export is made of. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from overwatch.analyse.curves import NOT_OK, STEPS_PER_S, TASK_METRIC, Curve
from overwatch.analyse.story import Story
from overwatch.catalog import CUSTOM_PREFIX, Kind, Scope

_OWN: Final = {
    STEPS_PER_S: ("overwatch.run.steps_per_second", "How many env steps a second?"),
    NOT_OK: ("overwatch.envs.not_ok", "How many envs are not OK?"),
    TASK_METRIC: ("overwatch.envs.metric", "What is the median over envs of the run's own metric?"),
}
"""Name and question of what is no row of the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One number of one subject over the run."""

    name: str
    """OpenTelemetry name."""
    asks: str
    unit: str | None
    curve: Curve

    @property
    def labels(self) -> dict[str, str]:
        """What tells it from other series of its name: constant attributes of its row."""
        row = self.curve.row
        return {} if row is None else row.attributes

    @property
    def counts(self) -> bool:
        """Whether it only rises."""
        row = self.curve.row
        return row is not None and row.kind is Kind.COUNTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value."""

    time: float
    """Unix seconds."""
    at: float
    """Seconds since the run began."""
    update: float
    steps: float
    value: float | None
    """`None` where it was not finite."""


def series(story: Story) -> list[Series]:
    """Those of the policy and the services in catalogue order, then those of machines and the fleet."""
    curves = (*story.curves.policy.values(), *story.curves.machine.values())
    return [_series(curve) for curve in curves if len(curve)]


def samples(story: Story, one: Series) -> Iterator[Sample]:
    """The values of a series, in the order in which they were told."""
    curve = one.curve
    for value, update, at, steps in zip(curve.value, curve.update, curve.time, curve.steps, strict=True):
        known = value if math.isfinite(value) else None
        yield Sample(time=story.began + at, at=at, update=update, steps=steps, value=known)


def _series(curve: Curve) -> Series:
    row = curve.row
    if curve.name in _OWN:
        name, asks = _OWN[curve.name]
        return Series(name=name, asks=asks, unit=None, curve=curve)
    if row is not None:
        return Series(name=row.name, asks=row.asks, unit=row.unit, curve=curve)
    prefix = CUSTOM_PREFIX if curve.scope is Scope.POLICY else ""
    return Series(name=prefix + curve.name, asks="A value of the run's own.", unit=None, curve=curve)
