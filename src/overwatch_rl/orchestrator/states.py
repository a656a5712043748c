"""The states of a run, which follow which, and how it is with a run whose learner is silent.

Rules: one machine, one table of legal moves; an illegal one is refused with both names and what is legal.
Health is no state: a learner that is silent has changed nothing. What an operator terminated stays so; a run
that was completed or has failed may be gone on with by a new life of its learner. Silence is measured by a
clock that never goes back; before the first heartbeat that this server got, from its start. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal["pending", "running", "paused", "terminating", "completed", "failed", "terminated"]

LEGAL: Final[Mapping[State, tuple[State, ...]]] = {
    "pending": ("running", "failed", "terminated"),
    "running": ("paused", "terminating", "completed", "failed"),
    "paused": ("running", "terminating", "completed", "failed"),
    "terminating": ("completed", "failed", "terminated"),
    "completed": (),
    "failed": (),
    "terminated": (),
}
"""From each state, where it may go."""

RESUMABLE: Final[frozenset[State]] = frozenset(("completed", "failed"))
"""Ends that a new life of the learner may go on from."""

FINAL: Final[frozenset[State]] = frozenset(state for state, legal in LEGAL.items() if not legal)

WATCHED: Final[frozenset[State]] = frozenset(("running", "paused", "terminating"))
"""States in which a learner must beat."""

LEAST_S: Final = 5.0
"""The least time between two heartbeats of a run."""
Health: TypeAlias = Literal["healthy", "stale", "unresponsive"]

STALE_S: Final = 45.0
"""So long after the last heartbeat a run is stale: two were lost, and a third is late."""
UNRESPONSIVE_S: Final = 135.0
"""So long after it is unresponsive."""


class IllegalMoveError(ValueError):
    """A move that the table does not have."""

    def __init__(self, before: State, after: State) -> None:
        legal = ", ".join(LEGAL[before]) or "none"
        resumed = "; a new life of its learner may go on with it" if before in RESUMABLE else ""
        super().__init__(f"{before} → {after} is not legal; from {before} these are: {legal}{resumed}")


def route(before: State, after: State, *, is_new_life: bool = False) -> tuple[State, ...]:
    """The legal moves from one state to another, the fewest; raises `IllegalMoveError` where there are none.

    To stay is no move. What one report skips is passed through: a learner whose first word is that it is
    paused was running before.

    >>> route("running", "paused"), route("pending", "paused"), route("running", "running")
    (('paused',), ('running', 'paused'), ())
    """
    found: list[tuple[State, ...]] = [()]
    for path in found:
        at = path[-1] if path else before
        if at == after:
            return path
        resumed: tuple[State, ...] = ("running",) if is_new_life and at in RESUMABLE and not path else ()
        found += [(*path, state) for state in (*LEGAL[at], *resumed) if state not in path]
    raise IllegalMoveError(before, after)


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
    """When the learner of each run that is not over beat last."""

    def __init__(self, pace: Pace, now: float) -> None:
        self.pace = pace
        self._began = now
        self._beats: dict[str, float] = {}
        self._noticed: dict[str, Health] = {}
        """What was last reported of a run; one that is absent is healthy."""

    def early_s(self, run_id: str, now: float) -> float:
        """How long until a run may beat again; 0 where it may."""
        silence_s = self.silence_s(run_id, now)
        return 0.0 if silence_s is None else max(0.0, self.pace.least_s - silence_s)

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
        if silence_s >= self.pace.stale_s:
            return "unresponsive" if silence_s >= self.pace.unresponsive_s else "stale"
        return "healthy" if run_id in self._beats else None

    def noticed(self, run_id: str, state: State, now: float) -> Health | None:
        """What has become worse since the last look."""
        found = self.health(run_id, state, now)
        if found is None or found in ("healthy", self._noticed.get(run_id)):
            return None
        self._noticed[run_id] = found
        return found
