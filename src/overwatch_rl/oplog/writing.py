"""The thread that writes a store's entries: in order, again where the disk refused, and what it gives up.

Owns which file holds which payload, and which files may go. Rules: an entry is done once it, and all before
it, are as durable as was asked; a file goes once what replaces it survives a power loss. Must not know what
operations mean.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Generic

from overwatch.journal import HEADER_BYTES, Durability, GroupCommit, Log
from overwatch_rl.oplog import entries
from overwatch_rl.oplog.book import Op
from overwatch_rl.oplog.recovering import Place, Recovered

LIVELY: Final = 0.1
"""A file of which less lives is copied forward."""

_log = logging.getLogger("overwatch_rl.oplog")


class StoreClosedError(RuntimeError):
    """The store was closed before this was durable."""


@dataclass(slots=True)
class Entry:
    """One record on its way to the disk."""

    kind: int
    stamp: int
    pieces: tuple[bytes, ...]
    items: Mapping[int, int] = field(default_factory=dict)
    """Sizes of the payloads in it, by item."""
    living: Collection[int] | None = None
    """With a snapshot: all items that live; their payloads are not in it."""
    least: float = LIVELY
    """With a snapshot: a file of which less lives is copied forward."""
    done: Future[None] = field(default_factory=Future)
    size: int = 0
    """On disk."""

    def __post_init__(self) -> None:
        self.size = HEADER_BYTES + sum(map(len, self.pieces))
        # Who gives up does not take it back: it is written all the same.
        self.done.set_running_or_notify_cancel()


class Writer(Generic[Op]):
    """What the thread that writes knows: what waits, where each payload lies, which files may go."""

    def __init__(self, log: Log, durability: Durability, found: Recovered[Op]) -> None:
        self.commit: GroupCommit[Entry] = GroupCommit(log, self, durability, self._report)
        self.settled = 0
        """Bytes that were submitted and are on disk, or were."""
        self.dead = 0
        """Bytes on disk that were not of living items, when files were last given up."""
        self._log, self._unpacker = log, found.unpacker
        self._places = found.places
        """Where the payload of each item lies."""
        self._last: tuple[int, dict[int, bytes]] = (0, {})
        """The record that was read last, and its payloads: what was written together is read together."""
        self._snapshots = found.snapshots
        """Sequences of the last two snapshots."""
        self._living = 0
        """Bytes of the items that lived at the last snapshot."""
        self._waiting: deque[Entry] = deque()
        self._written: deque[Entry] = deque()
        """Since the last sync."""
        self._refusal: Exception | None = None

    def begin(self, group: Sequence[Entry]) -> None:  # noqa: ARG002 each is written by `write`
        """First what the disk refused before."""
        self._refusal = None
        self._flush()

    def write(self, item: Entry) -> None:
        """After all that was submitted before it."""
        self._waiting.append(item)
        self._flush()

    def settle(self, group: Sequence[tuple[Entry, Exception | None]], doubt: Exception | None) -> None:  # noqa: ARG002 what is refused waits
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

    def load(self, item: int) -> bytes | None:
        """A payload from disk, for any thread; `None` where it is damaged, gone or not written yet."""
        with self.commit.files:
            place = self._places.get(item)
            if place is None:
                return None
            if self._last[0] != place.sequence:
                record = self._log.at(place.sequence, place.offset)
                if record is None:
                    return None
                self._last = place.sequence, self._unpacker.unpack(record.payload)[1]
            return self._last[1].get(item)

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

    def _append(self, entry: Entry) -> list[Entry]:
        """Write one; what is to be written right after it."""
        if entry.living is not None:
            self._log.turn()
        sequence = self.commit.append(entry.kind, entry.stamp, *entry.pieces)
        offset = self._log.parts[-1].end - entry.size
        self._places.update({item: Place(sequence, offset, size) for item, size in entry.items.items()})
        if entry.living is None:
            return []
        self._snapshots[:] = [*self._snapshots[-1:], sequence]
        places = self._places
        self._places = {item: places[item] for item in entry.living if item in places}
        self._living = sum(place.size for place in self._places.values())
        return list(self._forward(entry))

    def _forward(self, snapshot: Entry) -> Iterator[Entry]:
        """What lives in old files that are nearly dead; what cannot be read keeps its file."""
        for living, size in self._old().values():
            sizes = {item: self._places[item].size for item in living}
            if not 0 < sum(sizes.values()) < snapshot.least * size:
                continue
            moved = {item: data for item in living if (data := self.load(item)) is not None}
            if len(moved) == len(living):
                yield Entry(entries.MOVED, snapshot.stamp, entries.pack(0, (), moved), sizes)

    def _old(self) -> dict[str, tuple[list[int], int]]:
        """By name, the files before the last two snapshots: the items that live there, and its bytes."""
        parts = self._log.parts
        firsts = [part.first for part in parts]
        living: dict[str, list[int]] = {part.name: [] for part in parts}
        for item, place in self._places.items():
            living[parts[bisect_right(firsts, place.sequence) - 1].name].append(item)
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
            _log.error("%s: %s", self._log.folder.path, trouble)
