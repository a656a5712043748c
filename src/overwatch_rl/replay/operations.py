"""Everything that can happen to a table of sequences, as frozen facts that a log keeps in order.

Owns the closed union `Operation`. The state of a table is a fold of operations and of nothing else. `at` is
the server's time in Unix nanoseconds. The bytes of columns are not here: the log keeps them beside. Must not
know how a decision was made, nor files.
"""

from typing import TypeAlias

import msgspec

from overwatch_rl.replay.base import Removal
from overwatch_rl.replay.chunk import Encoding, End


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chunk that is queued or leased, without its bytes."""

    id: int
    """Rises with every accepted chunk; never used twice."""
    at: int
    run: str
    env: str
    episode: int
    first_step: int
    steps: int
    lineage: int
    version: int
    end: End
    size: int
    """Bytes of its columns."""


class _Operation(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    at: int


class Declared(_Operation, frozen=True, kw_only=True):
    """What the bytes of the table mean from now on."""

    encoding: Encoding


class Accepted(_Operation, frozen=True, kw_only=True):
    """A chunk is the table's from now on."""

    item: Item
    writer: str | None = None
    number: int = 0
    """Of the writer's request."""


class Leased(_Operation, frozen=True, kw_only=True):
    """A learner has chunks until it acknowledges or the deadline passes."""

    learner: str
    number: int
    items: tuple[int, ...]
    deadline: int


class Extended(_Operation, frozen=True, kw_only=True):
    """All leases of a learner got a later deadline."""

    learner: str
    deadline: int


class Acknowledged(_Operation, frozen=True, kw_only=True):
    """The chunks of leases up to a number are used and never served again."""

    learner: str
    upto: int
    items: tuple[int, ...]
    """Exactly those: what a damaged log lacks changes nothing of them."""


class Lapsed(_Operation, frozen=True, kw_only=True):
    """A lease ended by time: its chunks are queued again.

    A late acknowledgement still counts for them, until they are leased again.
    """

    learner: str
    number: int


class Missed(_Operation, frozen=True, kw_only=True):
    """A learner never got the leases after this one that lapsed: it cannot acknowledge them."""

    learner: str
    after: int


class LearnerResumed(_Operation, frozen=True, kw_only=True):
    """A learner goes on from a checkpoint: leases up to the cursor are used, later ones are void."""

    learner: str
    cursor: int
    items: tuple[int, ...]
    """Those that are used by this."""


class Removed(_Operation, frozen=True, kw_only=True):
    """Queued chunks that are never served again."""

    items: tuple[int, ...]
    reason: Removal


class Lease(msgspec.Struct, frozen=True):
    """Chunks that a learner has."""

    number: int
    items: tuple[int, ...]
    deadline: int


class Learner(msgspec.Struct, kw_only=True):
    """One learner's leases."""

    next_number: int = 1
    leases: dict[int, Lease] = msgspec.field(default_factory=dict)
    """By number, rising."""
    lapsed: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Items of leases that ended by time and may still be acknowledged."""
    done: dict[int, int] = msgspec.field(default_factory=dict)
    """Items of the last leases that were acknowledged, by number."""


class Amount(msgspec.Struct, kw_only=True, omit_defaults=True):
    """So many chunks, with so many steps and bytes."""

    items: int = 0
    steps: int = 0
    bytes: int = 0

    def add(self, item: Item, sign: int = 1) -> None:
        """Count one chunk more, or one less."""
        self.items += sign
        self.steps += sign * item.steps
        self.bytes += sign * item.size


class Account(msgspec.Struct, kw_only=True):
    """Where everything is: accepted = queued + leased + acknowledged + removed."""

    accepted: Amount = msgspec.field(default_factory=Amount)
    queued: Amount = msgspec.field(default_factory=Amount)
    leased: Amount = msgspec.field(default_factory=Amount)
    acknowledged: Amount = msgspec.field(default_factory=Amount)
    removed: dict[Removal, Amount] = msgspec.field(default_factory=dict)
    sampled: Amount = msgspec.field(default_factory=Amount)
    """Leased, each time it was."""
    redelivered: int = 0
    """Chunks that were queued again."""
    late: int = 0
    """Chunks of leases that had lapsed and went to another lease before they were acknowledged."""


class Snapshot(_Operation, frozen=True, kw_only=True):
    """The whole state, so that a log need not be read from its beginning."""

    encoding: Encoding | None
    next_id: int
    items: list[Item]
    deliveries: dict[int, int]
    """How often items went out, of those that did."""
    learners: dict[str, Learner]
    lapsed: dict[int, tuple[str, int]]
    writers: dict[str, int]
    account: Account


Operation: TypeAlias = (
    Declared
    | Accepted
    | Leased
    | Extended
    | Acknowledged
    | Lapsed
    | Missed
    | LearnerResumed
    | Removed
    | Snapshot
)
