"""Everything that can happen to the queue, as frozen facts that a log keeps in order.

Owns the closed union `Operation`. The state of the queue is a fold of operations and of nothing else, so a
log of them is the queue. `at` is the server's time in Unix nanoseconds. Payloads are not here: the log keeps
the bytes of an accepted group beside its operation. Must not know how a decision was made, HTTP or files.
"""

from typing import Final, Literal, TypeAlias

import msgspec

VersionSource: TypeAlias = Literal["stated", "assumed"]
"""Whether the sender stated which policy made a group, or the server takes the last one it answered."""
Refusal: TypeAlias = Literal["invalid", "stale", "abandoned", "too_large", "unreachable"]
"""Why a group was not accepted: its content, its policy's age or lineage, or a size that fits no batch."""
Expiry: TypeAlias = Literal["stale", "abandoned", "reset", "lost", "returned"]
"""Why an accepted group will never be served; `lost`: a damaged disk no longer has its bytes; `returned`: it
came back unused too often, so it may be what its readers fail at."""
Ended: TypeAlias = Literal["expired", "released", "broken", "registered"]
"""Why the groups of a lease are queued again: time, the holder, its connection, or a new life of it."""


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


class _Operation(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    at: int


class TrainerRegistered(_Operation, frozen=True, kw_only=True):
    """A trainer registered, for the first time or again; a lease of its former life is ended apart."""

    trainer: Trainer


class TrainerStarted(_Operation, frozen=True, kw_only=True):
    """The trainer asked for its first batch: environments no longer wait."""


class EnvRegistered(_Operation, frozen=True, kw_only=True):
    """An environment registered."""

    env_id: int
    name: str
    """Unique: the name that it wished for and a number."""
    desired_name: str
    group_size: int
    """Sequences of a group, as a rule; a group may be of another size."""
    weight: float = 1.0
    max_token_length: int = 0
    minimum: float = 0.0
    """Share of each batch that is kept for it while it has groups."""


class EnvDisconnected(_Operation, frozen=True, kw_only=True):
    """An environment left; its queued groups stay."""

    env_id: int


class Renewed(_Operation, frozen=True, kw_only=True):
    """An environment went silent, or came back: its share changes, its registration does not."""

    env_id: int
    is_present: bool


class Seen(_Operation, frozen=True, kw_only=True):
    """A call named an environment. Applied, never logged: it would be a record a poll."""

    env_id: int
    is_answered: bool = False
    """Whether the answer names the current version."""


class Waiting(_Operation, frozen=True, kw_only=True):
    """An environment got fewer tickets than it asked for. Applied, never logged, and soon forgotten."""

    env_id: int
    groups: int
    until: int


class TicketsIssued(_Operation, frozen=True, kw_only=True):
    """An environment may generate so many groups, with this version."""

    env_id: int
    tickets: tuple[int, ...]
    sequences: int
    """Of each ticket."""
    version: Version
    expires_at: int


class TicketsExpired(_Operation, frozen=True, kw_only=True):
    """Tickets whose time is over: what they would have brought no longer counts as running."""

    tickets: tuple[int, ...]


class Accepted(_Operation, frozen=True, kw_only=True):
    """A group is the queue's from now on."""

    id: int
    env_id: int
    sequences: int
    tokens: int
    version: Version
    version_source: VersionSource
    ticket: int | None = None
    key: str | None = None
    """Idempotency key of the request."""
    digest: str = ""
    """Of the body that came under the key."""
    index: int = 0
    """Place in the request."""
    traceparent: str | None = None
    """The span that brought it, where that is recorded."""


class Refused(_Operation, frozen=True, kw_only=True):
    """A group was not accepted."""

    env_id: int
    reason: Refusal
    sequences: int
    tokens: int
    ticket: int | None = None
    key: str | None = None
    digest: str = ""
    index: int = 0


class Leased(_Operation, frozen=True, kw_only=True):
    """A batch went to a trainer, which has it until it acknowledges or the deadline passes."""

    lease: int
    items: tuple[int, ...]
    """Accepted groups in the order of the batch."""
    is_explicit: bool
    """Whether the trainer acknowledges by itself; else its next request does, or time."""
    deadline: int


class Delivered(_Operation, frozen=True, kw_only=True):
    """The reply that carried a lease was written to its last byte."""

    lease: int


class Extended(_Operation, frozen=True, kw_only=True):
    """A lease got a later deadline."""

    lease: int
    deadline: int


class Acknowledged(_Operation, frozen=True, kw_only=True):
    """The groups of a lease are used and never served again."""

    lease: int


class Released(_Operation, frozen=True, kw_only=True):
    """The groups of a lease are queued again, to be delivered again."""

    lease: int
    reason: Ended


class Expired(_Operation, frozen=True, kw_only=True):
    """Queued groups that will never be served."""

    items: tuple[int, ...]
    reason: Expiry


class VersionMoved(_Operation, frozen=True, kw_only=True):
    """The trainer stated its version, or goes on with the one it has.

    A new lineage names the version it resumed from.
    """

    version: Version
    resumed_from: int | None = None
    """Last number of older lineages that the new one descends from; `None` for all."""


class Reset(_Operation, frozen=True, kw_only=True):
    """Trainer, environments, tickets and groups are forgotten; ids and totals go on."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group that is queued or leased."""

    id: int
    env_id: int
    at: int
    sequences: int
    tokens: int
    version: Version
    version_source: VersionSource
    is_leased: bool = False
    deliveries: int = 0
    """How often it went out before."""
    returns: int = 0
    """How often of these a reader had it, and it came back."""
    traceparent: str | None = None


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A permission to generate one group."""

    id: int
    env_id: int
    at: int
    sequences: int
    version: Version
    expires_at: int


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch that a trainer has and did not acknowledge."""

    id: int
    at: int
    items: tuple[int, ...]
    is_explicit: bool
    deadline: int
    is_delivered: bool = False


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


class Account(msgspec.Struct, kw_only=True):
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


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one group of a request: an id, or a reason."""

    id: int | None = None
    reason: Refusal | None = None


class Answered(msgspec.Struct, kw_only=True):
    """The first answer to an idempotency key."""

    at: int
    outcomes: dict[int, Outcome]
    """By place in the request."""
    digest: str = ""
    """Of its body."""


class Env(msgspec.Struct, kw_only=True):
    """An environment, as the queue knows it."""

    registered: EnvRegistered
    presence: Literal["present", "silent", "disconnected"] = "present"
    seen: int = 0
    """Last call; a poll is not logged, so `restarted` gives everybody a lease anew."""
    answered: Version | None = None
    """The version last answered to it, which an old client's groups are taken to be made by."""
    virtual: float = 0.0
    """Sequences served by weight: the environment with the least is served next."""
    durations: list[int] = msgspec.field(default_factory=list)
    """Nanoseconds from ticket to group, of the last ones."""
    account: Account = msgspec.field(default_factory=Account)
    keys: dict[str, Answered] = msgspec.field(default_factory=dict)


class Snapshot(_Operation, frozen=True, kw_only=True):
    """The whole state, so that a log need not be read from its beginning."""

    trainer: Trainer | None
    is_started: bool
    version: Version
    is_version_stated: bool
    behind: int
    """See `State.behind`."""
    resumed_from: int | None
    batches: int
    """Batches that were acknowledged in the trainer's run."""
    virtual: float
    next_id: int
    next_env: int
    envs: dict[int, Env]
    names: dict[str, int]
    items: list[Item]
    tickets: list[Ticket]
    late: list[Ticket]
    leases: list[Lease]
    ended: dict[int, str]
    account: Account


Operation: TypeAlias = (
    TrainerRegistered
    | TrainerStarted
    | EnvRegistered
    | EnvDisconnected
    | Renewed
    | Seen
    | Waiting
    | TicketsIssued
    | TicketsExpired
    | Accepted
    | Refused
    | Leased
    | Delivered
    | Extended
    | Acknowledged
    | Released
    | Expired
    | VersionMoved
    | Reset
    | Snapshot
)

UNLOGGED: Final = (Seen, Waiting)
"""Applied to the state and kept out of the log: what is lost with them is soon known again."""


def is_logged(operation: Operation) -> bool:
    """Whether the log keeps it."""
    return not isinstance(operation, UNLOGGED)
