"""What each rank spends its time on, and which rank the others wait for: by the phases that it told.

A share is of all the time that passed, so phases within phases count once each and a phase may happen many
times an update. A rank's work is what is left of an update when its waiting for others is taken off: the
straggler is who works longest and waits least. Pure.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import msgspec

from overwatch.catalog.phases import Phase as Kind
from overwatch.catalog.phases import parse_phase
from overwatch.state.arrays import median
from overwatch.state.rhythm import Phase

LEAST_ENDS: Final = 3
WINDOW_NS: Final = 20_000_000_000
"""Of the time that a share is a share of."""
LEAST_MARKS: Final = 4
"""Marks that are looked at, however long ago, where phases are long."""
START_NS: Final = 20_000_000_000
"""So long a learner may wait for its first experience."""
LEFT_NS: Final = 5_000_000_000
"""The least time for which others go on without a rank before it is no part of them."""
GONE: Final = 4
"""A phase that did not end for so many of its own intervals, and a minute, is no part of the loop."""


class Cycle(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank spends its time."""

    rank: int
    shares: dict[str, float] = {}
    """Share of the time by kind of phase; absent where the rank tells none of the kind."""
    coming: tuple[str, ...] = ()
    """Kinds of phases that it tells, of which too little is known for a share."""
    update_s: float | None = None
    """From the end of one update to that of the next."""
    work_s: float | None = None
    """Of that, what it does not wait for others; only where it tells how long it waits."""
    pace: float | None = None
    """Its work over the median of the other ranks'."""
    others_s: float | None = None
    """That median."""
    slowest: int | None = None
    """The rank that works longest, where it is another one."""

    def is_coming(self, kind: Kind) -> bool:
        """Whether a share of this kind will be known soon."""
        return kind.value in self.coming and kind.value not in self.shares

    def share(self, kind: Kind) -> float | None:
        """Share of the time spent in a kind of phase; `None` where the rank does not tell."""
        return self.shares.get(kind.value)


def cycles_of(phases: Mapping[int, Mapping[str, Phase]]) -> dict[int, Cycle]:
    """Every rank that tells phases, by rank, compared with the others; not one that they go on without."""
    newest = max((phase.at for of_rank in phases.values() for phase in of_rank.values()), default=0)
    cycles = {
        rank: _cycle(rank, of_rank) for rank, of_rank in phases.items() if not _is_left(of_rank, newest)
    }
    works = {rank: cycle.work_s for rank, cycle in cycles.items() if cycle.work_s is not None}
    if len(works) < 2:
        return cycles
    slowest = max(works, key=lambda rank: (works[rank], -rank))
    compared = dict(cycles)
    for rank, own in works.items():
        others = median([work for other, work in works.items() if other != rank])
        if others is not None and others > 0:
            compared[rank] = msgspec.structs.replace(
                cycles[rank],
                pace=own / others,
                others_s=others,
                slowest=None if slowest == rank else slowest,
            )
    return compared


def cycle_of(phases: Mapping[str, Phase]) -> Cycle:
    """One process that has no peers."""
    return _cycle(0, phases)


def _is_left(phases: Mapping[str, Phase], newest: int) -> bool:
    """Whether others have ended phases for long since this rank ended its last: no rank waits for it."""
    own = max((phase.at for phase in phases.values()), default=0)
    longest_s = max((_interval(phase) or 0.0 for phase in phases.values()), default=0.0)
    return newest - own > max(LEFT_NS, GONE * longest_s * 1e9)


def _cycle(rank: int, phases: Mapping[str, Phase]) -> Cycle:
    newest = max((phase.at for phase in phases.values()), default=0)
    shares: dict[str, float] = {}
    update_s: float | None = None
    coming: list[str] = []
    learns_since = min(
        (phase.marks.items[0][0] for name, phase in phases.items() if parse_phase(name) is Kind.UPDATE),
        default=None,
    )
    for name, phase in phases.items():
        kind = parse_phase(name)
        if kind is None:
            continue
        share = _share(phase, newest, _waits_since(phase, learns_since) if kind is Kind.QUEUE_WAIT else 0)
        if share is None:
            coming.append(kind.value)
            continue
        shares[kind.value] = min(1.0, shares.get(kind.value, 0.0) + share)
        if kind is Kind.UPDATE:
            update_s = _interval(phase)
    waits = shares.get(Kind.SYNC.value)
    work_s = None if waits is None or update_s is None else update_s * (1 - waits)
    return Cycle(rank=rank, shares=shares, coming=tuple(coming), update_s=update_s, work_s=work_s)


def _interval(phase: Phase) -> float | None:
    """Median seconds from one end to the next."""
    ends = phase.ends.items
    return median([(after - before) / 1e9 for before, after in pairwise(ends)])


def _waits_since(phase: Phase, learns_since: int | None) -> int:
    """From when on waiting for experience counts: from the first update, or after a start that takes long.

    Before that those who collect are still starting.
    """
    return phase.marks.items[0][0] + START_NS if learns_since is None else learns_since


def _share(phase: Phase, newest: int, since: int) -> float | None:
    """Share of the newest time, or of the newest few rounds; `None` where too little is known."""
    marks = [mark for mark in phase.marks.items if mark[0] >= since]
    if len(phase.ends.items) < LEAST_ENDS or len(marks) < 2:
        return None
    interval_s = _interval(phase) or 0.0
    if newest - phase.at > max(3 * WINDOW_NS, GONE * interval_s * 1e9):
        return 0.0
    first = min(
        max(0, len(marks) - LEAST_MARKS),
        next(place for place, mark in enumerate(marks) if mark[0] >= marks[-1][0] - WINDOW_NS),
    )
    (begun_at, begun_s), (ended_at, ended_s) = marks[first], marks[-1]
    return (ended_s - begun_s) / ((ended_at - begun_at) / 1e9)


def update_times(phases: Mapping[str, Phase]) -> list[float]:
    """Seconds of the newest updates of one rank, collecting and learning, oldest first."""
    found: list[float] = []
    for name, phase in phases.items():
        if parse_phase(name) is Kind.UPDATE:
            ends = phase.ends.items
            found = [(after - before) / 1e9 for before, after in pairwise(ends)]
    return found
