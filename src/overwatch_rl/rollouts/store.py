"""The rollouts queue on disk: its operations in a log, the bytes of accepted groups beside them.

Owns the folder, what of it is still needed, and what `submit` promises: its future is done once the
operations, and all before them, are as durable as was asked. Nothing that was submitted is ever given up: the state is
ahead of the disk by what waits, so a disk that refuses is tried again until it takes everything, in order;
`problem` says so meanwhile, and `room` refuses new groups. A snapshot of the state begins a file every
`segment_bytes`; a file older than the last two snapshots goes once none of its groups lives, and what little
lives in one is copied forward. Must not know what operations mean, HTTP, or who waits.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from overwatch.journal import HEADER_BYTES, Durability, Folder, GroupCommit, Log, LogLimits
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
    number: int
    stamp: int
    operations: tuple[Operation, ...]
    payloads: Mapping[int, bytes]
    """With a snapshot, those of all groups that live: they are not written with it."""
    done: Future[None] = field(default_factory=Future)
    is_pressed: bool = False

    @property
    def size(self) -> int:
        """Bytes of its payloads."""
        return 0 if self.kind == entries.SNAPSHOT else sum(map(len, self.payloads.values()))


class _Writer:
    """What the thread that writes knows: what waits, where each payload lies, which files may go."""

    def __init__(
        self, log: Log, durability: Durability, places: dict[int, int], snapshots: list[int]
    ) -> None:
        self.commit: GroupCommit[_Entry] = GroupCommit(log, self, durability, self._report)
        self.settled = 0
        """Bytes of payloads that are on disk, or were, of this life."""
        self._log = log
        self._places = places
        """Sequence of the record with the payload of each group."""
        self._snapshots = snapshots
        """Sequences of the last two snapshots."""
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
        has_moved = any(entry.kind != entries.OPERATIONS for entry in self._written)
        while self._written:
            entry = self._written.popleft()
            self.settled += entry.size
            entry.done.set_result(None)
        if has_moved:
            self._give_up()

    def needed(self) -> int:
        """Files go one by one."""
        return 0

    def close(self) -> None:
        """End the thread; what the disk still refuses is not safe."""
        self.commit.close()
        for entry in self._waiting:
            entry.done.set_exception(StoreClosedError(f"the store was closed: {self.commit.refusal}"))
        self._log.close()

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
        is_snapshot = entry.kind == entries.SNAPSHOT
        if is_snapshot:
            self._log.turn()
        pieces = entries.pack(entry.number, entry.operations, {} if is_snapshot else entry.payloads)
        sequence = self.commit.append(entry.kind, entry.stamp, *pieces)
        if not is_snapshot:
            self._places.update(dict.fromkeys(entry.payloads, sequence))
            return []
        self._snapshots[:] = [*self._snapshots[-1:], sequence]
        self._places = {item: place for item, place in self._places.items() if item in entry.payloads}
        return self._forward(entry)

    def _forward(self, snapshot: _Entry) -> list[_Entry]:
        """What lives in old files that are nearly dead."""
        least = _LIVELY_PRESSED if snapshot.is_pressed else _LIVELY
        moved = []
        for living, size in self._old().values():
            payloads = {item: snapshot.payloads[item] for item in living}
            if 0 < sum(map(len, payloads.values())) < least * size:
                moved.append(_Entry(entries.MOVED, 0, snapshot.stamp, (), payloads))
        return moved

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
        except OSError as error:
            self._report(f"a file that nobody needs is kept: {error}")

    def _report(self, trouble: str | None) -> None:
        if trouble is not None:
            _log.error("the rollouts store: %s", trouble)


class Store:
    """The queue's operations in a folder. One thread uses it, that of the state; `close` it."""

    def __init__(self, path: Path | None, state: State, limits: StoreLimits | None = None) -> None:
        """Lock the folder and fold what it has into `state`, which must be new.

        `path` is `None` for the level `memory` alone. Raises `FolderBusyError` naming who has the folder,
        `LogVersionError` for one of a newer version, `OSError`.
        """
        self._state = state
        self._limits = limits or StoreLimits()
        self.payloads: dict[int, bytes] = {}
        """Of the groups that are queued or leased, by id."""
        self.recovery = Recovery()
        self._held = self._submitted = self._since = self._pressed_at = 0
        self._number = self._at = 0
        self._writer: _Writer | None = None
        if self._limits.level is Level.MEMORY:
            return
        if path is None:
            raise ValueError(f"the level {self._limits.level.value} needs a folder")
        self._folder = Folder(path)
        try:
            self._log = Log(self._folder, _NAME, _SIZES)
            lost = self._recover()
        except BaseException:
            self._folder.close()
            raise
        self.submit((operation, None) for operation in lost)

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
        dead = self.disk_bytes - self._held
        if dead >= self._pressed_at + self._limits.segment_bytes or not self._pressed_at:
            self._pressed_at = max(dead, 1)
            self._snapshot(is_pressed=True)
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
        entry = _Entry(entries.OPERATIONS, self._number, self._at, operations, payloads)
        self._put(self._writer, entry)
        self._since += entry.size + HEADER_BYTES
        if self._since >= self._limits.segment_bytes:
            self._snapshot(is_pressed=False)
        return entry.done

    def close(self) -> None:
        """Write what was submitted and let go of the folder. A second call does nothing."""
        if self._writer is not None:
            self._writer.close()
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
            entries=found.entries,
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
        entry.done.set_running_or_notify_cancel()
        self._submitted += entry.size
        writer.commit.submit(entry)

    def _snapshot(self, *, is_pressed: bool) -> None:
        """Begin a file with the state as it is."""
        if self._writer is not None:
            self._since = 0
            snapshot = queue.snapshot(self._state, self._at)
            entry = _Entry(entries.SNAPSHOT, self._number, snapshot.at, (snapshot,), dict(self.payloads))
            entry.is_pressed = is_pressed
            self._put(self._writer, entry)

    def _forget(self) -> None:
        """Let go of the bytes of groups that were used or expired."""
        items = self._state.items
        for item in [item for item in self.payloads if item not in items]:
            self._held -= len(self.payloads.pop(item))
