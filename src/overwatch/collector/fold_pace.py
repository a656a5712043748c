"""How long the fold will take for what waits, so that nothing more is taken in while that is too long.

Must not know protocols.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from overwatch.journal import Batch, Cursor

_LEARNT_BYTES: Final = 64 << 10
"""Bytes in a tick from which on it says how fast the fold is."""
_SPARED_BYTES: Final = 1 << 20
"""Bytes that may wait for the fold in any case."""
_LOOK_S: Final = 0.05
"""How long one estimate counts, in seconds."""
_KEPT: Final = 0.8
"""How much of what was learnt about the fold is left after each tick that says more."""


class FoldPace:
    """The fold's cursor, and how long the fold will take for what waits. Safe from any thread."""

    def __init__(self, cursor: Cursor, unread: Callable[[], int]) -> None:
        """`unread` says how many bytes the cursor has not read."""
        self._cursor = cursor
        self._unread = unread
        self._lock = threading.Lock()
        self._taken = 0
        """Bytes that the fold took last, and may still be at."""
        self._taken_at = time.monotonic()
        self._cpu_s = 0.0
        """The fold's thread's time at that moment."""
        self._learnt_bytes, self._learnt_s = 0.0, 0.0
        self._looked_at, self._behind_s = 0.0, 0.0

    @property
    def position(self) -> int:
        """Sequence number of the next batch to read."""
        return self._cursor.position

    def earlier(self) -> Iterator[Batch]:
        """Unread batches of earlier lives."""
        return self._cursor.earlier()

    def seal(self, tick: int) -> list[Batch]:
        """All unread batches stamped at or before `tick`; the fold is done with what it took before."""
        spent = time.thread_time()
        with self._lock:
            if self._taken >= _LEARNT_BYTES:
                self._learnt_bytes = self._learnt_bytes * _KEPT + self._taken
                self._learnt_s = self._learnt_s * _KEPT + spent - self._cpu_s
            self._taken = 0
        batches = self._cursor.seal(tick)
        with self._lock:
            self._taken = sum(batch.size for batch in batches)
            self._taken_at, self._cpu_s = time.monotonic(), time.thread_time()
        return batches

    def wait(self, timeout_s: float) -> list[Batch]:
        """Unread batches; waits up to `timeout_s` seconds for the first."""
        return self._cursor.wait(timeout_s)

    def keep(self, position: int) -> None:
        """Say that batches before `position` are not needed again."""
        self._cursor.keep(position)

    def behind_s(self) -> float:
        """How long the fold has still to do, in seconds, as of a moment ago; 0 where little waits."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at, self._behind_s = now, self._estimate(now)
        return self._behind_s

    def _estimate(self, now: float) -> float:
        unread = self._unread()
        with self._lock:
            waiting = unread + self._taken
            if waiting <= _SPARED_BYTES:
                return 0.0
            running_s = now - self._taken_at if self._taken else 0.0
            rate = self._learnt_bytes / self._learnt_s if self._learnt_s > 0 else 0.0
            return max(running_s, waiting / rate if rate else 0.0)
