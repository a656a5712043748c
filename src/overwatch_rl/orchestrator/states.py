"""The states of a run, which follow which, and how it is with a run whose learner is silent.

Rules: one machine, one table of legal moves; an illegal one is refused with both names and what is legal.
Health is no state: a learner that is silent has changed nothing. What an operator terminated stays so; a run
that was completed or has failed may be gone on with by a new life of its learner. Pure. Must not know time or
storage.
"""

from collections.abc import Mapping
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
        self.before = before
        self.after = after


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


def health(silence_s: float, stale_s: float = STALE_S, unresponsive_s: float = UNRESPONSIVE_S) -> Health:
    """How it is with a run that is watched, so long after its last heartbeat.

    >>> health(44.9), health(45), health(135)
    ('healthy', 'stale', 'unresponsive')
    """
    if silence_s >= unresponsive_s:
        return "unresponsive"
    return "stale" if silence_s >= stale_s else "healthy"
