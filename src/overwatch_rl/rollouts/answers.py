"""What is asked of the queue and what it answers, as frozen values; and the limits it keeps.

Owns the words between the queue and what carries them. Must not know JSON, HTTP or how a decision is made.
"""

from typing import Literal, TypeAlias

import msgspec

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


class Version(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which policy: the line of training it belongs to, and its number there."""

    lineage: int = 0
    number: int = 0


class Trainer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a trainer states when it registers."""

    uuid: str
    batch_size: int
    """Sequences of a batch."""
    max_token_len: int
    starting_step: int = 0
    num_steps: int | None = None
    """The step at which training ends; `None` for no end."""
    wandb_group: str | None = None
    wandb_project: str | None = None
    checkpoint_dir: str | None = None
    save_checkpoint_interval: int | None = None
    max_staleness: int | None = None
    """Most versions that a group may be old when it is served; `None` for the server's setting."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one group of a request: an id, or a reason."""

    id: int | None = None
    reason: Refusal | None = None


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


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """No such environment, lease or trainer; the text names it and the fix."""

    reason: str


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """The trainer has not asked for its first batch yet."""

    retry_s: float


class Full(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was taken: the queue holds as much as it may."""

    queued_groups: int
    queued_sequences: int
    retry_s: float


class EnvRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment states when it registers."""

    desired_name: str
    group_size: int
    weight: float = 1.0
    max_token_length: int = 0
    minimum: float = 0.0


class EnvAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An environment is registered."""

    env_id: int
    name: str
    trainer: Trainer
    step: int
    version: Version
    lease_s: float
    unreachable: str | None
    """Why groups of its size can never be part of a batch as things are; `None` where they can."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One valid group that a sender posted; its payload stays with the caller."""

    env_id: int
    sequences: int
    tokens: int
    version: Version | None = None
    ticket: int | None = None
    key: str | None = None
    digest: str = ""
    """Of the body that came under the key."""
    size: int = 0
    """Bytes of its body."""
    traceparent: str | None = None
    is_invalid: bool = False
    """Whether validation found a fault in it: it is refused, counted, and keeps its place in the request."""


class Reused(msgspec.Struct, frozen=True, kw_only=True):
    """The key of the request came before, with another body."""

    key: str


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each group of a request, in its order; those of a repeated request as the first time."""

    outcomes: tuple[Outcome, ...]


class Tickets(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions to generate, as many as were free."""

    tickets: tuple[int, ...]
    version: Version
    expires_at: int | None
    """`None` where none were issued."""
    retry_s: float
    is_done: bool
    """Whether training has all it needs: nothing will ever be free again, unless a lease comes back."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a batch."""

    id: int
    env_id: int
    sequences: int
    version: Version
    version_source: VersionSource
    age: int
    """Versions between the one that made it and the trainer's."""
    is_redelivered: bool
    traceparent: str | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly as many sequences as the trainer asked for."""

    lease: int
    is_explicit: bool
    deadline: int
    version: Version
    items: tuple[Served, ...]


Lack = Literal["few", "running", "unreachable", "done"]


class NoBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to serve now, and why: too few groups, a running one must be in it, sizes, or all is done."""

    lack: Lack
    reason: str
    retry_s: float


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease is after the call; `ended` is how, where it is over."""

    lease: int
    deadline: int | None
    ended: str | None = None
    """`acknowledged`, `expired`, `released`, `broken`, `registered`, `reset`; `None` while it is out."""


class Amount(msgspec.Struct, kw_only=True, omit_defaults=True):
    """So many groups, with so many sequences and tokens."""

    groups: int = 0
    sequences: int = 0
    tokens: int = 0

    def add(self, sequences: int, tokens: int, sign: int = 1) -> None:
        """Count one group more, or one less."""
        self.groups += sign
        self.sequences += sign * sequences
        self.tokens += sign * tokens


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


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The queue as a whole. It reads the live account: encode it before the next operation."""

    step: int
    """Batches served, from the trainer's first step on."""
    version: Version
    held_groups: int
    """Queued, and leased but not acknowledged: what an old client's pause is decided by."""
    held_sequences: int
    running_sequences: int
    permits: int
    """Sequences that tickets may still be issued for."""
    is_done: bool
    account: Account


class EnvStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The queue as one environment sees it."""

    status: Status
    share: float
    """Its part of the sequences of a batch; 0 while it is silent."""
    unallocated: float
    """Part of a batch that no present environment's minimum reserves."""
    own_groups: int
    """Its groups that are queued."""
    max_group_size: int
    unreachable: str | None
