"""Runs that go on where following ended, and how far each is delivered.

Rules: a run is remembered as far as its requests were answered, in the order in which they were sent. Must
not know how requests are sent.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from overwatch.follow.memory import Memory, Remembered
from overwatch.follow.runs import Run


class Resuming:
    """All runs of one `follow`; without a memory each begins at the beginning, as where `is_anew`."""

    def __init__(self, memory: Memory | None, *, is_anew: bool = False) -> None:
        self._memory, self._is_anew = memory, is_anew
        self._known: set[str] = set()
        self._last: dict[str, tuple[int, ...]] = {}
        self._ahead: deque[tuple[int, Run, Remembered]] = deque()
        """How far runs were read, by the number of the request that delivers it."""

    def recall(self, runs: Iterable[Run], now: int) -> Iterator[str]:
        """Let runs that are new here go on from where they were delivered to; a line for each that does."""
        for run in runs:
            if self._memory is None or self._is_anew or run.run_id in self._known:
                continue
            self._known.add(run.run_id)
            found = self._memory.recall(run.run_id, run.paths)
            if found is not None:
                run.recall(found, now)
            if run.story.rows:
                yield f"run {run.run_id}: goes on behind {run.story.rows:,} rows that were delivered before"

    def sent(self, run: Run, requests: int) -> None:
        """What was read of a run was given to the sender, which has so many requests in all."""
        if self._memory is not None and run.paths and run.place != self._last.get(run.run_id):
            self._last[run.run_id] = run.place
            self._ahead.append((requests, run, run.reached()))

    def settled(self, requests: int) -> None:
        """So many requests were answered."""
        done: dict[str, tuple[Run, Remembered]] = {}
        while self._ahead and self._ahead[0][0] <= requests:
            _, run, reached = self._ahead.popleft()
            done[run.run_id] = (run, reached)
        for run, reached in done.values():
            if self._memory is not None:
                self._memory.keep(run.run_id, run.paths, reached)
