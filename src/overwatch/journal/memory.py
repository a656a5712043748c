"""The journal in memory: append under one lock, cursors that read and release.

Rules: stamps strictly rise; a cursor's `seal(tick)` promises that no later batch gets a stamp at or
before the tick; a batch is released once every cursor has passed it; a full journal refuses, it never
drops what it accepted. Must not know what bodies mean.
"""

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Final

import msgspec


class Signal(Enum):
    """What a batch's body holds."""

    LOGS = "logs"
    METRICS = "metrics"
    TRACES = "traces"
    START = "start"
    """A collector's own start record; jumps the tick clock."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted request: OTLP protobuf bytes of an export request, or a start record."""

    sequence: int
    """1 for the first batch of a journal, then without gaps."""
    stamp: int
    """Receive time in Unix nanoseconds; strictly rising."""
    signal: Signal
    body: bytes


class JournalFullError(RuntimeError):
    """The journal's budget is used up by batches that some reader has not passed."""


DEFAULT_BUDGET_BYTES: Final = 256 << 20


class MemoryJournal:
    """Batches in order, for any number of cursors; safe from any thread."""

    def __init__(self, now: Callable[[], int], budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self._now = now
        self._budget = budget_bytes
        self._held = 0
        self._batches: deque[Batch] = deque()
        self._first = 1
        self._next = 1
        self._floor = 0
        self._cursors: list[Cursor] = []
        self._changed = threading.Condition()

    def append(self, signal: Signal, body: bytes) -> Batch:
        """Accept one body; raises `JournalFullError` when its budget has no room for it."""
        with self._changed:
            if self._held + len(body) > self._budget:
                raise JournalFullError(
                    f"journal holds {self._held} of {self._budget} bytes that readers have not passed; "
                    f"a body of {len(body)} bytes does not fit"
                )
            stamp = max(self._floor + 1, self._now())
            batch = Batch(sequence=self._next, stamp=stamp, signal=signal, body=body)
            self._floor = stamp
            self._next += 1
            if self._cursors:
                self._batches.append(batch)
                self._held += len(body)
            else:
                self._first = self._next
            self._changed.notify_all()
            return batch

    def cursor(self, name: str) -> "Cursor":
        """A new reader that sees every batch appended from now on."""
        with self._changed:
            cursor = Cursor(self, name, self._next)
            self._cursors.append(cursor)
            return cursor

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies that some cursor has not passed."""
        return self._held

    def _seal(self, cursor: "Cursor", tick: int) -> list[Batch]:
        with self._changed:
            self._floor = max(self._floor, tick)
            return self._take(cursor, lambda batch: batch.stamp <= tick)

    def _wait(self, cursor: "Cursor", timeout_s: float) -> list[Batch]:
        with self._changed:
            self._changed.wait_for(lambda: cursor.position < self._next, timeout_s)
            return self._take(cursor, lambda _: True)

    def _take(self, cursor: "Cursor", wanted: Callable[[Batch], bool]) -> list[Batch]:
        taken: list[Batch] = []
        for batch in islice(self._batches, cursor.position - self._first, None):
            if not wanted(batch):
                break
            taken.append(batch)
        cursor.position += len(taken)
        self._release()
        return taken

    def _release(self) -> None:
        passed = min((cursor.position for cursor in self._cursors), default=self._next)
        while self._batches and self._batches[0].sequence < passed:
            self._held -= len(self._batches.popleft().body)
            self._first += 1


class Cursor:
    """One reader's place in a journal. Made by `MemoryJournal.cursor`."""

    def __init__(self, journal: MemoryJournal, name: str, position: int) -> None:
        self._journal = journal
        self.name = name
        self.position = position
        """Sequence number of the next batch to read."""

    def seal(self, tick: int) -> list[Batch]:
        """All unread batches stamped at or before `tick`; later ones will be stamped after it."""
        return self._journal._seal(self, tick)  # noqa: SLF001 the cursor is the journal's other half

    def wait(self, timeout_s: float) -> list[Batch]:
        """All unread batches; waits up to `timeout_s` seconds for the first."""
        return self._journal._wait(self, timeout_s)  # noqa: SLF001 as above
