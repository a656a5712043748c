"""What the queue knows: the rows of its tables, and the few changes that every decision is made of.

Owns the kinds of rows and `State`, which holds those of one database as one server last read them. Decisions
change a state in place, inside a transaction; `Rows` remembers what changed, so that the store writes that
and nothing else. Where a transaction fails, the state is read again. `at`, `deadline` and the like are
nanoseconds of the queue's own clock (`store`). Must not know SQL, HTTP or threads.
"""

import logging
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from overwatch.catalog.services import length_label
from overwatch_rl.rollouts.answers import (
    ANONYMOUS,
    Account,
    Amount,
    Expiry,
    Limits,
    Offer,
    Outcomes,
    VersionSource,
)
from overwatch_rl.rollouts.wire import EnvRegistration, PolicyVersion, Registration

K = TypeVar("K")
V = TypeVar("V")
Ended: TypeAlias = Literal["expired", "released", "broken", "registered"]
"""Why the groups of a lease are queued again: time, the holder, its connection, or a new life of it."""

NS: Final = 10**9
KEY_RETENTION_NS: Final = 3_600 * NS
MAX_KEYS: Final = 1 << 16
"""Most idempotency keys that are remembered; the oldest goes first."""
MAX_ENDED: Final = 1_000
MAX_LATE: Final = 10_000
MAX_DURATIONS: Final = 15
LEAST_WEIGHT: Final = 0.01

_log = logging.getLogger("overwatch_rl.rollouts")


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group that is queued or leased."""

    id: int
    env_id: int
    at: int
    sequences: int
    size: int = 0
    """Bytes of its body."""
    version: PolicyVersion
    version_source: VersionSource
    is_leased: bool = False
    """In memory alone: the database has it in the lease."""
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
    version: PolicyVersion
    expires_at: int


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch that a trainer has and did not acknowledge."""

    id: int
    items: tuple[int, ...]
    is_explicit: bool
    deadline: int
    is_delivered: bool = False
    server: str = ""
    """The server that sends it: it alone knows how that ends."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The first answer to an idempotency key."""

    at: int
    digest: str
    """Of its body."""
    outcomes: Outcomes


class Env(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An environment, as the queue knows it."""

    name: str
    """Unique: the name that it wished for and a number."""
    registered: EnvRegistration
    presence: Literal["present", "silent", "disconnected"] = "present"
    seen: int = 0
    """Last call; written when it moved by a part of the lease, so other servers know it a little later."""
    written: int = 0
    """`seen` as the database has it."""
    answered: PolicyVersion | None = None
    """The version last answered to it, which an old client's groups are taken to be made by."""
    virtual: float = 0.0
    """Sequences served by weight: the environment with the least is served next."""
    durations: list[int] = msgspec.field(default_factory=list)
    """Nanoseconds from ticket to group, of the last ones."""
    account: Account = msgspec.field(default_factory=Account)

    @property
    def weight(self) -> float:
        """The weight that it counts with."""
        weight = self.registered.weight
        return 1.0 if weight is None else max(weight, LEAST_WEIGHT)

    @property
    def minimum(self) -> float:
        """Its share of every batch, as long as it has groups."""
        return self.registered.min_batch_allocation or 0.0


class Waiting(NamedTuple):
    """An environment got fewer tickets than it asked for. In memory alone, and soon forgotten."""

    env_id: int
    groups: int
    until: int


class Lane(NamedTuple):
    """What groups have in common that are alike to assembly."""

    env_id: int
    sequences: int
    """Of one group."""
    version: PolicyVersion
    source: VersionSource


def lane_of(item: Item) -> Lane:
    """The lane that a group waits in."""
    return Lane(item.env_id, item.sequences, item.version, item.version_source)


class Report(NamedTuple):
    """Something to count or observe once the decision is committed."""

    verb: Literal["count", "observe"]
    name: str
    value: float
    labels: Mapping[str, str]


class Rows(dict[K, V], Generic[K, V]):
    """The rows of a table by id, and which of them the database does not have as they are here."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[K] = set()

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.changed.add(key)

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self.changed.add(key)

    def edit(self, key: K) -> V:
        """Return a row that the caller changes."""
        self.changed.add(key)
        return self[key]

    def take(self, key: K) -> V | None:
        """Remove and return a row, where there is one."""
        row = self.get(key)
        if row is not None:
            del self[key]
        return row

    def bound(self, most: int) -> None:
        """Delete the oldest beyond so many."""
        while len(self) > most:
            del self[next(iter(self))]

    def empty(self) -> None:
        """Hold nothing, before everything is read."""
        super().clear()
        self.changed.clear()

    def read(self, key: K, value: V | None) -> None:
        """Become what the database has, or what follows from other rows."""
        if value is None:
            super().pop(key, None)
        else:
            super().__setitem__(key, value)


class Head(msgspec.Struct, kw_only=True):
    """What the queue has once."""

    trainer: Registration | None = None
    is_started: bool = False
    version: PolicyVersion = PolicyVersion(number=0)
    is_version_stated: bool = False
    """Whether the trainer stated it; else it is the count of acknowledged batches."""
    behind: int = 0
    """Batches acknowledged less versions stated: 1 where a batch was used and its version is not out yet."""
    resumed_from: int | None = None
    batches: int = 0
    """Batches that were acknowledged in the trainer's run."""
    virtual: float = 0.0
    """The least of the environments that had groups, when a batch was last assembled."""
    next_id: int = 1
    """Of tickets, groups and leases alike; never used twice."""
    next_env: int = 0
    """Never used twice either, not even after a reset."""
    account: Account = msgspec.field(default_factory=Account)
    held_bytes: int = 0
    """Of the groups that are queued or leased."""


@dataclass(slots=True)
class State:
    """Everything the queue knows; begins empty."""

    limits: Limits = field(default_factory=Limits)
    server: str = ""
    """Which of the servers this is."""
    head: Head = field(default_factory=Head)
    envs: Rows[int, Env] = field(default_factory=Rows)
    items: Rows[int, Item] = field(default_factory=Rows)
    tickets: Rows[int, Ticket] = field(default_factory=Rows)
    late: Rows[int, Ticket] = field(default_factory=Rows)
    """Expired tickets whose group may still come: it shows how long that environment needs."""
    leases: Rows[int, Lease] = field(default_factory=Rows)
    ended: Rows[int, str] = field(default_factory=Rows)
    """How the last leases ended, so that a repeated call gets the same answer."""
    keys: Rows[str, Answered] = field(default_factory=Rows)
    """First answers, oldest first, by environment and idempotency key."""
    waiting: dict[int, Waiting] = field(default_factory=dict)
    bodies: dict[int, bytes] = field(default_factory=dict)
    """Of the groups that were accepted since the last commit."""
    reports: list[Report] = field(default_factory=list)
    lanes: dict[Lane, list[int]] = field(default_factory=dict)
    """Queued groups, oldest first; no lane is empty."""

    @property
    def trainer(self) -> Registration | None:
        """The trainer that is registered."""
        return self.head.trainer

    @property
    def version(self) -> PolicyVersion:
        """The trainer's."""
        return self.head.version

    @property
    def account(self) -> Account:
        """Of the whole queue."""
        return self.head.account

    @property
    def batch_size(self) -> int:
        """Sequences of a batch; 0 without a trainer."""
        return self.trainer.batch_size if self.trainer else 0

    @property
    def num_steps(self) -> int | None:
        """The step at which training ends; `None` for no end."""
        return self.trainer.num_steps if self.trainer and self.trainer.num_steps > 0 else None

    @property
    def longest(self) -> int:
        """Most tokens of a sequence; 0 for no limit."""
        return max(0, self.trainer.max_token_len) if self.trainer else 0

    @property
    def max_staleness(self) -> int:
        """Most versions that a group may be old when it is served."""
        stated = self.trainer.max_staleness if self.trainer else None
        return self.limits.max_staleness if stated is None else stated

    @property
    def held(self) -> int:
        """Sequences that are queued, or leased and not acknowledged."""
        return self.account.queued.sequences + self.account.leased.sequences

    @property
    def running(self) -> int:
        """Sequences of the tickets that are neither used nor expired."""
        return sum(ticket.sequences for ticket in self.tickets.values())

    @property
    def step(self) -> int:
        """Batches served, from the trainer's first step on; one that comes back is not served."""
        return (self.trainer.starting_step if self.trainer else 0) + self.head.batches + len(self.leases)

    def read_lanes(self) -> None:
        """Queue the groups that were read, but for those of a lease."""
        self.lanes.clear()
        leased = {item for lease in self.leases.values() for item in lease.items}
        for item in sorted(self.items.values(), key=lambda item: item.id):
            if item.is_leased != (item.id in leased):
                self.items.read(item.id, msgspec.structs.replace(item, is_leased=not item.is_leased))
            if item.id not in leased:
                self.lanes.setdefault(lane_of(item), []).append(item.id)

    def _queue(self, item: Item) -> None:
        insort(self.lanes.setdefault(lane_of(item), []), item.id)

    def _unqueue(self, item: Item) -> None:
        lane = lane_of(item)
        self.lanes[lane].remove(item.id)
        if not self.lanes[lane]:
            del self.lanes[lane]

    def next_id(self) -> int:
        """An id that is never used again."""
        self.head.next_id += 1
        return self.head.next_id - 1

    def age(self, version: PolicyVersion) -> int:
        """Versions between one and the trainer's."""
        return max(0, self.version.number - version.number)

    def is_abandoned(self, version: PolicyVersion) -> bool:
        """Whether the trainer's line does not descend from a version."""
        other, last = version.lineage < self.version.lineage, self.head.resumed_from
        return other and last is not None and version.number > last

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """Report a number once this is committed."""
        self.reports.append(Report("count", name, value, labels))

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Report a measurement once this is committed."""
        self.reports.append(Report("observe", name, value, labels))

    def name_of(self, env_id: int) -> str:
        """An environment's name, as labels have it."""
        env = self.envs.get(env_id)
        if env is not None:
            return env.name
        return "anonymous" if env_id == ANONYMOUS else "unknown"

    def count_refused(self, reason: str, group: Offer) -> None:
        """Report a group that is not taken, by the length of its sequences."""
        labels = {"env": self.name_of(group.env_id), "reason": reason}
        if group.sequences:
            labels["length"] = length_label(group.tokens // group.sequences)
        self.count("refused", max(1, group.sequences), **labels)

    def accounts(self, env_id: int) -> tuple[Account, Account]:
        """Those that count what an environment's groups do; to be changed."""
        return self.account, self.envs.edit(env_id).account

    def see(self, env_id: int, now: int, *, is_answered: bool = False) -> None:
        """Renew an environment whose call came; `is_answered` where the answer names the current version."""
        env = self.envs[env_id]
        env.seen = max(env.seen, now)
        answered = self.version if is_answered else env.answered
        is_old = env.seen - env.written >= self.limits.env_lease_s * NS / 10
        if is_old or env.presence != "present" or answered != env.answered:
            env = self.envs.edit(env_id)
            env.presence, env.answered, env.written = "present", answered, env.seen

    def leave(self, env_id: int, presence: Literal["silent", "disconnected"]) -> None:
        """Take an environment's share and tickets: nobody waits for what it may be generating."""
        self.envs.edit(env_id).presence = presence
        self.waiting.pop(env_id, None)
        self.expire_tickets([ticket.id for ticket in self.tickets.values() if ticket.env_id == env_id])

    def expire_tickets(self, tickets: Iterable[int]) -> None:
        """What these would have brought counts as running no longer."""
        for ticket in tickets:
            self.late[ticket] = self.tickets[ticket]
            del self.tickets[ticket]
        self.late.bound(MAX_LATE)

    def use_ticket(self, ticket: Ticket | None, now: int) -> None:
        """A ticket's group came: it runs no longer, and shows how long its environment needs."""
        if ticket is None:
            return
        if self.tickets.take(ticket.id) is None:
            del self.late[ticket.id]
            for account in self.accounts(ticket.env_id):
                account.late += 1
        durations = self.envs.edit(ticket.env_id).durations
        durations.append(now - ticket.at)
        del durations[:-MAX_DURATIONS]

    def add_item(self, item: Item, body: bytes) -> None:
        """Queue a new group."""
        env = self.envs[item.env_id]
        if not env.account.queued.groups:
            env.virtual = max(env.virtual, self.head.virtual)
        for account in self.accounts(item.env_id):
            account.accepted.add(item.sequences)
            account.queued.add(item.sequences)
        self._queue(item)
        self.items[item.id] = item
        self.head.held_bytes += item.size
        self.bodies[item.id] = body
        self.count("accepted", item.sequences, env=env.name)

    def drop_item(self, item: int, why: Expiry | Literal["acknowledged"]) -> None:
        """A group is used, or will never be served."""
        gone = self.items[item]
        if not gone.is_leased:
            self._unqueue(gone)
        del self.items[item]
        self.head.held_bytes -= gone.size
        for account in self.accounts(gone.env_id):
            place = account.leased if gone.is_leased else account.queued
            place.add(gone.sequences, -1)
            if why == "acknowledged":
                account.acknowledged.add(gone.sequences)
            else:
                account.expired.setdefault(why, Amount()).add(gone.sequences)
        name = "served" if why == "acknowledged" else "expired"
        self.count(name, gone.sequences, env=self.name_of(gone.env_id))

    def move_item(self, item: Item, sign: int) -> None:
        """A group goes out with a lease (1), or comes back (-1)."""
        (self._unqueue if sign > 0 else self._queue)(item)
        env = self.envs[item.env_id]
        env.virtual += sign * item.sequences / env.weight
        for account in self.accounts(item.env_id):
            account.queued.add(item.sequences, -sign)
            account.leased.add(item.sequences, sign)
            account.redelivered += sign < 0

    def end_lease(self, lease: int, how: str) -> Lease:
        """A lease is over."""
        gone = self.leases[lease]
        del self.leases[lease]
        self.ended[lease] = how
        self.ended.bound(MAX_ENDED)
        return gone

    def acknowledge(self, lease: int) -> None:
        """The groups of a lease are used and never served again."""
        for item in self.end_lease(lease, "acknowledged").items:
            self.drop_item(item, "acknowledged")
        head = self.head
        head.batches += 1
        if head.is_version_stated:
            head.behind += 1
        else:
            head.version = msgspec.structs.replace(head.version, number=head.version.number + 1)

    def release(self, lease: int, reason: Ended) -> None:
        """The groups of a lease are queued again; those that came back too often are set aside.

        A reply that did not arrive is no reader's failure: it is not counted.
        """
        again = 0
        for item in [self.items[item] for item in self.end_lease(lease, reason).items]:
            again += item.sequences
            returns = item.returns + (reason != "broken")
            self.items[item.id] = msgspec.structs.replace(
                item, is_leased=False, deliveries=item.deliveries + 1, returns=returns
            )
            self.move_item(item, -1)
            if reason != "broken" and returns >= self.limits.max_returns:
                _log.warning("group %d came back unused too often: it is set aside", item.id)
                self.drop_item(item.id, "returned")
        self.count("redelivered", again)

    def reset(self) -> None:
        """Trainer, environments, tickets and groups are forgotten; ids and totals go on."""
        for lease in self.leases:
            self.ended[lease] = "reset"
        for item in list(self.items):
            self.drop_item(item, "reset")
        old = self.head
        self.head = Head(next_id=old.next_id, next_env=old.next_env, account=old.account)
        for rows in (self.tickets, self.late, self.leases, self.keys, self.envs):
            for key in list(rows):
                del rows[key]  # type: ignore[arg-type]  # each table has keys of its own type
        self.waiting.clear()

    def sizes(self) -> Counter[int]:
        """Queued groups by their size."""
        counts = Counter[int]()
        for lane, ids in self.lanes.items():
            counts[lane.sequences] += len(ids)
        return counts
