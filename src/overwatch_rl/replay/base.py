"""Tables: what both kinds of storage offer.

Owns the contract between the facade and a table. Two kinds: *sequences*, whose items are whole chunks that
are leased and used once, and *steps*, whose items are single steps that are sampled. Rules: a table is used
by one thread, takes the time from its caller, refuses by a reason and never drops what it has taken. It does
not know limiters: the facade asks them first. Must not know the wire.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from overwatch_rl.oplog import Level
from overwatch_rl.replay.chunk import Array, Chunk, Encoding
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.selectors import Priorities

Refusal: TypeAlias = Literal["invalid", "encoding", "too_large", "full", "disk"]
"""Why chunks were not taken: their content, another encoding, larger than the table, no room, or the disk."""
Removal: TypeAlias = Literal["cleared", "stale", "abandoned", "evicted", "incomplete", "lost"]
"""Why a taken item is not served again: asked for, its version's age, its version's lineage, room for new
ones, an episode of which steps are missing, or a damaged disk."""

Durability: TypeAlias = Level
"""What an answer survives."""


class ItemId(NamedTuple):
    """A place in a table and which of its items: a later item at the same place has another generation."""

    slot: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Most that a table holds."""

    items: int = 1 << 20
    """Chunks of a table of sequences, steps of a table of steps."""
    bytes: int = 1 << 30
    """Of columns; on disk too where chunks lie there."""
    memory_bytes: int | None = None
    """Most bytes in memory of a table with a folder; the rest is read back from there. `None` for all of
    them."""

    disk_bytes: int | None = None
    """Most bytes of the files of a table with a folder; `None` for four times `bytes` and 256 MiB."""

    def __post_init__(self) -> None:
        if self.items < 1 or self.bytes < 1 or (self.memory_bytes is not None and self.memory_bytes < 0):
            raise ValueError(f"a table holds at least an item and a byte: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """One table, as the server's configuration states it."""

    name: str
    kind: str = "sequences"
    """A row of `KINDS`."""
    selector: str = "fifo"
    """sequences: `fifo`, `trajectories`; steps: `uniform`, `prioritised`."""
    remover: str = "refuse"
    """sequences: `refuse`, `oldest`; steps: `oldest`."""
    capacity: Capacity = field(default_factory=Capacity)
    rate: Rate = field(default_factory=Rate)
    priorities: Priorities = field(default_factory=Priorities)
    """Of the selector `prioritised`."""
    seed: int | None = None
    """Of what a table of steps draws: the same draws the same. `None` for draws of their own."""
    durability: Durability = Durability.MEMORY
    folder: Path | None = None
    """Of a durable table, its own."""
    lease_s: float = 600.0
    """Until a lease ends by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Chunks that are the table's from now on, once `safe` is done; a repeat changed nothing."""

    items: int
    steps: int
    safe: "Future[None]"
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """There is no room, or the limiter holds new steps back: ask again when the table moved."""

    reason: Literal["limiter", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing of the request was taken, and asking again will not help unless the reason goes."""

    reason: Refusal
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One life of who appends, and the number of the request in it: a repeated request is taken once."""

    id: str
    number: int
    """Rises with every request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """What to remove: all conditions hold; a condition that is `None` always does."""

    reason: Removal = "cleared"
    env: str | None = None
    before: int | None = None
    """Taken before this, in Unix nanoseconds."""
    keep_last: int | None = None
    """All but so many of the newest."""
    older_than: tuple[int, int] | None = None
    """Versions below this (lineage, number)."""
    beyond: tuple[int, int] | None = None
    """Of this lineage and all before it, versions above this number: a resumed line does not descend from
    them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats:
    """What a table holds and did; what does not apply is `None`."""

    name: str
    kind: str
    items: int
    steps: int
    bytes: int
    accepted: int
    """Items; accepted = queued + leased + acknowledged + removed in a table of sequences."""
    queued: int | None = None
    leased: int | None = None
    acknowledged: int | None = None
    removed: Mapping[str, int] = field(default_factory=dict)
    """Items by reason."""
    sampled: int = 0
    """Items of sequences that were leased, steps that were sampled."""
    redelivered: int = 0
    late: Mapping[str, int] = field(default_factory=dict)
    """Priorities and acknowledgements that came too late, by kind: `priority`, `ack`."""
    leases: int | None = None
    spilled_bytes: int | None = None
    episodes: int | None = None
    envs: Mapping[str, int] = field(default_factory=dict)
    """Steps held, by env."""
    oldest: int | None = None
    newest: int | None = None
    """When the oldest and the newest item were taken, in Unix nanoseconds."""
    problem: str | None = None
    """Why the disk refuses."""
    is_full: bool = False
    """Whether an append found no room, and none was made since."""
    most_items: int | None = None
    most_bytes: int | None = None
    """What it may hold; `None` of a server that does not report it."""


class Table(Protocol):
    """What both kinds offer."""

    @property
    def steps(self) -> int:
        """Steps that it holds."""
        ...

    def append(self, chunks: Sequence[Chunk], writer: Writer | None, now: int) -> Taken | Wait | Refused:
        """Take all of checked chunks, or none."""
        ...

    def remove(self, which: Which, now: int) -> int:
        """Remove items; how many. What is leased stays."""
        ...

    def stats(self) -> TableStats:
        """What it holds and did."""
        ...

    def close(self) -> None:
        """Write what waits and let go of files. A second call does nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedChunk:
    """An item of a lease."""

    id: ItemId
    chunk: Chunk
    is_redelivered: bool
    """Whether it was leased before, and so may have been trained."""
    at: int
    """When it was taken, in Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOf:
    """Chunks that a learner has until it acknowledges or the deadline passes."""

    learner: str
    number: int
    """Rises from lease to lease of a learner, with gaps, and never comes twice."""
    items: tuple[LeasedChunk, ...]
    deadline: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Where a learner's next life goes on."""

    next_number: int
    """Of the next lease."""
    redelivered: int
    """Items of void leases: they come again, flagged."""
    acknowledged: int
    """Items of leases up to the cursor that are acknowledged by this."""
    gap: int
    """Leases after the cursor that were acknowledged before: their items are gone, and the resumed weights
    lack them."""
    is_unknown: bool
    """Whether the table does not know the cursor: it lost its own state."""


class SequenceTable(Table, Protocol):
    """Items are whole chunks, used once."""

    last: "Future[None] | None"
    """Of what was done last; done once that is as durable as the table's level requires. `None`: always."""

    def lease(self, learner: str, steps: int, after: int, now: int) -> LeaseOf | None:
        """The learner's first lease numbered above `after`: one that it did not get, or a new one.

        `after` is the last lease that it got, or `Resumed.next_number - 1`. A new one has as few of the next
        chunks as have at least `steps` steps; `None` where there are not so many.
        """
        ...

    def extend(self, learner: str, now: int) -> int:
        """Give all leases of a learner a new deadline; how many it has."""
        ...

    def acknowledge(self, learner: str, upto: int, now: int) -> int:
        """The items of leases numbered up to `upto` are used; how many are so by this call."""
        ...

    def resume(self, learner: str, cursor: int, now: int) -> Resumed:
        """Leases up to the cursor are used; later ones are void, and their items come again."""
        ...

    def expire(self, now: int) -> int:
        """End the leases whose deadline has passed; how many items come again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Steps drawn from a table: one row each."""

    slots: npt.NDArray[np.int64]
    generations: npt.NDArray[np.int64]
    columns: Mapping[str, Array]
    """Those of the encoding that have one row a step, and `next_observation`, `terminated` and
    `truncated`."""
    weights: npt.NDArray[np.float32]
    """Importance weights over their maximum; 1 where drawn uniformly."""
    lineages: npt.NDArray[np.int64]
    versions: npt.NDArray[np.int64]
    available: int
    """Steps that could have been drawn."""
    accepted: int
    """Steps that the table took since its server began."""


class StepTable(Table, Protocol):
    """Items are single steps, drawn again and again."""

    def sample(self, count: int, exponent: float | None = None) -> Sampled | None:
        """Draw with replacement; `exponent` is that of the importance weights; `None` where it is empty."""
        ...

    def update_priorities(
        self,
        slots: npt.NDArray[np.int64],
        generations: npt.NDArray[np.int64],
        priorities: npt.NDArray[np.float64],
    ) -> int:
        """Set priorities; how many came too late, as another step has the slot now."""
        ...


Maker: TypeAlias = Callable[[TableConfig, Encoding], Table]
"""Makes a table. Raises `ValueError` where its configuration contradicts itself."""
