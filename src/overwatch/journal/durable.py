"""The journal on disk: what was accepted survives the process and, by default, a power loss.

Rules: one thread writes; whatever waits is written together, synced once, then shown to readers, then
acknowledged. So no reader ever sees, and no sender is ever told of, a batch that could still be lost. A disk
that refuses makes `append` raise, readers go on, and the next batch tries again. Files are dropped whole,
once no reader of this life and no next life needs them. Must not know what bodies mean.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from overwatch.journal.batches import TYPICAL_BYTES, Batch, JournalFullError, Lag, Made, Signal
from overwatch.journal.cursors import CursorFile
from overwatch.journal.folder import Folder
from overwatch.journal.limits import Durability, JournalLimits
from overwatch.journal.notes import Note
from overwatch.journal.reading import DurableCursor, Shared
from overwatch.journal.segments import Log, LogLimits

KINDS: Final = {Signal.LOGS: 1, Signal.METRICS: 2, Signal.TRACES: 3, Signal.START: 4}
"""What a signal is called in the log; never reused."""

_SUFFIX: Final = ".cursor"
_FAST_SYNC_S: Final = 1.0
"""Longest time that an acknowledged batch of `fast` is not safe from a power loss, in seconds."""

_RETRY_S: Final = 1.0
"""Time between two attempts to write to a disk that refused, in seconds, while no body comes."""
_PROBE: Final = "probe"

_log = logging.getLogger("overwatch.journal")


@dataclass(slots=True)
class _Waiting:
    """A body on its way to the disk."""

    signal: Signal
    body: bytes
    items: int | None = None
    made: Made | None = None
    stamp: int = 0
    done: Future[Batch] = field(default_factory=Future)


class DurableJournal:
    """Batches in a folder. `close` it."""

    def __init__(
        self,
        folder: Folder,
        now: Callable[[], int],
        limits: JournalLimits | None = None,
        *,
        floor: tuple[int, int] = (1, 0),
        report: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """Recover what is there.

        The next batch gets at least sequence `floor[0]` and a later stamp than `floor[1]`; `report` is told
        why the disk refuses, and `None` when it does no more. Raises `LogVersionError` for files of a newer
        version, `OSError` when the folder cannot be read.
        """
        self._folder = folder
        self._now = now
        self._limits = limits or JournalLimits()
        self._report = report
        sequence = max([floor[0], *(place for place in _places(folder))])
        sizes = LogLimits(segment_bytes=self._limits.segment_bytes)
        self._log = Log(folder, "journal", sizes, floor=sequence)
        last = self._log.recovery.last
        self._floor = max(floor[1], 0 if last is None else last.stamp)
        self._shared = Shared(self._log, KINDS)
        self._work = threading.Condition(self._shared.lock)
        self._waiting: deque[_Waiting] = deque()
        self._queued = 0
        self._unwritten: Batch | None = None
        """This life's start record, while the disk has no room for it."""
        self._start_error: OSError | None = None
        self._trouble: OSError | None = None
        """Why nothing of what is being written can be kept."""
        self._refused: OSError | ValueError | None = None
        """Why the disk refused the last attempt."""
        self._unsynced = False
        self._unsynced_since = 0.0
        self._closing = False
        self._tidying = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def opened_at(self) -> int:
        """Sequence of the first batch of this life; what is before it comes from earlier ones."""
        return self._shared.opened_at

    @property
    def first_sequence(self) -> int:
        """Sequence of the oldest batch kept."""
        return self._log.first_sequence

    @property
    def last_stamp(self) -> int:
        """The newest stamp or sealed tick, 0 for an empty journal."""
        return max(self._floor, self._shared.sealed)

    @property
    def torn_bytes(self) -> int:
        """Bytes that opening cut off or passed over: a batch that was being written, or damage."""
        return self._log.recovery.torn_bytes

    @property
    def set_aside(self) -> Sequence[str]:
        """Files that could not be read when it was opened; what is in them is not read again."""
        return self._log.recovery.set_aside

    @property
    def problem(self) -> str | None:
        """Why a body of typical size is not accepted now."""
        refused = self._refused
        if refused is not None:
            return str(_refusal(refused))
        try:
            with self._shared.lock:
                self._refuse_when_full(TYPICAL_BYTES)
        except JournalFullError as error:
            return str(error)
        return None

    @property
    def is_running(self) -> bool:
        """Whether the thread that writes goes on; without it nothing is accepted."""
        return self._thread.is_alive()

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies of this life that some cursor has not passed."""
        return self._shared.owed()

    @property
    def backlog(self) -> dict[str, int]:
        """Bytes of bodies of this life that each cursor has not read, by the cursor's name."""
        return self._shared.backlog()

    @property
    def capacity_bytes(self) -> int:
        """Most bytes of bodies that wait."""
        return self._limits.held_bytes

    @property
    def disk_bytes(self) -> int:
        """Bytes of records on disk."""
        return self._log.size_bytes

    @property
    def most_disk_bytes(self) -> int:
        """What it may have there."""
        return self._limits.disk_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of records that this life wrote, those that are dropped again among them."""
        return self._log.written_bytes

    @property
    def is_pressed(self) -> bool:
        """Whether half of the room for batches that wait, in memory's sense or the disk's, is used up."""
        limits = self._limits
        return self.held_bytes > limits.held_bytes // 2 or self.disk_bytes > limits.disk_bytes // 2

    def lag(self, name: str) -> Lag:
        """How far the cursor of that name is behind."""
        cursor = self._shared.find(name)
        if cursor is None:
            return Lag()
        with self._shared.files:
            on_disk = self._log.bytes_from(cursor.kept)
        return Lag(
            batches=self._shared.visible - cursor.position,
            unread=cursor.owed / self._limits.held_bytes,
            kept=on_disk / self._limits.disk_bytes,
        )

    def append(self, signal: Signal, body: bytes) -> Batch:
        """Accept one body and return once it is as durable as was asked; raises `JournalFullError`.

        A start record is accepted in any case: it is written before the next batch that there is room for.
        """
        return self.submit(signal, body).result()

    def submit(
        self, signal: Signal, body: bytes, items: int | None = None, made: Made | None = None
    ) -> Future[Batch]:
        """As `append`, without waiting; raises at once where there is no room."""
        waiting = _Waiting(signal, body, items, made)
        # Who gives up does not take it back: it is written all the same.
        waiting.done.set_running_or_notify_cancel()
        with self._work:
            if signal is not Signal.START:
                self._refuse_when_full(len(body))
            self._waiting.append(waiting)
            self._queued += len(body)
            self._work.notify()
        return waiting.done

    def cursor(self, name: str, start: int | None = None, *, made: bool = False) -> DurableCursor:
        """A reader from now on, to whom nothing matters once it is read; or from `start` on.

        What the latter has read is needed until it says `keep`.
        """
        return self._shared.add(name, start, self._tidy, made=made)

    def place(self, name: str) -> CursorFile:
        """A reader's place in this folder."""
        return CursorFile(self._folder, name)

    def note(self, name: str) -> Note:
        """A note in this folder."""
        return Note(self._folder, name)

    def close(self) -> None:
        """Write what waits, then let go of the files. A second call does nothing."""
        with self._work:
            self._closing = True
            self._work.notify()
        self._thread.join()
        with self._shared.files:
            self._log.close()

    def _refuse_when_full(self, size: int) -> None:
        held, disk = self._shared.owed_locked() + self._queued, self._log.size_bytes + self._queued
        if self._closing:
            raise JournalFullError("the journal is closed")
        if held + size > self._limits.held_bytes:
            raise JournalFullError(
                f"journal holds {held} of {self._limits.held_bytes} bytes that readers have not passed; "
                f"a body of {size} bytes does not fit"
            )
        if disk + size > self._limits.disk_bytes:
            raise JournalFullError(
                f"journal has {disk} of {self._limits.disk_bytes} bytes on disk that readers or the next "
                f"start need; a body of {size} bytes does not fit"
            )

    def _tidy(self) -> None:
        """A reader let go of something; the caller holds the lock."""
        if self._log.can_drop(self._shared.needed()):
            self._tidying = True
            self._work.notify()

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._work:
                self._work.wait_for(
                    lambda: self._waiting or self._closing or self._tidying,
                    self._patience_s,
                )
                group = self._stamped()
                closing = self._closing and not group
            self._guarded(group, closing=closing)
            self._drop()

    @property
    def _patience_s(self) -> float | None:
        """The longest time until there is something to do without a new body."""
        if self._refused is not None:
            return _RETRY_S
        return _FAST_SYNC_S if self._unsynced else None

    def _guarded(self, group: list[_Waiting], *, closing: bool) -> None:
        """The border of the thread: whatever goes wrong, nobody waits for ever."""
        try:
            self._commit(group, closing=closing)
        except Exception as error:  # noqa: BLE001 logged, and told to every sender
            _log.exception("the journal could not write")
            self._publish([])
            for waiting in group:
                if not waiting.done.done():
                    waiting.done.set_exception(_refusal(error))

    def _publish(self, batches: list[Batch]) -> None:
        """Show what was written; only what came meanwhile waits."""
        with self._work:
            self._queued = sum(len(waiting.body) for waiting in self._waiting)
            after = self._log.next_sequence + (self._unwritten is not None)
            self._shared.publish(batches, after)

    def _stamped(self) -> list[_Waiting]:
        """Everything that waits, stamped; the caller holds the lock."""
        group = list(self._waiting)
        self._waiting.clear()
        for waiting in group:
            self._floor = max(self._floor, self._shared.sealed) + 1
            self._floor = waiting.stamp = max(self._floor, self._now())
        self._shared.writing = group[0].stamp if group else None
        return group

    def _commit(self, group: list[_Waiting], *, closing: bool) -> None:
        """The border to the disk: what it refuses is refused to its sender, and said once by `report`."""
        kept: list[tuple[_Waiting, Batch]] = []
        first = self._log.next_sequence
        is_retry = not group and self._refused is not None and not closing
        self._trouble = self._look() if group or is_retry else None
        error = self._probe() if is_retry else None
        for waiting in group:
            try:
                kept.append((waiting, self._write(waiting)))
            except (OSError, ValueError) as refused:
                error = refused
                waiting.done.set_exception(_refusal(refused))
        try:
            self._sync(closing=closing)
        except OSError as refused:
            error = refused
            kept = self._take_back(kept, first, refused)
        self._publish([batch for _, batch in kept])
        for waiting, batch in kept:
            waiting.done.set_result(batch)
        if group or is_retry or error:
            trouble = error or self._start_error
            self._refused = trouble
            self._report(None if trouble is None else str(trouble))

    def _take_back(
        self, kept: list[tuple[_Waiting, Batch]], first: int, error: OSError
    ) -> list[tuple[_Waiting, Batch]]:
        """What is accepted all the same of what could not be synced: all in `fast`, else a start."""
        if self._limits.durability is Durability.FAST:
            return kept
        self._shared.doubt(first, self._log.next_sequence)
        for waiting, _ in kept:
            if waiting.signal is not Signal.START:
                waiting.done.set_exception(_refusal(error))
        return [(waiting, batch) for waiting, batch in kept if waiting.signal is Signal.START]

    def _write(self, waiting: _Waiting) -> Batch:
        if waiting.signal is not Signal.START:
            self._write_start()
            return self._record(waiting)
        try:
            return self._record(waiting)
        except OSError as refused:
            # Nothing of this life is on disk before its start: it gets the next number, and keeps it.
            sequence = self._log.next_sequence
            self._unwritten = Batch(
                sequence=sequence, stamp=waiting.stamp, signal=waiting.signal, body=waiting.body
            )
            self._start_error = refused
            return self._unwritten

    def _write_start(self) -> None:
        if self._unwritten is not None:
            batch = self._unwritten
            with self._shared.files:
                self._log.append(KINDS[batch.signal], batch.stamp, batch.body)
            self._unwritten, self._start_error = None, None
            self._touch()

    def _look(self) -> OSError | None:
        """Why nothing can be kept in this folder; looked at once for what is written together."""
        try:
            self._folder.check()
            with self._shared.files:
                self._log.check()
        except OSError as error:
            return error
        return None

    def _probe(self) -> OSError | ValueError | None:
        """Why a disk that refused refuses still: it may be that no sender asks while it does."""
        if self._trouble is not None:
            return self._trouble
        try:
            self._write_start()
            self._folder.replace(_PROBE, bytes(TYPICAL_BYTES))
            self._folder.files.remove(_PROBE)
        except OSError as error:
            return error
        return None

    def _record(self, waiting: _Waiting) -> Batch:
        if self._trouble is not None:
            raise self._trouble
        with self._shared.files:
            sequence = self._log.append(KINDS[waiting.signal], waiting.stamp, waiting.body)
        self._touch()
        return Batch(
            sequence=sequence,
            stamp=waiting.stamp,
            signal=waiting.signal,
            body=waiting.body,
            items=waiting.items,
            made=waiting.made,
        )

    def _touch(self) -> None:
        if not self._unsynced:
            self._unsynced, self._unsynced_since = True, time.monotonic()

    def _sync(self, *, closing: bool) -> None:
        """Make it durable: now, or in `fast` once it has waited for half of its time."""
        due = closing or self._limits.durability is Durability.FSYNC
        if self._unsynced and (due or time.monotonic() - self._unsynced_since >= _FAST_SYNC_S / 2):
            self._unsynced = False
            self._log.sync()

    def _drop(self) -> None:
        with self._shared.lock:
            self._tidying = False
            needed = self._shared.needed()
        try:
            with self._shared.files:
                self._log.drop(needed)
        except OSError as error:
            self._report(f"{self._folder.path}: a file that nobody needs cannot be removed: {error.strerror}")


def _places(folder: Folder) -> list[int]:
    """How far the readers of earlier lives had come."""
    names = [name.removesuffix(_SUFFIX) for name in folder.names() if name.endswith(_SUFFIX)]
    places = [CursorFile(folder, name).place for name in names]
    return [place.position for place in places if place is not None]


def _refusal(error: Exception) -> JournalFullError:
    refusal = JournalFullError(f"the journal's disk refuses: {error}")
    with contextlib.suppress(TypeError):
        refusal.__cause__ = error
    return refusal
