"""A book on disk: its operations in a log, the bytes of its items beside them.

Owns the folder, what of it is still needed, and what `submit` promises: its future is done once the
operations, and all before them, are as durable as was asked. Nothing that was submitted is ever given up: the
state is ahead of the disk by what waits, so a disk that refuses is tried again until it takes everything, in
order; `problem` has it meanwhile, and `room` refuses new items. A snapshot of the state begins a file every
`segment_bytes`; a file older than the last two snapshots goes once none of its items lives, and what little
lives in one is copied forward. Beyond `memory_bytes` payloads lie on disk alone and are read back when they
are asked for. Must not know what operations mean, HTTP, or who waits.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic

from overwatch.journal import HEADER_BYTES, Durability, Files, Folder, Log, LogLimits
from overwatch_rl.oplog import entries
from overwatch_rl.oplog.book import Book, Op
from overwatch_rl.oplog.recovering import Recovered, Recovery
from overwatch_rl.oplog.writing import LIVELY, Entry, Writer

_LIVELY_PRESSED: Final = 0.5
"""The least that lives in a file that is kept, while new items are refused for want of room on disk."""
_SIZES: Final = LogLimits(segment_bytes=1 << 40, record_bytes=(1 << 32) - 1)
"""Files are begun here, not by the log."""


class Level(Enum):
    """What an answer of the server survives."""

    MEMORY = "memory"
    """Nothing: there is no file."""
    FAST = "fast"
    """The server's death; a power loss may cost the last second."""
    FSYNC = "fsync"
    """The machine's power loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """What a store may use."""

    level: Level = Level.FSYNC
    held_bytes: int = 1 << 30
    """Most bytes of items that live."""
    memory_bytes: int | None = None
    """Most of them that stay in memory; `None` for all."""
    disk_bytes: int = 4 << 30
    """Most bytes on disk."""
    segment_bytes: int = 64 << 20
    """So much is written from snapshot to snapshot."""

    def __post_init__(self) -> None:
        memory = self.memory_bytes or 0
        if (
            self.held_bytes < 1
            or memory < 0
            or self.disk_bytes < 2 * self.held_bytes + 4 * self.segment_bytes
        ):
            raise ValueError(f"the disk needs room for twice what is held and four segments: {self}")


class ItemLostError(LookupError):
    """The bytes of an item that lives cannot be read back."""


class Store(Generic[Op]):
    """A book's operations in a folder. One thread uses it, that of the state; `close` it."""

    def __init__(
        self,
        book: Book[Op],
        operation: Any,
        where: tuple[Path | None, str],
        limits: StoreLimits,
        files: Callable[[int], Files] = Files,
    ) -> None:
        """Lock the folder and fold what it has into `book`, which must be new.

        `operation` is the closed union of operations, `where` the folder, `None` for the level `memory`
        alone, and the name that its files begin with. Raises `FolderBusyError` naming who has the folder,
        `LogVersionError` for one of a newer version, `OSError` for one that cannot be read.
        """
        self._book = book
        self._limits = limits
        self.payloads: dict[int, bytes] = {}
        """Of the items that live, by id: those that are in memory."""
        self.recovery = Recovery()
        self._sizes: dict[int, int] = {}
        """Of the payloads of all items that live."""
        self._held = self._in_memory = self._submitted = self._since = 0
        self._spilling: deque[tuple[Future[None], tuple[int, ...]]] = deque()
        """What leaves the memory once it is on disk."""
        self._pressed: Future[None] | None = None
        """The snapshot that was begun for want of room."""
        self._number = self._at = 0
        self._writer: Writer[Op] | None = None
        if self._limits.level is Level.MEMORY:
            return
        path, name = where
        if path is None:
            raise ValueError(f"the level {self._limits.level.value} needs a folder")
        self._folder = Folder(path, files)
        try:
            self._log = Log(self._folder, name, _SIZES)
            lost = self._recover(entries.Unpacker(operation))
        except BaseException:
            self._folder.close()
            raise
        self.submit(lost, {})

    @property
    def last_at(self) -> int:
        """When the last operation was, in Unix nanoseconds; 0 where there was none."""
        return self._at

    @property
    def last_number(self) -> int:
        """How many entries were submitted, those of earlier lives among them."""
        return self._number

    @property
    def held_bytes(self) -> int:
        """Bytes of the items that live."""
        return self._held

    @property
    def spilled_bytes(self) -> int:
        """Those of them that are on disk alone."""
        return self._held - self._in_memory

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk, and on their way there."""
        if self._writer is None:
            return 0
        return self._log.size_bytes + self._submitted - self._writer.settled

    @property
    def problem(self) -> str | None:
        """Why the disk refuses; what was submitted waits until it does no more."""
        if self._writer is None:
            return None
        if not self._writer.commit.is_running:
            return "the thread that writes has ended: start the server again"
        refusal = self._writer.commit.refusal
        return None if refusal is None else str(refusal)

    def room(self, size: int) -> bool:
        """Whether items of so many bytes can be taken now."""
        if self._held + size > self._limits.held_bytes or self.problem is not None:
            return False
        if self.disk_bytes + size + HEADER_BYTES <= self._limits.disk_bytes:
            return True
        # Nothing else may come that would make room.
        if self._writer is not None and (self._pressed is None or self._pressed.done()):
            dead = self.disk_bytes - self._held
            if dead >= self._writer.dead + self._limits.segment_bytes:
                self._pressed = self._snapshot(self._writer, _LIVELY_PRESSED)
        return False

    def submit(
        self, operations: Sequence[Op], payloads: Mapping[int, bytes], gone: Iterable[int] | None = None
    ) -> "Future[None]":
        """Keep operations that were applied, in order, and the bytes of the items that they added.

        `gone` are the items that live no more since; without it all are looked at. Done once they are as
        durable as was asked. The future cannot be cancelled, and fails only with `StoreClosedError`.
        """
        sizes = {item: len(data) for item, data in payloads.items()}
        self.payloads |= payloads
        self._sizes |= sizes
        added = sum(sizes.values())
        self._held += added
        self._in_memory += added
        self._spill()
        if gone is not None:
            self._forget(gone)
        elif len(self._sizes) > len(self._book.items):
            self._forget([item for item in self._sizes if item not in self._book.items])
        if self._writer is None or not operations:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        self._number += 1
        self._at = operations[-1].at
        pieces = entries.pack(self._number, tuple(operations), payloads)
        entry = Entry(entries.OPERATIONS, self._at, pieces, sizes)
        self._put(self._writer, entry)
        most = self._limits.memory_bytes
        if sizes and most is not None and self._in_memory > most:
            self._spilling.append((entry.done, tuple(sizes)))
        self._since += entry.size
        if self._since >= self._limits.segment_bytes:
            self._snapshot(self._writer, LIVELY)
        return entry.done

    def load(self, item: int) -> bytes:
        """The bytes of an item that lives. Raises `ItemLostError` where the disk no longer has them."""
        data = self.payloads.get(item)
        if data is None and self._writer is not None:
            data = self._writer.load(item)
        if data is None:
            raise ItemLostError(f"item {item} cannot be read back")
        return data

    def close(self) -> None:
        """Write what was submitted and let go of the folder. A second call does nothing."""
        if self._writer is not None:
            self._writer.close()
            self._log.close()
            self._folder.close()

    def _recover(self, unpacker: entries.Unpacker[Op]) -> list[Op]:
        """Fold what is there and begin to write; what the damage found makes necessary, applied."""
        found = Recovered(self._book, unpacker, self._limits.memory_bytes)
        found.read(self._log.placed(), str(self._folder.path))
        gone = found.lost()
        lost = self._book.lost(gone, found.at) if gone else []
        for operation in lost:
            self._book.apply(operation)
        self.payloads, self._number, self._at = found.payloads, found.number, found.at
        self._sizes = {item: place.size for item, place in found.places.items()}
        self._held = sum(self._sizes.values())
        self._in_memory = sum(map(len, self.payloads.values()))
        parts, mended = self._log.parts, self._log.recovery
        self._since = parts[-1].end if parts else 0
        self.recovery = Recovery(
            entries=found.count,
            damaged=found.damaged,
            lost=gone,
            torn_bytes=mended.torn_bytes,
            set_aside=tuple(mended.set_aside),
        )
        self._writer = Writer(self._log, Durability(self._limits.level.value), found)
        self._writer.commit.start()
        return lost

    def _put(self, writer: Writer[Op], entry: Entry) -> None:
        self._submitted += entry.size
        writer.commit.submit(entry)

    def _snapshot(self, writer: Writer[Op], least: float) -> "Future[None]":
        """Begin a file with the state as it is; old ones of which less than `least` lives are given up."""
        self._since = 0
        pieces = entries.pack(self._number, (self._book.snapshot(self._at),), {})
        entry = Entry(entries.SNAPSHOT, self._at, pieces, {}, frozenset(self._sizes), least)
        self._put(writer, entry)
        return entry.done

    def _spill(self) -> None:
        """Let go of what is on disk and was too much for the memory."""
        while self._spilling and self._spilling[0][0].done():
            for item in self._spilling.popleft()[1]:
                self._in_memory -= len(self.payloads.pop(item, b""))

    def _forget(self, gone: Iterable[int]) -> None:
        """Let go of the bytes of items that live no more."""
        for item in gone:
            self._held -= self._sizes.pop(item, 0)
            self._in_memory -= len(self.payloads.pop(item, b""))
