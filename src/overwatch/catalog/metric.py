"""The shape of a catalogue row: what a metric is, when it is healthy, how it is shown.

Owns `Metric` and its parts. A row is data: judging a value against `Limits` happens in `diagnose`,
naming it for Prometheus in `names`. Must not know events, state or views.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never


class Kind(Enum):
    """How a metric behaves over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    STATE = "state"


class Scope(Enum):
    """What a metric speaks of; the value is the word on the wire."""

    RUN = "run"
    POLICY = "policy"
    GPU = "gpu"
    ENV = "env"
    SLOT = "slot"
    HOST = "host"
    LEARNER = "learner"
    ROLLOUTS = "rollouts"
    TOWER = "tower"


class Direction(Enum):
    """Which way is good; `NONE` where neither is."""

    UP = "up"
    DOWN = "down"
    NONE = "none"


class NonFinite(Enum):
    """What a NaN or an infinity means for this row."""

    CRITICAL = "critical"
    """Something is broken: losses, gradients, KL, entropy, rewards."""
    UNDEFINED = "undefined"
    """The question has no answer yet: shown `n/a`, never a finding."""


class Fold(Enum):
    """How several values within one tick become one."""

    LAST = "last"
    SUM = "sum"
    MEAN = "mean"


class Side(Enum):
    """On which side of a limit the bad values lie, and whether the limit itself is bad."""

    ABOVE = "above"
    """Bad when value > limit."""
    AT_OR_ABOVE = "at_or_above"
    """Bad when value >= limit."""
    BELOW = "below"
    """Bad when value < limit."""
    AT_OR_BELOW = "at_or_below"
    """Bad when value <= limit."""

    def crossed(self, value: float, limit: float) -> bool:
        """Whether a value is bad."""
        match self:
            case Side.ABOVE:
                return value > limit
            case Side.AT_OR_ABOVE:
                return value >= limit
            case Side.BELOW:
                return value < limit
            case Side.AT_OR_BELOW:
                return value <= limit
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One level of one row, e.g. "warning above 0.015"."""

    side: Side
    value: float
    """In the row's unit, or a multiple of the run's own median when `relative`."""
    relative: bool = False
    """Judge against the run's own running median rather than an absolute number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A row's two levels under one preset; a level that is `None` is never reached."""

    warning: Limit | None = None
    critical: Limit | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the catalogue."""

    name: str
    """OpenTelemetry name, dotted and lower-case."""
    short: str
    """Name in `run.update(...)`, `run.envs(...)` and in the snapshot; unique within its scope."""
    kind: Kind
    unit: str
    """UCUM; `1` only for true ratios within 0..1, braces for annotations."""
    scope: Scope
    asks: str
    """The question this row answers, for an operator."""
    label: str
    """At most eight cells, for the screen."""
    limits: Limits = NO_LIMITS
    """Limits of the preset `ppo`."""
    presets: dict[str, Limits] = field(default_factory=dict)
    """Limits of the other presets, where they differ."""
    direction: Direction = Direction.NONE
    non_finite: NonFinite = NonFinite.CRITICAL
    fold: Fold = Fold.LAST
    fmt: str = ".3f"
    """`format()` specification for panels."""
    suffix: str = ""
    """Shown after the value, e.g. `max` where the value is a share of its maximum."""
    banner_fmt: str | None = None
    """`format()` specification for the one-line banner, where it differs."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Constant attributes of the output series."""
    hold: tuple[int, int] = (3, 5)
    """A finding needs `hold[0]` bad of the last `hold[1]` updates."""
    warm_above: float | None = None
    """The row is not judged until a value was above this, or for fifty updates."""
    fix: str = ""
    """What to do first when this row is bad."""
    tele: str | None = None
    """Id of the telemetry record this row implements."""
    aliases: tuple[str, ...] = ()
    """Other spellings accepted on input."""

    def limits_for(self, preset: str) -> Limits:
        """Limits under `preset`; a preset without its own uses the row's."""
        return self.presets.get(preset, self.limits)
