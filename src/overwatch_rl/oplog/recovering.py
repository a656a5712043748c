"""A log of operations read back: the state that they fold to, and the bytes of the items that live in it.

Rules: a damaged record costs what it held and nothing else. What later operations name of what was lost with
it is left out of them, as their book states. Each is counted. Must not know how the log is written.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple

import msgspec

from overwatch.journal import LogVersionError, Placed
from overwatch_rl.oplog import entries
from overwatch_rl.oplog.book import Book, Op

_SPARE: Final = 1_024
"""So many payloads more than items that live are kept before those that are not needed are let go."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What opening a store found and had to mend."""

    entries: int = 0
    """That were read."""
    damaged: int = 0
    """That could not be read, or not be applied for want of those; each is lost alone."""
    lost: tuple[int, ...] = ()
    """Items whose bytes are gone: they are expired, and counted so."""
    torn_bytes: int = 0
    """Cut off the end: what was being written and not answered, or damage."""
    set_aside: tuple[str, ...] = ()
    """Files that could not be read."""


class Place(NamedTuple):
    """Where a payload lies."""

    sequence: int
    """Of its record."""
    offset: int
    """Of the record in its file."""
    size: int
    """Of the payload."""


@dataclass(slots=True)
class Recovered(Generic[Op]):
    """What a log had."""

    book: Book[Op]
    unpacker: entries.Unpacker[Op]
    memory_bytes: int | None = None
    """Most bytes of payloads that are kept; `None` for all."""
    payloads: dict[int, bytes] = field(default_factory=dict)
    """By item."""
    places: dict[int, Place] = field(default_factory=dict)
    """Of the payload of each item."""
    snapshots: list[int] = field(default_factory=list)
    """Sequences of the last two snapshots."""
    number: int = 0
    """Of the last entry."""
    at: int = 0
    """When the last operation was."""
    count: int = 0
    """Of entries."""
    damaged: int = 0
    """Entries that could not be read, or not be applied."""
    _held: int = 0

    def read(self, records: Iterable[Placed], where: str) -> None:
        """Fold all of them. Raises `LogVersionError` naming `where`."""
        for record, offset in records:
            if record.kind not in (entries.OPERATIONS, entries.SNAPSHOT, entries.MOVED):
                raise LogVersionError(f"{where} was written by a newer version of Overwatch")
            try:
                head, payloads = self.unpacker.unpack(record.payload)
            except ValueError:
                self.damaged += 1
                continue
            self.count += 1
            if record.kind == entries.MOVED or self._fold(record.kind, record.sequence, head):
                self._keep(payloads, record.sequence, offset)
            if len(self.places) > len(self.book.items) + _SPARE:
                self._forget()
        self._forget()

    def lost(self) -> tuple[int, ...]:
        """Items of which the payload is gone."""
        return tuple(item for item in self.book.items if item not in self.places)

    def _keep(self, payloads: dict[int, bytes], sequence: int, offset: int) -> None:
        for item, data in payloads.items():
            self.places[item] = Place(sequence, offset, len(data))
            self._held += len(data) - len(self.payloads.get(item, b""))
            self.payloads[item] = data
        while self.memory_bytes is not None and self._held > self.memory_bytes:
            # The oldest are served first: the newest are read back later.
            self._held -= len(self.payloads.popitem()[1])

    def _forget(self) -> None:
        items = self.book.items
        self.payloads = {item: data for item, data in self.payloads.items() if item in items}
        self.places = {item: place for item, place in self.places.items() if item in items}
        self._held = sum(map(len, self.payloads.values()))

    def _fold(self, kind: int, sequence: int, head: entries.Head[Op]) -> bool:
        """Apply an entry; whether it was not there before."""
        if kind == entries.SNAPSHOT:
            self.snapshots = [*self.snapshots[-1:], sequence]
        elif head.number <= self.number:
            # It was written again after a sync had failed.
            return False
        elif head.number > self.number + 1:
            # How much of what is missing before the first entry was needed is unknown.
            self.damaged += head.number - self.number - 1 if self.number else 1
        self.number = head.number
        for operation in head.operations:
            self._apply(operation)
        return True

    def _apply(self, operation: Op) -> None:
        self.at = max(self.at, operation.at)
        whole = operation if not self.damaged else self.book.mended(operation)
        if whole is not None:
            try:
                self.book.apply(whole)
            except (LookupError, ValueError):
                self.damaged += 1
