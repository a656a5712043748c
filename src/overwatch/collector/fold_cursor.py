"""The fold's cursor: counts what it takes, and estimates how long it will take for what waits.

Rules: batches of earlier lives were accepted by another process and are not counted. While the estimate is
too long, nothing more is taken in. Must not know protocols.
"""

import threading
import time
from collections.abc import Iterator
from typing import Final

from overwatch.collector.signals import WIRES
from overwatch.collector.tally import Tally
from overwatch.journal import Batch, Cursor, Gap, Journal, Signal
from overwatch.otlp.decode import items_of

FOLD: Final = "aggregator"
"""The name of the fold's cursor, of its exporter and of its part in health."""
_LEARNT_BYTES: Final = 64 << 10
"""Bytes in a tick from which on it shows how fast the fold is."""
_SPARED_BYTES: Final = 1 << 20
"""Bytes that may wait for the fold in any case."""
_LOOK_S: Final = 0.05
"""How long one estimate counts, in seconds."""
_KEPT: Final = 0.8
"""How much of what was learnt about the fold is left after each tick that shows more."""


class FoldCursor:
    """A place in the journal; what `seal` and `wait` give counts as sent. Safe from any thread."""

    def __init__(self, cursor: Cursor, journal: Journal, tally: Tally, signals: frozenset[Signal]) -> None:
        self._cursor = cursor
        self._journal = journal
        self._tally = tally
        self._signals = signals
        self._lock = threading.Lock()
        self._taken = 0
        """Bytes that the fold took last, and may still be at."""
        self._taken_at = time.monotonic()
        self._cpu_s = 0.0
        """The fold's thread's time at that moment."""
        self._learnt_bytes, self._learnt_s = 0.0, 0.0
        self._looked_at, self._behind_s = 0.0, 0.0
        for signal in signals:
            self._add(signal, 0)

    @property
    def position(self) -> int:
        """Sequence number of the next batch to read."""
        return self._cursor.position

    def earlier(self) -> Iterator[Batch]:
        """Unread batches of earlier lives."""
        return self._cursor.earlier()

    def reach(self, tick: int) -> Gap | None:
        """Seal `tick`, or return the gap that it lies in."""
        return self._cursor.reach(tick)

    def settled(self, tick: int, timeout_s: float) -> bool:
        """Whether `seal` would return at once."""
        return self._cursor.settled(tick, timeout_s)

    def seal(self, tick: int) -> list[Batch]:
        """All unread batches stamped at or before `tick`; the fold is done with what it took before."""
        spent = time.thread_time()
        with self._lock:
            if self._taken >= _LEARNT_BYTES:
                self._learnt_bytes = self._learnt_bytes * _KEPT + self._taken
                self._learnt_s = self._learnt_s * _KEPT + spent - self._cpu_s
            self._taken = 0
        batches = self._counted(self._cursor.seal(tick))
        with self._lock:
            self._taken = sum(batch.size for batch in batches)
            self._taken_at, self._cpu_s = time.monotonic(), time.thread_time()
        return batches

    def wait(self, timeout_s: float) -> list[Batch]:
        """Unread batches; waits up to `timeout_s` seconds for the first."""
        return self._counted(self._cursor.wait(timeout_s))

    def keep(self, position: int) -> None:
        """Let go of batches before `position`."""
        self._cursor.keep(position)

    def behind_s(self) -> float:
        """How long the fold has still to do, in seconds, as of a moment ago; 0 where little waits."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at, self._behind_s = now, self._estimate(now)
        return self._behind_s

    def _estimate(self, now: float) -> float:
        unread = self._journal.backlog.get(FOLD, 0)
        with self._lock:
            waiting = unread + self._taken
            if waiting <= _SPARED_BYTES:
                return 0.0
            running_s = now - self._taken_at if self._taken else 0.0
            rate = self._learnt_bytes / self._learnt_s if self._learnt_s > 0 else 0.0
            return max(running_s, waiting / rate if rate else 0.0)

    def _counted(self, batches: list[Batch]) -> list[Batch]:
        for batch in batches:
            if batch.signal in self._signals:
                self._add(batch.signal, items_of(batch))
        return batches

    def _add(self, signal: Signal, items: int) -> None:
        for verb, amount in (("sent", items), ("send_failed", 0)):
            self._tally.add(f"otelcol_exporter_{verb}_{WIRES[signal].items}", amount, exporter=FOLD)
