"""What a journal holds and how it is used: batches, the journal they go into, a reader's cursor.

Rules: stamps strictly rise; a cursor's `seal(tick)` promises that no later batch gets a stamp at or before
the tick; a full journal refuses, it never drops what it accepted. Must not know where batches are kept.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

import msgspec

from overwatch.journal.cursors import CursorFile, Note

SEGMENT_BYTES: Final = 16 << 20
"""Size of a file of a journal that is large."""
CHUNK_BYTES: Final = 1 << 20
"""Most bytes that a reader is given at once by `wait`, one batch more or less."""


class Signal(Enum):
    """What a batch's body holds."""

    LOGS = "logs"
    METRICS = "metrics"
    TRACES = "traces"
    START = "start"
    """A collector's own start record; jumps the tick clock."""


KINDS: Final = {Signal.LOGS: 1, Signal.METRICS: 2, Signal.TRACES: 3, Signal.START: 4}
"""What a signal is called in a log; never reused."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What who accepted a body made of it, for readers who would make the same. Journals only carry it."""

    what: object
    cost: int
    """Bytes of memory that it takes, about."""
    instead: bool = False
    """Whether who has it needs the body no more."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted request: OTLP protobuf bytes of an export request, or a start record."""

    sequence: int
    """1 for the first batch of a journal, then rising; a gap is a batch that was refused after all."""
    stamp: int
    """Receive time in Unix nanoseconds; strictly rising."""
    signal: Signal
    body: bytes
    """Empty where what was made of it is here instead."""
    items: int | None = None
    """Log records, data points or spans in it, where they were counted at the door; not kept on disk."""
    made: Made | None = None
    """For readers that take it, while they keep up; not kept on disk."""
    let_go: int = 0
    """Bytes of a body that is not here."""

    @property
    def size(self) -> int:
        """Bytes of the body that was accepted."""
        return len(self.body) + self.let_go

    @property
    def weight(self) -> int:
        """Bytes of memory that it takes while it waits, about."""
        return len(self.body) + (0 if self.made is None else self.made.cost)

    def for_reader(self, *, made: bool) -> "Batch":
        """What a reader is given of it that takes what was `made` of bodies, or does not."""
        if self.made is None:
            return self
        if not made:
            return msgspec.structs.replace(self, made=None)
        if not self.made.instead:
            return self
        return msgspec.structs.replace(self, body=b"", let_go=len(self.body))


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a reader is behind."""

    batches: int = 0
    """That it has not read, of all signals."""
    unread: float = 0.0
    """The share of the room for batches that wait which those that it has not read take up."""
    kept: float = 0.0
    """The share of the disk that is taken up by what it has not let go of; 0 in memory."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A time without a stamp and without a sealed tick, Unix nanoseconds."""

    before: int
    """The newest stamp or sealed tick before it."""
    stamp: int
    """Of the start record that ends it."""


class JournalFullError(RuntimeError):
    """The journal cannot take a batch now: its budget is used up, or the disk refuses. Later it may."""


class Cursor(Protocol):
    """One reader's place in a journal."""

    @property
    def position(self) -> int:
        """Sequence number of the next batch to read."""
        ...

    def earlier(self) -> Iterator[Batch]:
        """Unread batches of earlier lives of the journal; the rest comes by `seal` or `wait`."""
        ...

    def reach(self, tick: int) -> Gap | None:
        """Seal `tick`; or, where the process did not run then, return the gap that it lies in."""
        ...

    def settled(self, tick: int, timeout_s: float) -> bool:
        """Whether `seal` of a tick that was reached would return at once; waits up to `timeout_s` for it."""
        ...

    def seal(self, tick: int) -> list[Batch]:
        """All unread batches stamped at or before `tick`; later ones will be stamped after it."""
        ...

    def wait(self, timeout_s: float) -> list[Batch]:
        """Unread batches, up to some MiB; waits up to `timeout_s` seconds for the first."""
        ...

    def keep(self, position: int) -> None:
        """Batches before `position` are not needed again by this reader, nor by its next life."""
        ...


class Durability(Enum):
    """What an acknowledged batch survives."""

    FSYNC = "fsync"
    """The machine's power loss."""
    FAST = "fast"
    """The collector's death; a power loss may cost the last second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """What a journal on disk may use."""

    durability: Durability = Durability.FSYNC
    """When a batch counts as accepted."""
    held_bytes: int = 256 << 20
    """Most bytes of batches that wait for their readers."""
    disk_bytes: int = 2 << 30
    """Most bytes on disk, one segment more or less."""
    segment_bytes: int = SEGMENT_BYTES
    """Size of one file, the unit in which room is given back."""

    def __post_init__(self) -> None:
        if self.held_bytes < 1 or self.disk_bytes < 2 * self.segment_bytes:
            raise ValueError(f"the disk must have room for two segments, and readers for a byte: {self}")


TYPICAL_BYTES: Final = 64 << 10
"""The size of a body for which a journal must have room to count as accepting."""


class Pace(NamedTuple):
    """How fast a log's disk is."""

    commits: int
    """How often something was written, synced where that was asked, and what is no longer needed removed."""
    took_s: float
    """How long all of them took."""
    waiting_s: float
    """How long the one that is under way has taken; 0 where none is."""


class Journal(Protocol):
    """Batches in order, for any number of cursors; safe from any thread."""

    @property
    def backlog(self) -> Mapping[str, int]:
        """Bytes of bodies taken in by this process that each cursor has not read, by the cursor's name."""
        ...

    @property
    def capacity_bytes(self) -> int:
        """Most bytes of bodies that wait."""
        ...

    def note_gaps(self, body: Callable[[int], bytes]) -> None:
        """From now on each gap ends with a start record, of what `body` makes of the gap's `before`.

        A reader must seal ticks all the time: a journal without one has gaps wherever nothing comes.
        """
        ...

    def lag(self, name: str) -> Lag:
        """How far the cursor of that name is behind; nothing for a name without a cursor."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies taken in by this process that some cursor has not passed."""
        ...

    @property
    def is_pressed(self) -> bool:
        """Whether half of the room for batches that wait is used up, so that who is stuck should give up."""
        ...

    @property
    def problem(self) -> str | None:
        """Why no body is accepted now; `None` while there is room."""
        ...

    @property
    def pace(self) -> Pace | None:
        """How fast its disk is; `None` where it has none."""
        ...

    def append(self, signal: Signal, body: bytes) -> Batch:
        """Accept one body; raises `JournalFullError`. What was accepted is kept as the journal promises."""
        ...

    def submit(
        self, signal: Signal, body: bytes, items: int | None = None, made: Made | None = None
    ) -> Future[Batch]:
        """As `append`, without waiting; what refuses later is the future's, which cannot be cancelled."""
        ...

    def cursor(self, name: str, start: int | None = None, *, made: bool = False) -> Cursor:
        """A new reader: of every batch from now on, or of what is kept from sequence `start` on.

        With `made` it gets what was made of a body, if anything was, and need not make it again.
        """
        ...

    def place(self, name: str) -> CursorFile | None:
        """Where a reader's place outlives this process; `None` where nothing does."""
        ...

    def note(self, name: str) -> Note | None:
        """Where a part's few bytes outlive this process; `None` where nothing does."""
        ...
