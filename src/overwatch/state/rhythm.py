"""The phases of each rank over time, and how much a run gets done: stretches of whole updates.

Rules: producer's time only, so a spool that drains fast changes nothing; a rank is compared with itself. A
stretch begins and ends with an update, so that collecting and learning are in each in the same measure; the
first stretches, and those over a change of the task or of the processes, are no measure. Must not know when a
phase is late, or what is slow.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from overwatch.catalog.phases import DURATION_ENDS_S
from overwatch.state.arrays import Ring

PHASES: Final = 16
"""Newest durations of one phase."""
MARKS: Final = 32
MARK_NS: Final = 1_000_000_000
"""Least time between two marks of a phase's total."""
GAPS: Final = 16
"""Newest gaps remembered of one phase after another."""
LONGEST_GAP_S: Final = 900.0
"""No gap is remembered as longer: that a loop hangs must become known."""
OPEN: Final = 16
"""Phases within one another that have begun and not ended."""
UPDATE: Final = "update"
"""The step of a rank that reports its updates and no phases."""
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
    since: int = 0
    """Producer's time of the end of the newest pause: shares and durations are measured from then on."""
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(DURATION_ENDS_S) + 1))
    """How many took how long, by `DURATION_ENDS_S`."""
    traced: dict[int, Traced] = msgspec.field(default_factory=dict)
    """By place in `counts`, the newest that has a span."""

    def push(self, at: int, duration_s: float, span: tuple[str, str] | None = None) -> None:
        """Note one that ended at `at`, of a span (its trace's id and its own) where it has one.

        A duration that is no length of time counts as none.
        """
        duration_s = duration_s if 0 <= duration_s <= LONGEST_S else 0.0
        self.seconds.push(min(duration_s, max(0.0, (at - self.since) / 1e9)) if self.since else duration_s)
        self.ends.push(at)
        self.total_s += duration_s
        place = bisect_left(DURATION_ENDS_S, duration_s)
        self.counts[place] += 1
        if span is not None:
            self.traced[place] = Traced(duration_s=duration_s, at=at, trace_id=span[0], span_id=span[1])
        self.at = max(self.at, at)
        if not self.marks.items or at - self.marks.items[-1][0] >= MARK_NS:
            self.marks.push((at, self.total_s))

    @property
    def first_at(self) -> int | None:
        """Producer's time of its oldest mark; `None` where none of it ended since the newest pause."""
        return self.marks.items[0][0] if self.marks.items else None

    def restart(self, at: int) -> None:
        """Measure shares and durations anew, from the end of a pause."""
        self.seconds, self.ends, self.marks = Ring(PHASES), Ring(PHASES), Ring(MARKS)
        self.since = at


class Gaps(msgspec.Struct, kw_only=True):
    """Seconds from the end of one step to the end of another."""

    newest_s: Ring[float] = msgspec.field(default_factory=lambda: Ring(GAPS))
    longest_s: float = 0.0
    """The longest: what is rare and long comes again."""

    def push(self, gap_s: float) -> None:
        """Note one."""
        self.newest_s.push(gap_s)
        self.longest_s = max(self.longest_s, min(gap_s, LONGEST_GAP_S))


class Rhythm(msgspec.Struct, kw_only=True):
    """What one rank's training does after what, and how long that takes."""

    last: str | None = None
    """The step that ended last."""
    at: int = 0
    """When, in producer's time."""
    seen_at: int = 0
    """Newest sign that its training goes on within a step: an early stop, a checkpoint."""
    gaps: dict[str, dict[str, Gaps]] = msgspec.field(default_factory=dict)
    """From the end of one step to the end of the next, by both names."""
    open: dict[str, int] = msgspec.field(default_factory=dict)
    """Phases that were announced and have not ended, outermost first, with the time of their beginning."""
    pairs: int = 0

    def begin(self) -> None:
        """Note that the rank began again: what comes next follows on nothing."""
        self.last = None
        self.open.clear()

    def resume(self, at: int) -> None:
        """Note that the rank goes on after a pause: what comes next follows on the end of that."""
        self.at = max(self.at, at)

    def enter(self, name: str, at: int) -> None:
        """Note that a phase began."""
        self.leave(name)
        if len(self.open) < OPEN:
            self.open[name] = at

    def leave(self, name: str) -> None:
        """Note that a phase ended, and with it what began within it."""
        if name in self.open:
            names = list(self.open)
            for within in names[names.index(name) :]:
                del self.open[within]

    def step(self, name: str, at: int, *, is_paused: bool) -> None:
        """Note that a step ended; in a pause, whose end may come in later, it shows no gap."""
        self.leave(name)
        if self.last is not None and at >= self.at and not is_paused:
            after = self.gaps.setdefault(self.last, {})
            if name not in after and self.pairs < MAX_PAIRS:
                self.pairs += 1
                after[name] = Gaps()
            if name in after:
                after[name].push((at - self.at) / 1e9)
        self.last, self.at = name, max(self.at, at)


Phases: TypeAlias = Mapping[int, Mapping[str, Phase]]
"""By rank, then by name."""

STRETCH_NS: Final = 10_000_000_000
"""Least length of a stretch."""
STRETCHES: Final = 360
"""Stretches remembered: an hour of the shortest."""
WARM_UP_UPDATES: Final = 3
"""Updates before the first stretch: compiling, filling caches and queues."""
MAX_PHASES: Final = 12
"""Phases of which a stretch holds how long they took."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Some updates one after another."""

    at: int
    """When the last of them ended."""
    seconds: float
    steps: int
    updates: int
    phases: dict[str, float] = {}
    """Seconds in each phase, over all ranks."""

    @property
    def rate(self) -> float:
        """Env steps a second; updates where the run reports no steps."""
        return (self.steps or self.updates) / self.seconds


class Pace(msgspec.Struct, kw_only=True):
    """What was done, stretch by stretch."""

    stretches: Ring[Stretch] = msgspec.field(default_factory=lambda: Ring(STRETCHES))
    warm: int = 0
    """Updates that passed before the first stretch."""
    begun_at: int = 0
    """When the stretch under way began; 0 = none has."""
    steps: int = 0
    updates: int = 0
    totals: dict[str, float] = msgspec.field(default_factory=dict)
    """Of each phase up to its begin."""

    def restart(self) -> None:
        """Measure anew: what was before is no measure of what comes."""
        self.stretches, self.warm, self.begun_at = Ring(STRETCHES), 0, 0

    def skip(self) -> None:
        """Leave out the stretch under way: it holds a pause."""
        self.warm = min(self.warm, WARM_UP_UPDATES - 1)

    def note(self, at: int, done: tuple[int, int], phases: Phases) -> None:
        """Note the end of an update, with the (steps, updates) done so far."""
        if self.warm < WARM_UP_UPDATES:
            self.warm += 1
            if self.warm == WARM_UP_UPDATES:
                self._begin(at, done, _totals(phases))
            return
        if at - self.begun_at < STRETCH_NS:
            return
        totals = _totals(phases)
        grew = {name: total - self.totals.get(name, 0.0) for name, total in totals.items()}
        longest = sorted(grew, key=lambda name: (-grew[name], name))[:MAX_PHASES]
        self.stretches.push(
            Stretch(
                at=at,
                seconds=(at - self.begun_at) / 1e9,
                steps=max(0, done[0] - self.steps),
                updates=max(0, done[1] - self.updates),
                phases={name: grew[name] for name in sorted(longest)},
            )
        )
        self._begin(at, done, totals)

    def _begin(self, at: int, done: tuple[int, int], totals: dict[str, float]) -> None:
        self.begun_at = at
        self.steps, self.updates = done
        self.totals = totals


def _totals(phases: Phases) -> dict[str, float]:
    """Seconds in each phase so far, over all ranks."""
    totals: dict[str, float] = {}
    for of_rank in phases.values():
        for name, phase in of_rank.items():
            totals[name] = totals.get(name, 0.0) + phase.total_s
    return totals
