"""Values of the queue that are not on the wire: groups as they are offered, what became of them, limits."""

from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from overwatch_rl.rollouts.wire import PolicyVersion
from overwatch_rl.web.faults import Fault

VersionSource: TypeAlias = Literal["stated", "assumed"]
"""Whether the sender stated which policy made a group, or the server takes the last one it answered."""
Refusal: TypeAlias = Literal["invalid", "stale", "abandoned", "too_large", "unreachable"]
"""Why a group was not accepted: its content, its policy's age or lineage, or a size that fits no batch."""
Expiry: TypeAlias = Literal["stale", "abandoned", "reset", "returned"]
"""Why an accepted group will never be served; `returned`: it came back unused too often, so it may be what
its readers fail at."""

MOST_SEQUENCES = 1 << 20
ANONYMOUS = -1
"""The environment that groups without an `env_id` belong to."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one group of a request: an id, or a reason."""

    id: int | None = None
    reason: Refusal | None = None


Outcomes: TypeAlias = tuple[Outcome, ...]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the queue. Seconds are real numbers, everything else counts."""

    max_staleness: int = 3
    """Most versions that a group may be old when it is served, unless the trainer states another."""
    max_queued_batches: int = 64
    """At so many batches queued, new groups are not taken until some were served."""
    lease_s: float = 120.0
    """How long a trainer has an explicit lease before it extends or acknowledges."""
    implicit_lease_s: float = 600.0
    """After so long a batch of an old client that was written whole counts as acknowledged."""
    env_lease_s: float = 60.0
    """After so long without a call an environment is silent."""
    ticket_s: float = 60.0
    """The least time that a ticket lives."""
    max_batch_size: int = MOST_SEQUENCES
    """Most sequences of a batch: it is assembled, and sent, in memory."""
    max_returns: int = 8
    """So often a group comes back unused before it is set aside: its reader may fail because of it."""
    retry_s: float = 1.0
    """When to ask again where the answer was: wait, no tickets, no batch, full."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One group that a sender posted, and what is wrong with it."""

    env_id: int = ANONYMOUS
    sequences: int = 0
    tokens: int = 0
    version: PolicyVersion | None = None
    ticket: int | None = None
    """Used up by a wrong group too: nothing else comes under it, and a batch must not wait for it."""
    body: bytes = b""
    """What is held and served: the sender's object, and null for each optional key that it lacks."""
    fault: Fault | None = None
    """With one it is refused, counted, and has its place in the request."""


class Source(NamedTuple):
    """What the groups of one request came with."""

    key: str | None = None
    digest: str = ""
    """Of the body that came under the key."""
    traceparent: str | None = None


NO_SOURCE: Final = Source()


class Amount(msgspec.Struct, kw_only=True, omit_defaults=True):
    """So many groups, with so many sequences."""

    groups: int = 0
    sequences: int = 0

    def add(self, sequences: int, sign: int = 1) -> None:
        """Count one group more, or one less."""
        self.groups += sign
        self.sequences += sign * sequences


class Account(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where everything is: accepted = queued + leased + acknowledged + expired; refused is apart."""

    accepted: Amount = msgspec.field(default_factory=Amount)
    queued: Amount = msgspec.field(default_factory=Amount)
    leased: Amount = msgspec.field(default_factory=Amount)
    acknowledged: Amount = msgspec.field(default_factory=Amount)
    expired: dict[Expiry, Amount] = msgspec.field(default_factory=dict)
    refused: dict[Refusal, Amount] = msgspec.field(default_factory=dict)
    redelivered: int = 0
    """Groups that were queued again."""
    late: int = 0
    """Groups that came after their ticket had expired."""
