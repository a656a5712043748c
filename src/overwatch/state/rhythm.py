"""The phases of each rank over time: how long each takes, what share of the time, and what follows on what.

Rules: producer's time only, so a spool that drains fast changes nothing; a rank is compared with itself.
Must not know when a phase is late.
"""

from bisect import bisect_left
from typing import Final

import msgspec

from overwatch.catalog.phases import DURATION_ENDS_S
from overwatch.state.ring import Ring

PHASES: Final = 16
"""Newest durations of one phase."""
MARKS: Final = 32
MARK_NS: Final = 1_000_000_000
"""Least time between two marks of a phase's total."""
GAPS: Final = 16
"""Newest gaps remembered of one phase after another."""
UPDATE: Final = "update"
"""The step of a rank that tells its updates and no phases."""
LONGEST_S: Final = 2**63 / 1e9
"""No clock of ours counts longer; nor can so many phases as there may be add up to what is no number."""
MAX_PAIRS: Final = 256
"""Pairs of phases of one rank whose gaps are remembered."""


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a phase that has a span."""

    duration_s: float
    at: int
    """Producer's time of its end."""
    trace_id: str
    span_id: str


class Phase(msgspec.Struct, kw_only=True):
    """One phase of one rank."""

    seconds: Ring[float] = msgspec.field(default_factory=lambda: Ring(PHASES))
    """The newest durations."""
    ends: Ring[int] = msgspec.field(default_factory=lambda: Ring(PHASES))
    """Producer's time at which each of them ended."""
    total_s: float = 0.0
    """All durations together."""
    marks: Ring[tuple[int, float]] = msgspec.field(default_factory=lambda: Ring(MARKS))
    """(end, total up to it), for the phase's share of the time."""
    at: int = 0
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(DURATION_ENDS_S) + 1))
    """How many took how long, by `DURATION_ENDS_S`."""
    traced: dict[int, Traced] = msgspec.field(default_factory=dict)
    """By place in `counts`, the newest that has a span."""

    def push(self, at: int, duration_s: float, span: tuple[str, str] | None = None) -> None:
        """Note one that ended at `at`, of a span (its trace's id and its own) where it has one.

        A duration that is no length of time counts as none.
        """
        duration_s = duration_s if 0 <= duration_s <= LONGEST_S else 0.0
        self.seconds.push(duration_s)
        self.ends.push(at)
        self.total_s += duration_s
        place = bisect_left(DURATION_ENDS_S, duration_s)
        self.counts[place] += 1
        if span is not None:
            self.traced[place] = Traced(duration_s=duration_s, at=at, trace_id=span[0], span_id=span[1])
        self.at = max(self.at, at)
        if not self.marks.items or at - self.marks.items[-1][0] >= MARK_NS:
            self.marks.push((at, self.total_s))


class Rhythm(msgspec.Struct, kw_only=True):
    """What one rank's training does after what, and how long that takes."""

    last: str | None = None
    """The step that ended last."""
    at: int = 0
    """When, in producer's time."""
    seen_at: int = 0
    """Newest sign that its training goes on within a step: an early stop, a checkpoint."""
    gaps: dict[str, dict[str, Ring[float]]] = msgspec.field(default_factory=dict)
    """Seconds from the end of one step to the end of the next, by both names."""
    pairs: int = 0

    def begin(self) -> None:
        """Note that the rank began again: what comes next follows on nothing."""
        self.last = None

    def step(self, name: str, at: int) -> None:
        """Note that a step ended."""
        if self.last is not None and at >= self.at:
            after = self.gaps.setdefault(self.last, {})
            if name not in after and self.pairs < MAX_PAIRS:
                self.pairs += 1
                after[name] = Ring(GAPS)
            if name in after:
                after[name].push((at - self.at) / 1e9)
        self.last, self.at = name, max(self.at, at)
