"""The journal in memory: append under one lock, cursors that read and release.

Rules: stamps strictly rise; a cursor's `seal(tick)` promises that no later batch gets a stamp at or
before the tick; a batch is released once every cursor has passed it; a full journal refuses, it never
drops what it accepted. Must not know what bodies mean.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Final

from overwatch.journal.batches import CHUNK_BYTES, TYPICAL_BYTES, Batch, JournalFullError, Lag, Made, Signal
from overwatch.journal.cursors import CursorFile
from overwatch.journal.notes import Note

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
        self._cursors: list[MemoryCursor] = []
        self._changed = threading.Condition()

    def append(self, signal: Signal, body: bytes) -> Batch:
        """Accept one body; raises `JournalFullError` when its budget has no room for it."""
        return self._append(signal, body, None, None)

    def _append(self, signal: Signal, body: bytes, items: int | None, made: Made | None) -> Batch:
        with self._changed:
            self._refuse_when_full(len(body))
            stamp = max(self._floor + 1, self._now())
            batch = Batch(sequence=self._next, stamp=stamp, signal=signal, body=body, items=items, made=made)
            self._floor = stamp
            self._next += 1
            for cursor in self._cursors:
                cursor.owed += len(body)
            if self._cursors:
                self._batches.append(batch)
                self._held += batch.weight
            else:
                self._first = self._next
            self._changed.notify_all()
            return batch

    def submit(
        self, signal: Signal, body: bytes, items: int | None = None, made: Made | None = None
    ) -> Future[Batch]:
        """As `append`: memory is never waited for."""
        done: Future[Batch] = Future()
        done.set_result(self._append(signal, body, items, made))
        return done

    def cursor(
        self,
        name: str,
        start: int | None = None,  # noqa: ARG002 nothing is older
        *,
        made: bool = False,  # noqa: ARG002 all share the batches
    ) -> "MemoryCursor":
        """A new reader that sees every batch appended from now on."""
        with self._changed:
            cursor = MemoryCursor(self, name, self._next)
            self._cursors.append(cursor)
            return cursor

    def place(self, name: str) -> CursorFile | None:  # noqa: ARG002 as for every name
        """Nothing here outlives the process."""
        return None

    def note(self, name: str) -> Note | None:  # noqa: ARG002 as for every name
        """Nothing here outlives the process."""
        return None

    def _refuse_when_full(self, size: int) -> None:
        if self._held + size > self._budget:
            raise JournalFullError(
                f"journal holds {self._held} of {self._budget} bytes that readers have not passed; "
                f"a body of {size} bytes does not fit"
            )

    @property
    def problem(self) -> str | None:
        """Why a body of typical size is not accepted now."""
        try:
            with self._changed:
                self._refuse_when_full(TYPICAL_BYTES)
        except JournalFullError as error:
            return str(error)
        return None

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies, and of what was made of them, that some cursor has not passed."""
        return self._held

    @property
    def backlog(self) -> dict[str, int]:
        """Bytes of bodies that each cursor has not read, by the cursor's name."""
        with self._changed:
            return {cursor.name: cursor.owed for cursor in self._cursors}

    @property
    def capacity_bytes(self) -> int:
        """Most bytes of bodies that wait."""
        return self._budget

    def lag(self, name: str) -> Lag:
        """How far the cursor of that name is behind."""
        behind = next((cursor for cursor in self._cursors if cursor.name == name), None)
        if behind is None:
            return Lag()
        return Lag(batches=self._next - behind.position, unread=behind.owed / self._budget)

    @property
    def is_pressed(self) -> bool:
        """Whether half of the budget is used up."""
        return self._held > self._budget // 2

    def _seal(self, cursor: "MemoryCursor", tick: int) -> list[Batch]:
        with self._changed:
            self._floor = max(self._floor, tick)
            return self._take(cursor, lambda batch, _: batch.stamp <= tick)

    def _wait(self, cursor: "MemoryCursor", timeout_s: float) -> list[Batch]:
        with self._changed:
            self._changed.wait_for(lambda: cursor.position < self._next, timeout_s)
            return self._take(cursor, lambda _, size: size < CHUNK_BYTES)

    def _take(self, cursor: "MemoryCursor", wanted: Callable[[Batch, int], bool]) -> list[Batch]:
        taken: list[Batch] = []
        size = 0
        for batch in islice(self._batches, cursor.position - self._first, None):
            if not wanted(batch, size):
                break
            taken.append(batch)
            size += len(batch.body)
        cursor.position += len(taken)
        cursor.owed -= sum(len(batch.body) for batch in taken)
        self._release()
        return taken

    def _release(self) -> None:
        passed = min((cursor.position for cursor in self._cursors), default=self._next)
        while self._batches and self._batches[0].sequence < passed:
            self._held -= self._batches.popleft().weight
            self._first += 1


class MemoryCursor:
    """One reader's place in a journal. Made by `MemoryJournal.cursor`."""

    def __init__(self, journal: MemoryJournal, name: str, position: int) -> None:
        self._journal = journal
        self.name = name
        self.position = position
        """Sequence number of the next batch to read."""
        self.owed = 0
        """Bytes that were not read yet."""

    def earlier(self) -> Iterator[Batch]:
        """Nothing: memory has no earlier life."""
        return iter(())

    def keep(self, position: int) -> None:
        """Nothing to do: what was read is not kept."""

    def seal(self, tick: int) -> list[Batch]:
        """All unread batches stamped at or before `tick`; later ones will be stamped after it."""
        return self._journal._seal(self, tick)  # noqa: SLF001 the cursor is the journal's other half

    def wait(self, timeout_s: float) -> list[Batch]:
        """Unread batches, about a MiB at most; waits up to `timeout_s` seconds for the first."""
        return self._journal._wait(self, timeout_s)  # noqa: SLF001 as above
