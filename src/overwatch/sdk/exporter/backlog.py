"""When what gathered leaves for the spool while earlier requests still wait there. Pure.

Rules: with nothing before it, it leaves at once. Behind a backlog it waits for company, each time twice as
long: whatever a collector can take, the number of requests falls below it, and what is shown of the run does
not grow older and older. Nothing arrives later by that, since what is in the spool goes first. Must not know
what is sent.
"""

from typing import Final

FIRST_S: Final = 1.0
MOST_S: Final = 8.0
"""What the exporter has read by then lies in the trainer's rings alone, not on disk."""


class Backlog:
    """How long what gathers may wait behind what was sent before."""

    def __init__(self) -> None:
        self._due = 0.0
        self._wait_s = FIRST_S

    def is_due(self, now: float, *, is_behind: bool) -> bool:
        """Whether what gathered leaves now; `is_behind` while the spool is not empty."""
        return not is_behind or now >= self._due

    def left(self, now: float, *, is_behind: bool) -> None:
        """Note that it left, behind earlier requests or not."""
        self._wait_s = min(self._wait_s * 2, MOST_S) if is_behind else FIRST_S
        self._due = now + self._wait_s
