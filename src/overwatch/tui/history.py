"""How the policy's numbers went, as this terminal saw them: one sample an update.

A snapshot carries ten updates; this keeps more for as long as the terminal is open. Must not know drawing.
"""

from collections import deque
from typing import Final

from overwatch.snapshot import Snapshot

SAMPLES: Final = 600


class History:
    """Samples of one run, by the reading's short name."""

    def __init__(self) -> None:
        self._run: str | None = None
        self._update: int | None = None
        self._values: dict[str, deque[float | None]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """What is new; another run, or an earlier update, starts anew with what the snapshot carries."""
        update = snapshot.run.update
        if snapshot.run.run_id != self._run or (update or 0) < (self._update or 0):
            self._values.clear()
            self._update = None
        fresh = None if self._update is None or update is None else update - self._update
        self._run, self._update = snapshot.run.run_id, update
        for name, reading in snapshot.policy.items():
            values = self._values.setdefault(name, deque(maxlen=SAMPLES))
            if not values or fresh is None:
                values.clear()
                values.extend(reading.history)
            elif fresh > 0:
                missed = max(0, fresh - len(reading.history))
                values.extend([None] * min(missed, SAMPLES))
                values.extend(reading.history[-fresh:])

    def of(self, name: str) -> tuple[float | None, ...]:
        """A reading's samples, oldest first."""
        return tuple(self._values.get(name, ()))
