"""Tables: what both kinds of storage take and give.

Two kinds: *sequences*, whose items are whole chunks that are leased and used once, and *steps*, whose items
are single steps that are sampled. Rules: a table is used by one thread, takes the time from its caller,
refuses by a reason and drops nothing but by a counted one. It does not know limiters: the facade asks them
first. Records that the wire has, as `Resumed`, are its messages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from overwatch_rl.protos.replay.v1.replay_pb2 import ClearRequest, ResumeResponse
from overwatch_rl.replay.chunk import Array, Chunk
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.selectors import Priorities

Refusal: TypeAlias = Literal["invalid", "encoding", "too_large"]
"""Why chunks were not taken: their content, another encoding, or larger than the table."""
Removal: TypeAlias = Literal["cleared", "evicted"]
"""Why an item is not served again: asked for, or room for new ones."""
Resumed: TypeAlias = ResumeResponse
"""Where a learner's next life goes on."""


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
    """Of memory: columns, names, and what a chunk takes beside them."""

    def __post_init__(self) -> None:
        if self.items < 1 or self.bytes < 1:
            raise ValueError(f"a table holds at least an item and a byte: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """One table, as the server's configuration states it."""

    name: str
    kind: str = "sequences"
    """A row of `service.KINDS`."""
    selector: str = "fifo"
    """sequences: `fifo`; steps: `uniform`, `prioritised`."""
    remover: str = "refuse"
    """sequences: `refuse`, `oldest`; steps: `oldest`."""
    capacity: Capacity = field(default_factory=Capacity)
    rate: Rate = field(default_factory=Rate)
    priorities: Priorities = field(default_factory=Priorities)
    """Of the selector `prioritised`."""
    seed: int | None = None
    """Of what a table of steps draws: the same draws the same. `None` for draws of their own."""
    lease_s: float = 600.0
    """Until a lease ends by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Chunks that are the table's from now on; a repeat changed nothing."""

    items: int
    steps: int
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


def matching(which: ClearRequest) -> Callable[[str, int, tuple[int, int]], bool]:
    """Whether all conditions of a request hold of an item, by env, when it was taken and its version."""
    env = which.env_id
    before = which.before_timestamp if which.HasField("before_timestamp") else None
    older, beyond = (
        (of.lineage, of.number) if which.HasField(name) else None
        for name, of in (("older_than", which.older_than), ("beyond", which.beyond))
    )
    return lambda own, at, version: (
        (not env or own == env)
        and (before is None or at < before)
        and (older is None or version < older)
        and (beyond is None or (version[0] <= beyond[0] and version[1] > beyond[1]))
    )


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
    episodes: int | None = None
    envs: Mapping[str, int] = field(default_factory=dict)
    """Steps held, by env."""
    oldest: int | None = None
    newest: int | None = None
    """When the oldest and the newest item were taken, in Unix nanoseconds."""
    is_full: bool = False
    """Whether an append found no room, and none was made since."""
    most_items: int | None = None
    most_bytes: int | None = None
    """What it may hold; `None` of a server that does not report it."""


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
