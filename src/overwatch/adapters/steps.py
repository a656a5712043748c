"""Numbers that come one by one, each with its step: those of one step are one update.

Must not know which writer gives them.
"""

from collections.abc import Mapping


class Steps:
    """The numbers of the newest step."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._waiting: dict[str, float] = {}

    def take(self, step: int | None, numbers: Mapping[str, float]) -> dict[str, float] | None:
        """Take numbers of a step; another step than before finishes the update before, which is returned."""
        finished = self.rest() if step != self._step else None
        self._step = step
        self._waiting.update(numbers)
        return finished

    def rest(self) -> dict[str, float] | None:
        """What waits: the last update has no step after it."""
        finished, self._waiting = self._waiting or None, {}
        return finished
