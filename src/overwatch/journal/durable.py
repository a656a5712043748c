"""The journal on disk: what was accepted survives the process and, by default, a power loss.

Rules: what `GroupCommit` wrote and synced is shown to readers, then acknowledged. So no reader ever sees
a batch that could still be lost, and none is acknowledged. A disk that refuses makes `append` raise, and so
does one that has not answered for seconds; readers go on, and the next batch tries again. Files are dropped
whole, once no reader of this life and no next life needs them. Must not know what bodies mean.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import msgspec

from overwatch.journal.batches import (
    KINDS,
    TYPICAL_BYTES,
    Batch,
    Durability,
    JournalFullError,
    JournalLimits,
    Lag,
    Made,
    Pace,
    Signal,
)
from overwatch.journal.commits import GroupCommit
from overwatch.journal.cursors import CursorFile, Note
from overwatch.journal.folder import Folder
from overwatch.journal.reading import Disk, DurableCursor, Shared
from overwatch.journal.segments import Log, LogLimits
from overwatch.journal.stamps import Stamps

_SUFFIX: Final = ".cursor"
_STALLED_S: Final = 5.0
"""So long may one commit take before more is refused, in seconds: half of the patience of usual senders."""


@dataclass(slots=True)
class _Waiting:
    """A body on its way to the disk."""

    signal: Signal
    body: bytes
    items: int | None = None
    made: Made | None = None
    stamp: int = 0
    done: Future[Batch] = field(default_factory=Future)
    batch: Batch | None = None
    """What it became, once it has a number."""


class _Writes:
    """What the thread that writes does with bodies: stamps, numbers, shows to readers, acknowledges."""

    def __init__(
        self, log: Log, stamps: Stamps, durability: Durability, report: Callable[[str | None], None]
    ) -> None:
        self.commit: GroupCommit[_Waiting] = GroupCommit(log, self, durability, report)
        self.shared: Shared[DurableCursor] = Shared(
            self.commit.lock, stamps, self.commit.wake, log.next_sequence
        )
        self.disk = Disk(log, self.commit.files, self._tidy)
        self.queued = 0
        """Bytes of bodies on their way to the disk."""
        self._log = log
        self._stamps = stamps
        self._unwritten: deque[Batch] = deque()
        """Start records of this life, while the disk has no room for them."""
        self._unshown: list[Batch] = []
        """Start records that end gaps, until readers see them."""

    def begin(self, group: Sequence[_Waiting]) -> None:
        """Stamp them; where nothing comes, a start that had no room is tried again."""
        with self.shared.lock:
            start = self._stamps.end_gap(self._after)
            stamps = [] if start is None else [start.stamp]
            for waiting in group:
                waiting.stamp = self._stamps.give()
                stamps.append(waiting.stamp)
            self.shared.writing = min(stamps, default=None)
        if start is not None:
            self._unwritten.append(start)
            self._unshown.append(start)
        if not group:
            self._write_starts()

    def write(self, item: _Waiting) -> None:
        """Append a body, after a start that had no room."""
        if item.signal is Signal.START:
            # Nothing of this life is on disk before its start: it gets the next number, and keeps it.
            item.batch = _batch(item, self._after)
            self._unwritten.append(item.batch)
        self._write_starts()
        if item.signal is not Signal.START:
            item.batch = _batch(item, self.commit.append(KINDS[item.signal], item.stamp, item.body))

    def settle(
        self,
        group: Sequence[tuple[_Waiting, Exception | None]],
        doubt: Exception | None,  # noqa: ARG002 each has it
    ) -> None:
        """Show what was written, then acknowledge it: a start in any case."""
        kept: list[tuple[_Waiting, Batch]] = []
        refused: list[tuple[_Waiting, Exception]] = []
        for item, error in group:
            if item.done.done():
                continue
            if item.batch is not None and (error is None or item.signal is Signal.START):
                kept.append((item, item.batch))
            elif error is not None:
                refused.append((item, error))
        doubtful = [item.batch.sequence for item, _ in refused if item.batch is not None]
        with self.shared.lock:
            self.queued = sum(len(waiting.body) for waiting in self.commit.waiting)
            if doubtful:
                self.disk.doubtful.append(range(doubtful[0], doubtful[-1] + 1))
            self.shared.publish([*self._unshown, *(batch for _, batch in kept)], self._after)
            self._unshown.clear()
        for item, batch in kept:
            item.done.set_result(batch)
        for item, error in refused:
            item.done.set_exception(_refusal(error))

    def needed(self) -> int:
        """The oldest sequence that some reader may still ask for."""
        with self.shared.lock:
            return self.shared.needed()

    @property
    def _after(self) -> int:
        """The number after all that readers may see."""
        return self._log.next_sequence + len(self._unwritten)

    def _tidy(self) -> None:
        """A reader let go of something; the caller holds the lock."""
        if self._log.can_drop(self.shared.needed()):
            self.commit.wake()

    def _write_starts(self) -> None:
        while self._unwritten:
            start = self._unwritten[0]
            self.commit.append(KINDS[Signal.START], start.stamp, start.body)
            self._unwritten.popleft()


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

        The next batch gets at least sequence `floor[0]` and a later stamp than `floor[1]`; `report` is given
        why the disk refuses, and `None` when it does no more. Raises `LogVersionError` for files of a newer
        version, `OSError` when the folder cannot be read.
        """
        self._folder = folder
        self.limits = limits or JournalLimits()
        sequence = max([floor[0], *(place for place in _places(folder))])
        sizes = LogLimits(segment_bytes=self.limits.segment_bytes)
        self._log = Log(folder, "journal", sizes, floor=sequence)
        last = self._log.recovery.last
        self._stamps = Stamps(now, max(floor[1], 0 if last is None else last.stamp))
        self._writes = _Writes(self._log, self._stamps, self.limits.durability, report)
        self._shared, self._commit = self._writes.shared, self._writes.commit
        self.opened_at = self._shared.opened_at
        """Sequence of the first batch of this life; what is before it comes from earlier ones."""
        self.recovery = self._log.recovery
        """What opening found damaged: it is not read again."""
        self.capacity_bytes = self.limits.held_bytes
        """Most bytes of bodies that wait."""
        self._commit.start()

    @property
    def first_sequence(self) -> int:
        """Sequence of the oldest batch kept."""
        return self._log.first_sequence

    @property
    def last_stamp(self) -> int:
        """The newest stamp or sealed tick, 0 for an empty journal."""
        return self._stamps.newest

    @property
    def problem(self) -> str | None:
        """Why a body of typical size is not accepted now."""
        refused = self._commit.refusal
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
        return self._commit.is_running

    @property
    def pace(self) -> Pace:
        """How fast its disk is."""
        return self._commit.pace

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies of this life that some cursor has not passed."""
        return self._shared.owed()

    @property
    def backlog(self) -> dict[str, int]:
        """Bytes of bodies of this life that each cursor has not read, by the cursor's name."""
        return self._shared.backlog()

    @property
    def disk_bytes(self) -> int:
        """Bytes of records on disk."""
        return self._log.size_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of records that this life wrote, those that are dropped again among them."""
        return self._log.written_bytes

    @property
    def is_pressed(self) -> bool:
        """Whether half of the room for batches that wait, in memory's sense or the disk's, is used up."""
        limits = self.limits
        return self.held_bytes > limits.held_bytes // 2 or self.disk_bytes > limits.disk_bytes // 2

    def lag(self, name: str) -> Lag:
        """How far the cursor of that name is behind."""
        cursor, lag = self._shared.find(name), self._shared.lag(name, self.limits.held_bytes)
        if cursor is None:
            return lag
        # Without the lock of the files, which a slow disk may hold for seconds.
        kept = self._log.bytes_from(cursor.kept) / self.limits.disk_bytes
        return msgspec.structs.replace(lag, kept=kept)

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
        with self._commit.lock:
            if signal is not Signal.START:
                self._refuse_when_full(len(body))
            self._writes.queued += len(body)
            self._commit.submit(waiting)
        return waiting.done

    def cursor(self, name: str, start: int | None = None, *, made: bool = False) -> DurableCursor:
        """A reader from now on, which needs nothing once it is read; or from `start` on.

        What the latter has read is needed until it calls `keep`.
        """
        with self._shared.lock:
            cursor = DurableCursor(self._shared, name, start, self._writes.disk, made=made)
            self._shared.cursors.append(cursor)
            return cursor

    def note_gaps(self, body: Callable[[int], bytes]) -> None:
        """From now on each gap ends with a start record."""
        self._stamps.restarted = body

    def place(self, name: str) -> CursorFile:
        """A reader's place in this folder."""
        return CursorFile(self._folder, name)

    def note(self, name: str) -> Note:
        """A note in this folder."""
        return Note(self._folder, name)

    def close(self) -> None:
        """Write what waits, then let go of the files. A second call does nothing."""
        self._commit.close()
        with self._commit.files:
            self._log.close()

    def _refuse_when_full(self, size: int) -> None:
        queued = self._writes.queued
        held, disk = self._shared.owed() + queued, self._log.size_bytes + queued
        if self._commit.is_closing:
            raise JournalFullError("the journal is closed")
        waiting_s = self._commit.pace.waiting_s
        if waiting_s > _STALLED_S:
            raise JournalFullError(
                f"the journal's disk has not answered for {waiting_s:.0f} s ({self._folder.path})"
            )
        if held + size > self.limits.held_bytes:
            raise JournalFullError(
                f"journal holds {held} of {self.limits.held_bytes} bytes that readers have not passed; "
                f"a body of {size} bytes does not fit"
            )
        if disk + size > self.limits.disk_bytes:
            raise JournalFullError(
                f"journal has {disk} of {self.limits.disk_bytes} bytes on disk that readers or the next "
                f"start need; a body of {size} bytes does not fit"
            )


def _batch(waiting: _Waiting, sequence: int) -> Batch:
    """What a body became."""
    return Batch(
        sequence=sequence,
        stamp=waiting.stamp,
        signal=waiting.signal,
        body=waiting.body,
        items=waiting.items,
        made=waiting.made,
    )


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
