"""A queue under a clock that the test moves."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import ANONYMOUS, Amount, Limits, Offer, Source, VersionSource
from overwatch_rl.rollouts.state import State, lane_of
from overwatch_rl.rollouts.store import Store
from overwatch_rl.rollouts.wire import (
    Admission,
    Confirmation,
    EnvRegistered,
    EnvRegistration,
    NoTrainer,
    PolicyVersion,
    Registration,
    Tickets,
    VersionMove,
)

A = TypeVar("A")
SECOND = 10**9
RESET = Confirmation(confirm="discard everything")


class Served(NamedTuple):
    """A group of a batch."""

    id: int
    env_id: int
    sequences: int
    version: PolicyVersion
    version_source: VersionSource
    age: int
    is_redelivered: bool


class Batch(NamedTuple):
    """A batch that was leased."""

    lease: int
    items: Sequence[Served]
    is_explicit: bool


class NoBatch(NamedTuple):
    """Why there was none."""

    lack: str | None
    reason: str | None


def registration(batch_size: int = 8, **settings: object) -> Registration:
    """A trainer that registers."""
    named = {"wandb_group": "", "wandb_project": "", "checkpoint_dir": "", "save_checkpoint_interval": -1,
             "max_token_len": 64, "starting_step": 0}  # fmt: skip
    steps = settings.pop("num_steps", None)
    return Registration(
        batch_size=batch_size,
        num_steps=-1 if steps is None else steps,
        **{**named, **settings},  # type: ignore[arg-type]
    )


def env_of(
    name: str = "env", group_size: int = 4, weight: float = 1.0, minimum: float = 0.0
) -> EnvRegistration:
    """An environment that registers."""
    return EnvRegistration(
        desired_name=name,
        group_size=group_size,
        weight=weight,
        min_batch_allocation=minimum,
        max_token_length=0,
    )


def leased(state: State, now: int, *, is_explicit: bool = True) -> Batch | NoBatch:
    """What a request of a batch is answered."""
    answer = queue.batch(state, now, is_explicit=is_explicit)
    assert not isinstance(answer.reply, NoTrainer)
    if answer.lease is None:
        return NoBatch(answer.reply.lack, answer.reply.message)
    items = [
        Served(item.id, ANONYMOUS if item.env_id is None else item.env_id, state.items[item.id].sequences,
               item.version, item.version_source, item.age, item.redelivered)
        for item in answer.reply.items
    ]  # fmt: skip
    return Batch(answer.lease, items, is_explicit)


class Driven:
    """One queue and its clock."""

    def __init__(self, limits: Limits | None = None, store: Store | None = None) -> None:
        """An empty queue, or that of a store, which then has all that is done."""
        self.store = store
        if store is not None:
            store.transact(lambda _: None)
        self.state = State(limits=limits or Limits()) if store is None else store.state
        self.now = 1_000 * SECOND

    def do(self, answer: A) -> A:
        """Check that the sums hold after a decision, and commit it."""
        check(self.state)
        if self.store is not None:
            self.store.transact(lambda _: None)
        return answer

    def wait(self, seconds: float) -> None:
        """Let time pass, and what it ends be ended."""
        self.now += int(seconds * SECOND)
        queue.sweep(self.state, self.now)
        self.do(None)

    def trainer(self, batch_size: int = 8, **settings: object) -> None:
        """Register a trainer that has asked for its first batch."""
        self.do(queue.register_trainer(self.state, registration(batch_size, **settings), self.now))
        self.batch()

    def env(self, group_size: int = 4, weight: float = 1.0, minimum: float = 0.0, name: str = "env") -> int:
        """Register an environment; its id."""
        request = env_of(name, group_size, weight, minimum)
        answer = self.do(queue.register_env(self.state, request, self.now))
        assert isinstance(answer, EnvRegistered)
        return answer.env_id

    def send(
        self, env_id: int, groups: int = 1, size: int = 4, key: str | None = None, **offer: object
    ) -> list[int]:
        """Send groups; their ids."""
        offers = [
            Offer(env_id=env_id, sequences=size, tokens=10 * size, body=body_of(item), **offer)  # type: ignore[arg-type]
            for item in range(self.state.head.next_id, self.state.head.next_id + groups)
        ]
        answer = self.do(queue.accept(self.state, offers, self.now, Source(key)))
        return [outcome.id for outcome in answer if outcome.id is not None]

    def tickets(self, env_id: int, groups: int = 1) -> Tickets:
        """Ask for tickets."""
        return self.do(queue.admit(self.state, Admission(env_id=env_id, groups=groups), self.now))

    def batch(self, *, is_explicit: bool = True) -> Batch | NoBatch:
        """Ask for a batch."""
        return self.do(leased(self.state, self.now, is_explicit=is_explicit))

    def trained(self) -> Batch:
        """A batch that must be there, acknowledged at once."""
        answer = self.batch()
        assert isinstance(answer, Batch), answer
        self.do(queue.acknowledge(self.state, answer.lease, self.now))
        return answer

    def states(self, number: int, lineage: int = 0, resumed_from: int | None = None) -> None:
        """The trainer states its version."""
        body = VersionMove(lineage=lineage, number=number, resumed_from=resumed_from)
        self.do(queue.move_version(self.state, body, self.now))


def body_of(item: int) -> bytes:
    """The bytes of a group, of a length of its own."""
    return (b"group %d " % item) * (item % 40 + 1)


def ids(batch: Batch | NoBatch) -> list[int]:
    """The groups of a batch."""
    assert isinstance(batch, Batch), batch
    return [item.id for item in batch.items]


def by_env(batch: Batch) -> Counter[int]:
    """Sequences of a batch by environment."""
    found = Counter[int]()
    for item in batch.items:
        found[item.env_id] += item.sequences
    return found


def check(state: State) -> None:
    """Everything accepted is queued, leased, acknowledged or expired, in all and by environment."""
    parts = [env.account for env in state.envs.values()]
    for account in (state.account, *parts):
        known = [account.queued, account.leased, account.acknowledged, *account.expired.values()]
        for unit in Amount.__struct_fields__:
            assert getattr(account.accepted, unit) == sum(getattr(part, unit) for part in known)
            assert all(getattr(part, unit) >= 0 for part in known)
    _check_places(state)


def _check_places(state: State) -> None:
    """The accounts agree with what lies there."""
    queued = [item for item in state.items.values() if not item.is_leased]
    leased = [found for lease in state.leases.values() for found in lease.items]
    for name, items in (("queued", queued), ("leased", [state.items[found] for found in leased])):
        assert getattr(state.account, name).sequences == sum(item.sequences for item in items)
        assert getattr(state.account, name).groups == len(items)
    assert len(set(leased)) == len(leased)
    assert all(state.items[found].is_leased for found in leased)
    lying = [found for ids in state.lanes.values() for found in ids]
    assert sorted(lying) == sorted(item.id for item in queued)
    assert all(found and list(found) == sorted(found) for found in state.lanes.values())
    assert all(lane_of(state.items[found]) == lane for lane, ids in state.lanes.items() for found in ids)
    assert state.running == sum(ticket.sequences for ticket in state.tickets.values())
