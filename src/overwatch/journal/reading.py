"""Readers of a journal: from memory while one keeps up, from files when it does not.

Rules: a batch is shown once it is as durable as the journal promises. A reader of files that falls behind
costs no memory: what it has not read is let go, the oldest first, and read again from the files. What is
damaged is passed over and counted. Must not know who reads.
"""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from overwatch.journal.batches import CHUNK_BYTES, KINDS, Batch, Gap, Lag
from overwatch.journal.records import Reader
from overwatch.journal.segments import Log
from overwatch.journal.stamps import Stamps

PENDING_BYTES: Final = 8 << 20
"""Most bytes that one reader has waiting in memory."""
_PATIENCE_S: Final = 1.0
"""Longest time that a tick waits for the start record that ends a gap, in seconds."""
_MOST_COUNTED: Final = 1 << 16
"""Most batches of which one reader knows what was counted, though memory has them no more."""
_SIGNALS: Final = {kind: signal for signal, kind in KINDS.items()}

_log = logging.getLogger("overwatch.journal")
_Cursor = TypeVar("_Cursor", bound="MemoryCursor")


class Shared(Generic[_Cursor]):
    """What a journal and its cursors have in common."""

    def __init__(
        self, lock: threading.RLock, stamps: Stamps, end_gap: Callable[[], None], first: int = 1
    ) -> None:
        """`end_gap` has a start record written where there is a gap; it may return before that."""
        self.lock = lock
        """Guards everything here and in the cursors but the files."""
        self.news = threading.Condition(self.lock)
        self.opened_at = first
        """Sequence of the first batch of this life."""
        self.visible = first
        """Batches before this may be read."""
        self.stamps = stamps
        self.end_gap = end_gap
        self.writing: int | None = None
        """The first stamp of what is being written."""
        self.cursors: list[_Cursor] = []

    def lag(self, name: str, capacity: int) -> Lag:
        """How far the reader of that name is behind, in memory alone."""
        with self.lock:
            cursor = self.find(name)
            if cursor is None:
                return Lag()
            return Lag(batches=self.visible - cursor.position, unread=cursor.owed / capacity)

    def find(self, name: str) -> _Cursor | None:
        """The reader of that name."""
        return next((cursor for cursor in self.cursors if cursor.name == name), None)

    def backlog(self) -> dict[str, int]:
        """Bytes that each cursor has not read, by its name."""
        with self.lock:
            return {cursor.name: cursor.owed for cursor in self.cursors}

    def publish(self, batches: list[Batch], visible: int) -> None:
        """Show what was accepted."""
        with self.lock:
            for cursor in self.cursors:
                for batch in batches:
                    cursor.offer(batch)
            self.visible, self.writing = visible, None
            self.news.notify_all()

    def owed(self) -> int:
        """Bytes that the slowest reader has not passed."""
        with self.lock:
            return max((cursor.owed for cursor in self.cursors), default=0)

    def needed(self) -> int:
        """The oldest sequence that some reader may still ask for; the caller holds the lock."""
        return min((cursor.kept for cursor in self.cursors), default=self.visible)


class MemoryCursor:
    """One reader's place among batches in memory. Each is used by one thread at a time."""

    def __init__(
        self, shared: "Shared[MemoryCursor] | Shared[DurableCursor]", name: str, position: int, *, made: bool
    ) -> None:
        self.name = name
        self.owed = 0
        """Bytes of this life that were not read yet."""
        self.kept = self._position = position
        """Batches before this are not needed again."""
        self.pending_bytes = 0
        """Of memory."""
        self._shared, self._takes_made = shared, made
        self._pending: deque[Batch] = deque()

    @property
    def position(self) -> int:
        """Sequence number of the next batch to read."""
        return self._position

    def earlier(self) -> Iterator[Batch]:
        """Nothing: memory has no earlier life."""
        return iter(())

    def keep(self, position: int) -> None:
        """Nothing to do: what was read is not kept."""

    def reach(self, tick: int) -> Gap | None:
        """Seal `tick`, or return the gap that it lies in."""
        shared = self._shared
        with shared.lock:
            if shared.stamps.is_late:
                shared.end_gap()
                shared.news.wait_for(lambda: not shared.stamps.is_late, _PATIENCE_S)
            return shared.stamps.reach(tick)

    def settled(self, tick: int, timeout_s: float) -> bool:
        """Whether nothing is being written that is stamped at or before `tick`; waits so long for it."""
        shared = self._shared
        with shared.lock:
            return shared.news.wait_for(lambda: shared.writing is None or shared.writing > tick, timeout_s)

    def seal(self, tick: int) -> list[Batch]:
        """All unread batches stamped at or before `tick`; waits for those that are being written."""
        shared = self._shared
        with shared.lock:
            shared.stamps.seal(tick)
            shared.news.wait_for(lambda: shared.writing is None or shared.writing > tick)
        return self._take(lambda batch, _: batch.stamp <= tick)

    def wait(self, timeout_s: float) -> list[Batch]:
        """Unread batches, about a MiB at most; waits up to `timeout_s` seconds for the first."""
        with self._shared.lock:
            self._shared.news.wait_for(lambda: self._position < self._shared.visible, timeout_s)
        return self._take(lambda _, taken: taken < CHUNK_BYTES)

    def offer(self, batch: Batch) -> None:
        """A batch became readable; the caller holds the lock."""
        batch = batch.for_reader(made=self._takes_made)
        self.owed += batch.size
        self._pending.append(batch)
        self.pending_bytes += batch.weight

    def _take(self, wanted: Callable[[Batch, int], bool]) -> list[Batch]:
        taken: list[Batch] = []
        size = 0
        while (batch := self._next()) is not None and wanted(batch, size):
            self._pass(batch)
            taken.append(batch)
            size += batch.size
        return taken

    def _next(self) -> Batch | None:
        """The next batch, not yet passed."""
        with self._shared.lock:
            if self._pending:
                return self._pending[0]
            self._position = max(self._position, self._shared.visible)
            return None

    def _pass(self, batch: Batch) -> None:
        with self._shared.lock:
            self._position = self.kept = batch.sequence + 1
            if self._pending and self._pending[0] is batch:
                self._pending.popleft()
                self.pending_bytes -= batch.weight
            if batch.sequence >= self._shared.opened_at:
                self.owed -= batch.size


@dataclass(frozen=True, slots=True)
class Disk:
    """Where a reader that is behind reads on."""

    log: Log
    files: threading.Lock
    """Guards the log's list of files: held to append, to drop and to read, not to sync."""
    released: Callable[[], None]
    """Is called when a reader let go of something."""
    doubtful: list[range] = field(default_factory=list)
    """Sequences that were refused after they had been written: never shown."""


class DurableCursor(MemoryCursor):
    """One reader's place among batches of which memory has the newest, and files all."""

    def __init__(
        self, shared: "Shared[DurableCursor]", name: str, start: int | None, disk: Disk, *, made: bool
    ) -> None:
        position = shared.visible if start is None else max(start, disk.log.first_sequence)
        super().__init__(shared, name, position, made=made)
        self._disk = disk
        self._own_keeping = start is not None
        self._items: OrderedDict[int, int] = OrderedDict()
        """By sequence: what was counted of batches that memory has no more."""
        self._peeked: Batch | None = None
        self._reader: Reader | None = None
        """Set while this reader is behind and reads from the files."""
        self.lost = 0
        """Batches passed over because the files that held them are damaged or gone."""
        if start:
            self._note_lost(self._position - start)
        if self._position < shared.visible:
            self._fall_behind()

    def earlier(self) -> Iterator[Batch]:
        """Unread batches of earlier lives of the journal."""
        while (batch := self._from_files(self._shared.opened_at)) is not None:
            self._pass(batch)
            yield batch
        self._catch_up()

    def keep(self, position: int) -> None:
        """Batches before `position` are not needed again."""
        with self._shared.lock:
            self.kept = max(self.kept, min(position, self._position))
            self._disk.released()

    def offer(self, batch: Batch) -> None:
        """A batch became readable; the caller holds the lock."""
        super().offer(batch)
        while self.pending_bytes > PENDING_BYTES and len(self._pending) > 1:
            if self._reader is None:
                self._fall_behind()
            self._let_go(self._pending.popleft())

    def _let_go(self, batch: Batch) -> None:
        """A batch is read from the files later; only what was counted of it is kept."""
        self.pending_bytes -= batch.weight
        if batch.items is not None:
            self._items[batch.sequence] = batch.items
            if len(self._items) > _MOST_COUNTED:
                self._items.popitem(last=False)

    def _next(self) -> Batch | None:
        """The next batch, not yet passed."""
        while self._reader is not None:
            with self._shared.lock:
                before = self._on_disk_before()
            batch = self._from_files(before)
            if batch is not None:
                return batch
            self._catch_up()
        return super()._next()

    def _pass(self, batch: Batch) -> None:
        with self._shared.lock:
            kept = self.kept
            super()._pass(batch)
            if self._peeked is batch:
                self._peeked = None
            elif self._reader is not None:
                # This reader fell behind while it was on its way; it is not read again.
                self._reader.position = self._position
            if self._own_keeping:
                self.kept = kept
            else:
                self._disk.released()

    def _fall_behind(self) -> None:
        """Read from the files up to what memory still has: the newest that came."""
        self._reader = self._disk.log.reader(self._position)

    def _on_disk_before(self) -> int:
        """Where the files need not be read any more; the caller holds the lock."""
        return self._pending[0].sequence if self._pending else self._shared.visible

    def _catch_up(self) -> None:
        """Read from memory again if there is nothing more to read from the files."""
        shared = self._shared
        with shared.lock:
            reader, before = self._reader, self._on_disk_before()
            ahead = self._peeked
            if reader is None or (reader.position if ahead is None else ahead.sequence) < before:
                return
            self._position = max(self._position, before)
            self._reader = self._peeked = None
            self.owed = sum(batch.size for batch in self._pending)
            self._items.clear()
        with self._disk.files:
            reader.close()

    def _from_files(self, before: int) -> Batch | None:
        """The next batch in the files numbered below `before`."""
        reader = self._reader
        while self._peeked is None and reader is not None and reader.position < before:
            with self._disk.files:
                lost, record = reader.lost, reader.next()
            self._note_lost(reader.lost - lost)
            if record is None:
                self._skip_to(reader, before)
                break
            signal = _SIGNALS.get(record.kind)
            if signal is None:
                self._note_lost(1)
            elif not any(record.sequence in span for span in self._disk.doubtful):
                self._peeked = Batch(
                    sequence=record.sequence,
                    stamp=record.stamp,
                    signal=signal,
                    body=record.payload,
                    items=self._items.pop(record.sequence, None),
                )
        batch = self._peeked
        return batch if batch is not None and batch.sequence < before else None

    def _skip_to(self, reader: Reader, before: int) -> None:
        """The files end before the batch that should be there: it is damaged, or was refused."""
        doubtful = sum(len(span) for span in self._disk.doubtful if span.start >= reader.position)
        self._note_lost(max(0, before - reader.position - doubtful))
        reader.position = before

    def _note_lost(self, count: int) -> None:
        if count:
            self.lost += count
            _log.error("reader %s passes over %d batches that cannot be read", self.name, count)
