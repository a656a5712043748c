"""Reading a journal on disk: from memory while a reader keeps up, from the files when it does not.

Rules: a batch is shown once it is durable. A reader that falls behind costs no memory: what it has not read
is let go, the oldest first, and read again from the files. What is damaged is passed over and counted.
Must not know who reads.
"""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from overwatch.journal.batches import CHUNK_BYTES, Batch, Signal
from overwatch.journal.reader import Reader
from overwatch.journal.segments import Log

PENDING_BYTES: Final = 8 << 20
"""Most bytes that one reader has waiting in memory."""
_MOST_COUNTED: Final = 1 << 16
"""Most batches of which one reader knows what was counted, though memory has them no more."""

_log = logging.getLogger("overwatch.journal")


class Shared:
    """What a journal and its cursors have in common."""

    def __init__(
        self, log: Log, kinds: Mapping[Signal, int], lock: threading.RLock, files: threading.Lock
    ) -> None:
        self.lock = lock
        """Guards everything here and in the cursors but the files."""
        self.files = files
        """Guards the log's list of files: held to append, to drop and to read, not to sync."""
        self.log = log
        self.signals = {kind: signal for signal, kind in kinds.items()}
        self.news = threading.Condition(self.lock)
        self.opened_at = log.next_sequence
        self.visible = log.next_sequence
        """Batches before this may be read."""
        self.sealed = 0
        """The newest tick that was sealed."""
        self.writing: int | None = None
        """The first stamp of what is being written."""
        self.doubtful: list[range] = []
        """Sequences that were refused after they had been written."""
        self._cursors: list[DurableCursor] = []

    def add(
        self, name: str, start: int | None, released: Callable[[], None], *, made: bool
    ) -> "DurableCursor":
        """A new reader."""
        with self.lock:
            cursor = DurableCursor(self, name, start, released, made=made)
            self._cursors.append(cursor)
            return cursor

    def find(self, name: str) -> "DurableCursor | None":
        """The reader of that name."""
        with self.lock:
            return next((cursor for cursor in self._cursors if cursor.name == name), None)

    def backlog(self) -> dict[str, int]:
        """Bytes that each cursor has not read, by its name."""
        with self.lock:
            return {cursor.name: cursor.owed for cursor in self._cursors}

    def publish(self, batches: list[Batch], visible: int) -> None:
        """Show what was written."""
        with self.lock:
            for cursor in self._cursors:
                for batch in batches:
                    cursor.offer(batch)
            self.visible, self.writing = visible, None
            self.news.notify_all()

    def doubt(self, sequences: range) -> None:
        """Never show these: their senders were told that they were not accepted."""
        self.doubtful.append(sequences)

    def owed(self) -> int:
        """Bytes that the slowest reader has not passed."""
        with self.lock:
            return self.owed_locked()

    def owed_locked(self) -> int:
        """The same, for who holds the lock."""
        return max((cursor.owed for cursor in self._cursors), default=0)

    def needed(self) -> int:
        """The oldest sequence that some reader may still ask for."""
        return min((cursor.kept for cursor in self._cursors), default=self.visible)


class DurableCursor:
    """One reader's place. Each is used by one thread at a time."""

    def __init__(
        self, shared: Shared, name: str, start: int | None, released: Callable[[], None], *, made: bool
    ) -> None:
        self._shared = shared
        self._released = released
        self._takes_made = made
        self._own_keeping = start is not None
        self._pending: deque[Batch] = deque()
        self._pending_bytes = 0
        """Of memory."""
        self._items: OrderedDict[int, int] = OrderedDict()
        """By sequence: what was counted of batches that memory has no more."""
        self._peeked: Batch | None = None
        self._reader: Reader | None = None
        """Set while this reader is behind and reads from the files."""
        self.name = name
        self._position = shared.visible if start is None else max(start, shared.log.first_sequence)
        self.kept = self._position
        """Batches before this are not needed again."""
        self.owed = 0
        """Bytes of this life that were not read yet."""
        self.lost = 0
        """Batches passed over because the files that held them are damaged or gone."""
        if start:
            self._note_lost(self._position - start)
        if self._position < shared.visible:
            self._fall_behind()

    @property
    def position(self) -> int:
        """Sequence number of the next batch to read."""
        return self._position

    def earlier(self) -> Iterator[Batch]:
        """Unread batches of earlier lives of the journal."""
        while (batch := self._from_files(self._shared.opened_at)) is not None:
            self._pass(batch)
            yield batch
        self._catch_up()

    def seal(self, tick: int) -> list[Batch]:
        """All unread batches stamped at or before `tick`; waits for those that are being written."""
        shared = self._shared
        with shared.lock:
            shared.sealed = max(shared.sealed, tick)
            shared.news.wait_for(lambda: shared.writing is None or shared.writing > tick)
        return self._take(lambda batch, _: batch.stamp <= tick)

    def wait(self, timeout_s: float) -> list[Batch]:
        """Unread batches, about a MiB at most; waits up to `timeout_s` seconds for the first."""
        with self._shared.lock:
            self._shared.news.wait_for(lambda: self._position < self._shared.visible, timeout_s)
        return self._take(lambda _, taken: taken < CHUNK_BYTES)

    def keep(self, position: int) -> None:
        """Batches before `position` are not needed again."""
        with self._shared.lock:
            self.kept = max(self.kept, min(position, self._position))
            self._released()

    def offer(self, batch: Batch) -> None:
        """A batch became readable; the caller holds the lock."""
        batch = batch.for_reader(made=self._takes_made)
        self.owed += batch.size
        self._pending.append(batch)
        self._pending_bytes += batch.weight
        while self._pending_bytes > PENDING_BYTES and len(self._pending) > 1:
            if self._reader is None:
                self._fall_behind()
            self._let_go(self._pending.popleft())

    def _let_go(self, batch: Batch) -> None:
        """A batch is read from the files later; only what was counted of it is kept."""
        self._pending_bytes -= batch.weight
        if batch.items is not None:
            self._items[batch.sequence] = batch.items
            if len(self._items) > _MOST_COUNTED:
                self._items.popitem(last=False)

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
        while self._reader is not None:
            with self._shared.lock:
                before = self._on_disk_before()
            batch = self._from_files(before)
            if batch is not None:
                return batch
            self._catch_up()
        with self._shared.lock:
            if self._pending:
                return self._pending[0]
            if self._reader is None:
                self._position = max(self._position, self._shared.visible)
            return None

    def _pass(self, batch: Batch) -> None:
        with self._shared.lock:
            self._position = batch.sequence + 1
            if self._peeked is batch:
                self._peeked = None
            elif self._reader is not None:
                # This reader fell behind while it was on its way; it is not read again.
                self._reader.position = self._position
            if self._pending and self._pending[0] is batch:
                self._pending.popleft()
                self._pending_bytes -= batch.weight
            if batch.sequence >= self._shared.opened_at:
                self.owed -= batch.size
            if not self._own_keeping:
                self.kept = self._position
                self._released()

    def _fall_behind(self) -> None:
        """Read from the files up to what memory still has: the newest that came."""
        self._reader = self._shared.log.reader(self._position)

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
        with shared.files:
            reader.close()

    def _from_files(self, before: int) -> Batch | None:
        """The next batch in the files numbered below `before`."""
        reader = self._reader
        while self._peeked is None and reader is not None and reader.position < before:
            with self._shared.files:
                lost, record = reader.lost, reader.next()
            self._note_lost(reader.lost - lost)
            if record is None:
                self._skip_to(reader, before)
                break
            signal = self._shared.signals.get(record.kind)
            if signal is None:
                self._note_lost(1)
            elif not any(record.sequence in span for span in self._shared.doubtful):
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
        doubtful = sum(len(span) for span in self._shared.doubtful if span.start >= reader.position)
        self._note_lost(max(0, before - reader.position - doubtful))
        reader.position = before

    def _note_lost(self, count: int) -> None:
        if count:
            self.lost += count
            _log.error("reader %s passes over %d batches that cannot be read", self.name, count)
