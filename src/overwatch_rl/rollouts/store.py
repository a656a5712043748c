"""The rollouts queue on disk: its operations in a log, the bytes of accepted groups beside them.

Owns the folder, what of it is still needed, and what `submit` promises: its future is done once the
operations, and all before them, are as durable as was asked. Nothing that was submitted is ever given up: the
state is ahead of the disk by what waits, so a disk that refuses is tried again until it takes everything, in
order; `problem` says so meanwhile, and `room` refuses new groups. A snapshot of the state begins a file every
`segment_bytes`; a file older than the last two snapshots goes once none of its groups lives, and what little
lives in one is copied forward. Must not know what operations mean, HTTP, or who waits.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from overwatch.journal import HEADER_BYTES, DiskFiles, Durability, Files, Folder, GroupCommit, Log, LogLimits
from overwatch_rl.rollouts import entries, queue
from overwatch_rl.rollouts.operations import Accepted, Expired, Operation, is_logged
from overwatch_rl.rollouts.recovering import Recovered
from overwatch_rl.rollouts.state import State

_NAME: Final = "rollouts"
_LIVELY: Final = 0.1
"""A file of which less lives is copied forward."""
_LIVELY_PRESSED: Final = 0.5
"""The same while new groups are refused for want of room on disk."""
_SIZES: Final = LogLimits(segment_bytes=1 << 40, record_bytes=(1 << 32) - 1)
"""Files are begun here, not by the log."""

Kept: TypeAlias = tuple[Operation, bytes | None]
"""An operation and, of an accepted group, its bytes."""

_log = logging.getLogger("overwatch.rollouts")


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
    """Most bytes of groups that are queued or leased: they are in memory too."""
    disk_bytes: int = 4 << 30
    """Most bytes on disk."""
    segment_bytes: int = 64 << 20
    """So much is written from snapshot to snapshot."""

    def __post_init__(self) -> None:
        if self.held_bytes < 1 or self.disk_bytes < 2 * self.held_bytes + 4 * self.segment_bytes:
            raise ValueError(f"the disk needs room for twice what is held and four segments: {self}")


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What opening a store found and had to mend."""

    entries: int = 0
    """That were read."""
    damaged: int = 0
    """That could not be read, or not be applied for want of those; each is lost alone."""
    lost: tuple[int, ...] = ()
    """Accepted groups whose bytes are gone: they are expired, and counted so."""
    torn_bytes: int = 0
    """Cut off the end: what was being written and not answered, or damage."""
    set_aside: tuple[str, ...] = ()
    """Files that could not be read."""


class StoreClosedError(RuntimeError):
    """The store was closed before this was durable."""


@dataclass(slots=True)
class _Entry:
    """One record on its way to the disk."""

    kind: int
    stamp: int
    pieces: tuple[bytes, ...]
    items: Iterable[int] = ()
    """Groups whose payloads are in it."""
    living: Mapping[int, bytes] | None = None
    """With a snapshot: the payloads of all groups that live, which are not in it."""
    least: float = _LIVELY
    """With a snapshot: a file of which less lives is copied forward."""
    done: Future[None] = field(default_factory=Future)
    size: int = 0
    """On disk."""

    def __post_init__(self) -> None:
        self.size = HEADER_BYTES + sum(map(len, self.pieces))
        # Who gives up does not take it back: it is written all the same.
        self.done.set_running_or_notify_cancel()


class _Writer:
    """What the thread that writes knows: what waits, where each payload lies, which files may go."""

    def __init__(
        self, log: Log, durability: Durability, places: dict[int, int], snapshots: list[int]
    ) -> None:
        self.commit: GroupCommit[_Entry] = GroupCommit(log, self, durability, self._report)
        self.settled = 0
        """Bytes that were submitted and are on disk, or were."""
        self.dead = 0
        """Bytes on disk that were not of living groups, when files were last given up."""
        self._log = log
        self._places = places
        """Sequence of the record with the payload of each group."""
        self._snapshots = snapshots
        """Sequences of the last two snapshots."""
        self._living = 0
        """Bytes of the groups that lived at the last snapshot."""
        self._waiting: deque[_Entry] = deque()
        self._written: deque[_Entry] = deque()
        """Since the last sync."""
        self._refusal: Exception | None = None

    def begin(self, group: Sequence[_Entry]) -> None:  # noqa: ARG002 each is written by `write`
        """First what the disk refused before."""
        self._refusal = None
        self._flush()

    def write(self, item: _Entry) -> None:
        """After all that was submitted before it."""
        self._waiting.append(item)
        self._flush()

    def settle(self, group: Sequence[tuple[_Entry, Exception | None]], doubt: Exception | None) -> None:  # noqa: ARG002 what is refused waits
        """Answer for what is safe; write again what may not be."""
        if doubt is not None:
            self._waiting.extendleft(reversed(self._written))
            self._written.clear()
            return
        may_drop = any(entry.kind != entries.OPERATIONS for entry in self._written)
        while self._written:
            entry = self._written.popleft()
            if entry.kind != entries.MOVED:
                self.settled += entry.size
            entry.done.set_result(None)
        if may_drop:
            self._give_up()

    def needed(self) -> int:
        """Files go one by one."""
        return 0

    def close(self) -> None:
        """End the thread; what the disk still refuses is not safe."""
        self.commit.close()
        for entry in self._waiting:
            entry.done.set_exception(StoreClosedError(f"the store was closed: {self.commit.refusal}"))
        self._waiting.clear()

    def _flush(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        while self._waiting:
            try:
                moved = self._append(self._waiting[0])
            except (OSError, ValueError) as error:
                self._refusal = error
                raise
            self._written.append(self._waiting.popleft())
            self._waiting.extendleft(moved)

    def _append(self, entry: _Entry) -> list[_Entry]:
        """Write one; what is to be written right after it."""
        if entry.living is not None:
            self._log.turn()
        sequence = self.commit.append(entry.kind, entry.stamp, *entry.pieces)
        self._places.update(dict.fromkeys(entry.items, sequence))
        if entry.living is None:
            return []
        self._snapshots[:] = [*self._snapshots[-1:], sequence]
        self._places = {item: place for item, place in self._places.items() if item in entry.living}
        self._living = sum(map(len, entry.living.values()))
        return list(self._forward(entry, entry.living))

    def _forward(self, snapshot: _Entry, payloads: Mapping[int, bytes]) -> Iterator[_Entry]:
        """What lives in old files that are nearly dead."""
        for living, size in self._old().values():
            moved = {item: payloads[item] for item in living}
            if 0 < sum(map(len, moved.values())) < snapshot.least * size:
                yield _Entry(entries.MOVED, snapshot.stamp, entries.pack(0, (), moved), tuple(moved))

    def _old(self) -> dict[str, tuple[list[int], int]]:
        """By name, the files before the last two snapshots: the groups that live there, and their bytes."""
        parts = self._log.parts
        firsts = [part.first for part in parts]
        living: dict[str, list[int]] = {part.name: [] for part in parts}
        for item, place in self._places.items():
            living[parts[bisect_right(firsts, place) - 1].name].append(item)
        before = bisect_right(firsts, self._snapshots[0]) - 1 if len(self._snapshots) > 1 else 0
        return {part.name: (living[part.name], part.end) for part in parts[:before]}

    def _give_up(self) -> None:
        """Remove the old files in which nothing lives, once what replaces them survives a power loss."""
        dead = {name for name, (living, _) in self._old().items() if not living}
        try:
            if dead:
                self._log.sync()
            for part in self._log.parts:
                if part.name in dead:
                    with self.commit.files:
                        self._log.remove(part)
            self.dead = self._log.size_bytes - self._living
        except OSError as error:
            self._report(f"a file that is no longer needed cannot be removed: {error}")

    def _report(self, trouble: str | None) -> None:
        if trouble is not None:
            _log.error("the rollouts store: %s", trouble)


class Store:
    """The queue's operations in a folder. One thread uses it, that of the state; `close` it."""

    def __init__(
        self,
        path: Path | None,
        state: State,
        limits: StoreLimits | None = None,
        files: Callable[[int], Files] = DiskFiles,
    ) -> None:
        """Lock the folder and fold what it has into `state`, which must be new.

        `path` is `None` for the level `memory` alone. Raises `FolderBusyError` naming who has the folder,
        `LogVersionError` for one of a newer version, `OSError` for one that cannot be read.
        """
        self._state = state
        self._limits = limits or StoreLimits()
        self.payloads: dict[int, bytes] = {}
        """Of the groups that are queued or leased, by id."""
        self.recovery = Recovery()
        self._held = self._submitted = self._since = 0
        self._pressed: Future[None] | None = None
        """The snapshot that was begun for want of room."""
        self._number = self._at = 0
        self._writer: _Writer | None = None
        if self._limits.level is Level.MEMORY:
            return
        if path is None:
            raise ValueError(f"the level {self._limits.level.value} needs a folder")
        self._folder = Folder(path, files)
        try:
            self._log = Log(self._folder, _NAME, _SIZES)
            lost = self._recover()
        except BaseException:
            self._folder.close()
            raise
        self.submit((operation, None) for operation in lost)

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
        """Bytes of the groups that are queued or leased."""
        return self._held

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
        """Whether groups of so many bytes can be taken now."""
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

    def submit(self, records: Iterable[Kept]) -> "Future[None]":
        """Keep operations that were applied, in order; done once they are as durable as was asked.

        What is not to be logged is passed over. The future cannot be cancelled, and fails only with
        `StoreClosedError`.
        """
        kept = [(operation, payload) for operation, payload in records if is_logged(operation)]
        payloads = {
            operation.id: data
            for operation, data in kept
            if isinstance(operation, Accepted) and data is not None
        }
        self.payloads |= payloads
        self._held += sum(map(len, payloads.values()))
        if len(self.payloads) > len(self._state.items):
            self._forget()
        operations = tuple(operation for operation, _ in kept)
        if self._writer is None or not operations:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        self._number += 1
        self._at = operations[-1].at
        pieces = entries.pack(self._number, operations, payloads)
        entry = _Entry(entries.OPERATIONS, self._at, pieces, tuple(payloads))
        self._put(self._writer, entry)
        self._since += entry.size
        if self._since >= self._limits.segment_bytes:
            self._snapshot(self._writer, _LIVELY)
        return entry.done

    def close(self) -> None:
        """Write what was submitted and let go of the folder. A second call does nothing."""
        if self._writer is not None:
            self._writer.close()
            self._log.close()
            self._folder.close()

    def _recover(self) -> list[Operation]:
        """Fold what is there and begin to write; what the damage found makes necessary, applied."""
        found = Recovered(self._state)
        found.read(self._log.read(), str(self._folder.path))
        lost = found.lost()
        for operation in lost:
            queue.apply(self._state, operation)
        self.payloads, self._number, self._at = found.payloads, found.number, found.at
        self._held = sum(map(len, self.payloads.values()))
        parts, mended = self._log.parts, self._log.recovery
        self._since = parts[-1].end if parts else 0
        self.recovery = Recovery(
            entries=found.count,
            damaged=found.damaged,
            lost=tuple(
                item for operation in lost if isinstance(operation, Expired) for item in operation.items
            ),
            torn_bytes=mended.torn_bytes,
            set_aside=tuple(mended.set_aside),
        )
        durability = Durability(self._limits.level.value)
        self._writer = _Writer(self._log, durability, found.places, found.snapshots)
        self._writer.commit.start()
        return lost

    def _put(self, writer: _Writer, entry: _Entry) -> None:
        self._submitted += entry.size
        writer.commit.submit(entry)

    def _snapshot(self, writer: _Writer, least: float) -> "Future[None]":
        """Begin a file with the state as it is; old ones of which less than `least` lives are given up."""
        self._since = 0
        pieces = entries.pack(self._number, (queue.snapshot(self._state, self._at),), {})
        entry = _Entry(entries.SNAPSHOT, self._at, pieces, (), dict(self.payloads), least)
        self._put(writer, entry)
        return entry.done

    def _forget(self) -> None:
        """Let go of the bytes of groups that were used or expired."""
        items = self._state.items
        for item in [item for item in self.payloads if item not in items]:
            self._held -= len(self.payloads.pop(item))
