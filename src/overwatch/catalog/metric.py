"""The shape of a catalogue row: what a metric is, when it is healthy, how it is shown.

Owns `Metric` and its parts. A row is data: judging a value against `Limits` happens in `state.judge`,
naming it for Prometheus in `names`. Must not know events, state or views.
"""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from overwatch.catalog.alias import Alias, Estimator, Moment


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
    ACTOR = "actor"
    REPLAY = "replay"
    ORCHESTRATOR = "orchestrator"
    ROLLOUTS = "rollouts"
    TOWER = "tower"


class Cadence(Enum):
    """When a new value comes."""

    STEP = "env step"
    UPDATE = "policy update"
    EPISODE = "end of an episode"
    SAMPLE = "sample of a machine"
    REQUEST = "request to a service"
    TICK = "tick of the collector"


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

    @property
    def is_above(self) -> bool:
        """Whether the bad values are above the limit."""
        return self in (Side.ABOVE, Side.AT_OR_ABOVE)

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
    least: float = 0.0
    """What that median counts as at least, in the row's unit: below, nothing is large however it grew."""

    def threshold(self, median: float | None) -> float | None:
        """The limit's number in the row's unit; `None` where it waits for the run's own median."""
        if not self.relative:
            return self.value
        threshold = None if median is None else self.value * max(median, self.least)
        # A median near the largest number has no multiple.
        return threshold if threshold is not None and math.isfinite(threshold) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A row's two levels under one preset; a level that is `None` is never reached."""

    warning: Limit | None = None
    critical: Limit | None = None
    other: "Limits | None" = None
    """The levels on the other side, of a row that is healthy in between."""

    @property
    def sides(self) -> "tuple[Limits, ...]":
        """These levels, and those of the other side where there are any."""
        return (self,) if self.other is None else (self, self.other)

    @property
    def is_relative(self) -> bool:
        """Whether any of these levels is a multiple of the run's own median."""
        if (self.warning is not None and self.warning.relative) or (
            self.critical is not None and self.critical.relative
        ):
            return True
        return self.other is not None and self.other.is_relative


NO_LIMITS = Limits()


def above(
    warning: float | None,
    critical: float | None = None,
    *,
    relative: bool = False,
    at: bool = False,
    least: float = 0.0,
) -> Limits:
    """Bad above; with `at` a value that is the limit is bad too. `least` is that of relative limits."""
    side = Side.AT_OR_ABOVE if at else Side.ABOVE
    return _levels(side, warning, critical, relative=relative, least=least)


def below(
    warning: float | None, critical: float | None = None, *, relative: bool = False, at: bool = False
) -> Limits:
    """Bad below; with `at` a value that is the limit is bad too."""
    return _levels(Side.AT_OR_BELOW if at else Side.BELOW, warning, critical, relative=relative)


def between(low: Limits, high: Limits) -> Limits:
    """Healthy in between: bad below by `low` and above by `high`."""
    return Limits(warning=high.warning, critical=high.critical, other=low)


def _levels(
    side: Side, warning: float | None, critical: float | None, *, relative: bool, least: float = 0.0
) -> Limits:
    def level(value: float | None) -> Limit | None:
        """Return the limit at a value; `None` without one."""
        return None if value is None else Limit(side=side, value=value, relative=relative, least=least)

    return Limits(warning=level(warning), critical=level(critical))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """One row of the catalogue, equal to itself alone: comparing all fields costs more than judging by it."""

    name: str
    """OpenTelemetry name, dotted and lower-case."""
    short: str = ""
    """Name in `run.update(...)`, `run.envs(...)` and in the snapshot, unique within its scope; the last part
    of `name` where it is left out."""
    kind: Kind
    unit: str
    """UCUM; `1` only for true ratios within 0..1, braces for annotations."""
    scope: Scope
    asks: str
    """The question this row answers, for an operator."""
    label: str = ""
    """At most eight cells, for the screen; `short` where it is left out."""
    limits: Limits = NO_LIMITS
    """Limits of the preset `ppo`."""
    presets: dict[str, Limits] = field(default_factory=dict)
    """Limits of the other presets, where they differ."""
    direction: Direction = Direction.NONE
    non_finite: NonFinite = NonFinite.CRITICAL
    fmt: str = ".3f"
    """`format()` specification for panels."""
    suffix: str = ""
    """Shown after the value, e.g. `max` where the value is a share of its maximum."""
    banner_fmt: str | None = None
    """`format()` specification for the one-line banner, where it differs."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Constant attributes of the output series."""
    labels: tuple[str, ...] = ()
    """Names of the labels of a service's counter or histogram, in the order in which they are shown."""
    buckets: tuple[float, ...] = ()
    """Upper ends of a service's histogram, rising; one more holds what is above the last."""
    max_series: int = 64
    """Label sets of one producer; what is beyond them is one set, whose values are `other`."""
    adds_up: bool = False
    """Whether a gauge's values add up over subjects, which makes it an UpDownCounter in OTLP."""
    hold: tuple[int, int] = (3, 5)
    """A finding needs `hold[0]` bad of the last `hold[1]` updates."""
    mean_of: int = 1
    """Judged by the mean of so many newest values: a number too noisy to be judged alone."""
    warm_above: float | None = None
    """The row is not judged until a value was above this, or for fifty updates."""
    fix: str = ""
    """What to do first when this row is bad."""
    tele: tuple[str, ...] = ()
    """Ids of the telemetry records this row implements."""
    aliases: tuple[Alias, ...] = ()
    """Other spellings accepted on input."""
    also: tuple[str, ...] = ()
    """Other names under which its series are on the Prometheus page too."""
    estimator: Estimator | None = None
    """How it is computed, of a divergence."""
    moment: Moment | None = None
    """Over what an update's values become one, where that matters."""
    cadence: Cadence | None = None
    """When a new value comes; `None` is what is usual in its scope."""
    depends_on: tuple[str, ...] = ()
    """What it is computed from: full names of rows, or `event:` and an event's tag."""
    feeds: tuple[str, ...] = ()
    """Who reads it besides rows that depend on it: `event:`, `finding:`, `bound:` or `field:` and a name."""
    chooses: str | None = None
    """The preset that suits a run which emits this and names neither preset nor algorithm."""
    parts: str = ""
    """Of what it may come one by one, as `head`: `SHORT/NAME` is the number of one: shown, not judged."""

    def __post_init__(self) -> None:
        short = self.short or self.name.rpartition(".")[2]
        object.__setattr__(self, "short", short)
        object.__setattr__(self, "label", self.label or short.replace("_", " "))

    def limits_for(self, preset: str) -> Limits:
        """Limits under `preset`; a preset without its own uses the row's."""
        return self.presets.get(preset, self.limits)

    @property
    def every(self) -> Cadence:
        """When a new value comes."""
        return self.cadence or _USUAL[self.scope]

    @property
    def precision(self) -> int | None:
        """Decimals shown, `None` where the format has no fixed number of them."""
        digits = self.fmt.rpartition(".")[2].rstrip("f%e")
        return int(digits) if digits.isdecimal() and "." in self.fmt else None


_USUAL = {
    Scope.RUN: Cadence.UPDATE,
    Scope.POLICY: Cadence.UPDATE,
    Scope.GPU: Cadence.SAMPLE,
    Scope.ENV: Cadence.STEP,
    Scope.SLOT: Cadence.STEP,
    Scope.HOST: Cadence.SAMPLE,
    Scope.LEARNER: Cadence.UPDATE,
    Scope.ACTOR: Cadence.STEP,
    Scope.REPLAY: Cadence.REQUEST,
    Scope.ORCHESTRATOR: Cadence.REQUEST,
    Scope.ROLLOUTS: Cadence.REQUEST,
    Scope.TOWER: Cadence.TICK,
}
