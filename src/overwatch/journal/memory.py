"""The journal in memory: a batch is released once every cursor has passed it.

Must not know what bodies mean.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from overwatch.journal.batches import TYPICAL_BYTES, Batch, JournalFullError, Lag, Made, Pace, Signal
from overwatch.journal.cursors import CursorFile, Note
from overwatch.journal.reading import MemoryCursor, Shared
from overwatch.journal.stamps import Stamps

DEFAULT_BUDGET_BYTES: Final = 256 << 20


class MemoryJournal:
    """Batches in order, for any number of cursors; safe from any thread."""

    def __init__(self, now: Callable[[], int], budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self.capacity_bytes = budget_bytes
        """Most bytes of bodies that wait."""
        self._stamps = Stamps(now)
        self._shared: Shared[MemoryCursor] = Shared(threading.RLock(), self._stamps, self._end_gap)

    def append(self, signal: Signal, body: bytes) -> Batch:
        """Accept one body; raises `JournalFullError` when its budget has no room for it."""
        return self.submit(signal, body).result()

    def submit(
        self, signal: Signal, body: bytes, items: int | None = None, made: Made | None = None
    ) -> Future[Batch]:
        """As `append`: memory is never waited for."""
        shared, done = self._shared, Future[Batch]()
        with shared.lock:
            self._refuse_when_full(len(body))
            self._end_gap()
            batch = Batch(
                sequence=shared.visible, stamp=self._stamps.give(), signal=signal,
                body=body, items=items, made=made,
            )  # fmt: skip
            shared.publish([batch], batch.sequence + 1)
        done.set_result(batch)
        return done

    def _end_gap(self) -> None:
        """The caller holds the lock."""
        start = self._stamps.end_gap(self._shared.visible)
        if start is not None:
            self._shared.publish([start], start.sequence + 1)

    def cursor(
        self,
        name: str,
        start: int | None = None,  # noqa: ARG002 nothing is older
        *,
        made: bool = False,
    ) -> MemoryCursor:
        """A new reader that sees every batch appended from now on."""
        with self._shared.lock:
            cursor = MemoryCursor(self._shared, name, self._shared.visible, made=made)
            self._shared.cursors.append(cursor)
            return cursor

    def note_gaps(self, body: Callable[[int], bytes]) -> None:
        """From now on each gap ends with a start record."""
        self._stamps.restarted = body

    def place(self, name: str) -> CursorFile | None:  # noqa: ARG002 as for every name
        """Nothing here outlives the process."""
        return None

    def note(self, name: str) -> Note | None:  # noqa: ARG002 as for every name
        """Nothing here outlives the process."""
        return None

    def _refuse_when_full(self, size: int) -> None:
        held = self.held_bytes
        if held + size > self.capacity_bytes:
            raise JournalFullError(
                f"journal holds {held} of {self.capacity_bytes} bytes that readers have not passed; "
                f"a body of {size} bytes does not fit"
            )

    @property
    def problem(self) -> str | None:
        """Why a body of typical size is not accepted now."""
        try:
            self._refuse_when_full(TYPICAL_BYTES)
        except JournalFullError as error:
            return str(error)
        return None

    @property
    def pace(self) -> Pace | None:
        """It has no disk."""
        return None

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies, and of what was made of them, that some cursor has not passed."""
        with self._shared.lock:
            return max((cursor.pending_bytes for cursor in self._shared.cursors), default=0)

    @property
    def backlog(self) -> dict[str, int]:
        """Bytes of bodies that each cursor has not read, by the cursor's name."""
        return self._shared.backlog()

    @property
    def is_pressed(self) -> bool:
        """Whether half of the budget is used up."""
        return self.held_bytes > self.capacity_bytes // 2

    def lag(self, name: str) -> Lag:
        """How far the cursor of that name is behind."""
        return self._shared.lag(name, self.capacity_bytes)
