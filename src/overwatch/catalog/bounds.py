"""What can hold a lane or a run back: every verdict there is, with what it means and what to do first.

A bound is added here and as a rule in `overwatch.diagnose.bounds`; screen, `/metrics` and docs follow.
"""

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final


class BoundState(Enum):
    """A verdict; the value is the word on the screen."""

    THROTTLED = "THROTTLED"
    OOM_RISK = "OOM-RISK"
    STRAGGLER = "STRAGGLER"
    SYNC = "SYNC-BOUND"
    WEIGHTS = "WEIGHTS-BOUND"
    STARVED = "STARVED"
    IO = "IO-BOUND"
    COMPUTE = "COMPUTE-BOUND"
    ENV = "ENV-BOUND"
    INFERENCE = "INFER-BOUND"
    LEARNER = "LEARNER-BOUND"
    MEMORY = "MEMORY-BOUND"
    HOST = "HOST-BOUND"
    IDLE = "idle"
    UNKNOWN = "unknown"

    @property
    def label(self) -> str:
        """The word in `/metrics`: `io`, `oom_risk`, `unknown`."""
        return self.value.removesuffix("-BOUND").lower().replace("-", "_")


class Colour(Enum):
    """What a verdict is drawn as in a report, with the words of its legend."""

    GOOD = "compute-bound: as it should be"
    WAIT = "waits for others"
    BAD = "throttled, straggler, memory almost full"
    ENV = "envs, inference, learner"
    HOST = "host, memory, I/O"
    IDLE = "idle"
    NONE = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The finding of a bound that several lanes have for one reason: one for all of them."""

    code: str
    message: str
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    """One verdict."""

    state: BoundState
    colour: Colour
    means: str
    """What is true when it is the verdict."""
    needs: str
    """Signals without which it is never the verdict."""
    first: str
    """What to do first."""
    fault: bool = False
    """Whether something is wrong, and not only as fast as it gets."""
    shared: Shared | None = None
    """Its finding, where it is not one of each lane alone."""


ROWS: Final = (
    BoundRow(
        state=BoundState.THROTTLED,
        colour=Colour.BAD,
        means="Heat, power or a slowdown keeps the clock down, by the driver's own reasons; or it is low "
        "under load, and the driver gives no reason.",
        needs="throttle reasons; or, where a device reports none, clock and highest clock under load",
        first="Heat: cool it. Power: raise its cap. A low clock that nobody explains: find who set it.",
        fault=True,
    ),
    BoundRow(
        state=BoundState.OOM_RISK,
        colour=Colour.BAD,
        means="Memory will be full in minutes at the pace its peaks rise, or is nearly full.",
        needs="used and total memory; for a time, eight readings whose rise stands out from their noise",
        first="Look for what is kept from step to step; a smaller batch gives time.",
        fault=True,
    ),
    BoundRow(
        state=BoundState.STRAGGLER,
        colour=Colour.BAD,
        means="This lane, or the rank on it, works 1.3 times as long as the median of its peers; they wait.",
        needs="step times of two lanes of a kind, or the phases of two ranks with a `sync` phase",
        first="Compare its clock, PCIe width and neighbours with a lane that is not slow.",
        fault=True,
    ),
    BoundRow(
        state=BoundState.SYNC,
        colour=Colour.WAIT,
        means="It waits for a slower lane or rank, or at a barrier, 15 % of its time or more; or it works "
        "and rests in turn, and no phase shows for what; or learner and actors take turns.",
        needs="a `sync` phase; step times of two lanes of a kind with utilisation; utilisation over time; or "
        "a `queue_wait` phase with the `rollout` phases of actors",
        first="Look at the one it waits for, not at this one.",
    ),
    BoundRow(
        state=BoundState.WEIGHTS,
        colour=Colour.WAIT,
        means="Bringing new weights to those who collect takes 15 % of the time or more.",
        needs="a `weights` phase",
        first="Send them less often, in a smaller type, or over a faster way.",
        shared=Shared(code="weights-slow", message="slow weights", scope="run"),
        fault=True,
    ),
    BoundRow(
        state=BoundState.STARVED,
        colour=Colour.WAIT,
        means="The learner waits for experience 15 % of its time or more, or its queue of it is dry: actors "
        "are too few or slow, or replay is.",
        needs="`queue_depth` and `queue_capacity`, or a `queue_wait` phase",
        first="More actors or envs, or more epochs a batch.",
        shared=Shared(code="queue-starved", message="starved learner", scope="run"),
        fault=True,
    ),
    BoundRow(
        state=BoundState.IO,
        colour=Colour.HOST,
        means="It waits for data: the loader's queue is dry, or loading or saving takes long, and it rests.",
        needs="utilisation with the loader's depth, or a `load` or `checkpoint` phase",
        first="More loader workers, faster storage, fewer or asynchronous checkpoints.",
        shared=Shared(code="io-starvation", message="io starvation", scope="host"),
        fault=True,
    ),
    BoundRow(
        state=BoundState.ENV,
        colour=Colour.ENV,
        means="Waiting for environments takes half of the time or more, and the device rests meanwhile.",
        needs="an `env_wait` phase",
        first="More envs a worker, asynchronous envs, more cores, or envs on the device.",
    ),
    BoundRow(
        state=BoundState.INFERENCE,
        colour=Colour.ENV,
        means="Choosing actions takes half of the time or more.",
        needs="an `inference` phase",
        first="Larger batches of observations, compile or graphs, a smaller type.",
    ),
    BoundRow(
        state=BoundState.LEARNER,
        colour=Colour.ENV,
        means="Learning takes 60 % of the time or more, or its queue of experience is full, and the device "
        "is not full of work.",
        needs="an `update` phase, or `queue_depth` and `queue_capacity`",
        first="Larger minibatches, fewer epochs, compile or mixed precision.",
    ),
    BoundRow(
        state=BoundState.COMPUTE,
        colour=Colour.GOOD,
        means="Busy 90 % of the time, with 60 % of its power or its processors active: as it should be.",
        needs="utilisation with power and its limit, or the processors' activity",
        first="Nothing; a faster device or a smaller model is what would help.",
    ),
    BoundRow(
        state=BoundState.MEMORY,
        colour=Colour.HOST,
        means="Memory is taken, so that a larger batch does not fit, and the device is not busy.",
        needs="used and total memory with utilisation",
        first="Mixed precision or smaller activations make room.",
    ),
    BoundRow(
        state=BoundState.HOST,
        colour=Colour.HOST,
        means="Kernels run all the time and draw little power, or one core of the host is full and the "
        "device rests: the host launches small kernels one by one.",
        needs="utilisation with power and its limit, or with the busiest core",
        first="Graphs, compile, or a bigger batch.",
    ),
    BoundRow(
        state=BoundState.IDLE,
        colour=Colour.IDLE,
        means="Nothing runs on it.",
        needs="utilisation",
        first="Give it work, or give it back.",
    ),
    BoundRow(
        state=BoundState.UNKNOWN,
        colour=Colour.NONE,
        means="No rule can decide. It names the missing signals; it never means that all is well.",
        needs="nothing",
        first="Report what it names as missing.",
    ),
)  # fmt: skip
"""In the order in which they are tried: the first that applies speaks."""

BY_STATE: Final = MappingProxyType({row.state: row for row in ROWS})
