"""When each learner beat last, by a clock that never goes back, and what its silence means.

Rules: the wall clock is not used, so a step of it makes no run stale. Before its first heartbeat in this life
of the server a run's silence counts from the server's start: while the server was away no learner could beat.
Pure.
"""

from dataclasses import dataclass
from typing import Final

from overwatch_rl.orchestrator.states import STALE_S, UNRESPONSIVE_S, WATCHED, Health, State, health

LEAST_S: Final = 5.0
"""The least time between two heartbeats of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a learner beats, and after which silence that is noticed."""

    least_s: float = LEAST_S
    stale_s: float = STALE_S
    unresponsive_s: float = UNRESPONSIVE_S

    def __post_init__(self) -> None:
        if not 0 <= self.least_s < self.stale_s < self.unresponsive_s:
            raise ValueError(
                f"heartbeat-s is {self.least_s:g}, stale-s {self.stale_s:g}, unresponsive-s "
                f"{self.unresponsive_s:g}; use rising numbers"
            )


class Pulses:
    """Those of all runs that are not over."""

    def __init__(self, pace: Pace, now: float) -> None:
        self.pace = pace
        self._began = now
        self._beats: dict[str, float] = {}
        self._noticed: dict[str, Health] = {}
        """What was last reported of a run; one that is absent is healthy."""

    def early_s(self, run_id: str, now: float) -> float:
        """How long until a run may beat again; 0 where it may."""
        last = self._beats.get(run_id)
        return 0.0 if last is None else max(0.0, last + self.pace.least_s - now)

    def beat(self, run_id: str, now: float) -> Health | None:
        """A heartbeat was accepted: `healthy` where the run had been silent for too long."""
        self._beats[run_id] = now
        return "healthy" if self._noticed.pop(run_id, None) else None

    def forget(self, run_id: str) -> None:
        """A run is over."""
        self._beats.pop(run_id, None)
        self._noticed.pop(run_id, None)

    def silence_s(self, run_id: str, now: float) -> float | None:
        """Since the last heartbeat that this server got; `None` where it got none."""
        last = self._beats.get(run_id)
        return None if last is None else now - last

    def health(self, run_id: str, state: State, now: float) -> Health | None:
        """How it is with a run; `None` where no learner is awaited, or it is too early to know."""
        if state not in WATCHED:
            return None
        silence_s = now - self._beats.get(run_id, self._began)
        found = health(silence_s, self.pace.stale_s, self.pace.unresponsive_s)
        return None if found == "healthy" and run_id not in self._beats else found

    def noticed(self, run_id: str, state: State, now: float) -> Health | None:
        """What has become worse since the last look."""
        found = self.health(run_id, state, now)
        if found is None or found == "healthy" or found == self._noticed.get(run_id):
            return None
        self._noticed[run_id] = found
        return found
