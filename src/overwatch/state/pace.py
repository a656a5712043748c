"""How much a run gets done over time: stretches of whole updates, for what was its best and what it is now.

Rules: producer's time only; a stretch begins and ends with an update, so that collecting and learning are in
each in the same measure; the first stretches, and those over a change of the task or of the processes, are
no measure. Must not know what is slow.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from overwatch.state.rhythm import Phase
from overwatch.state.ring import Ring

Phases: TypeAlias = Mapping[int, Mapping[str, Phase]]
"""By rank, then by name."""

STRETCH_NS: Final = 10_000_000_000
"""Least length of a stretch."""
STRETCHES: Final = 360
"""Stretches remembered: an hour of the shortest."""
WARM_UP_UPDATES: Final = 3
"""Updates before the first stretch: compiling, filling caches and queues."""
MAX_PHASES: Final = 12
"""Phases of which a stretch says how long they took."""


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
        """Env steps a second; updates where the run tells no steps."""
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
