"""State and operation to state, for a table of sequences.

Owns the state, `apply`, the only code that changes it, and `snapshot`, its inverse. Rules: an operation is
applied as it was logged, whatever limits hold now; the same operations give the same state. Must not decide
anything.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from overwatch_rl.replay.chunk import Encoding
from overwatch_rl.replay.operations import (
    Accepted,
    Account,
    Acknowledged,
    Amount,
    Declared,
    Extended,
    Item,
    Lapsed,
    Learner,
    LearnerResumed,
    Lease,
    Leased,
    Missed,
    Operation,
    Removed,
    Snapshot,
)
from overwatch_rl.replay.orders import ORDERS, Queue

MAX_WRITERS: Final = 4_096
"""Most writers of which the last request is remembered; the one that was silent longest goes first."""
MAX_DONE: Final = 4_096
"""Most acknowledged leases of a learner that are remembered."""


@dataclass(slots=True)
class State:
    """Everything a table knows; begins empty."""

    selector: str = "fifo"
    """A row of `ORDERS`."""
    encoding: Encoding | None = None
    next_id: int = 1
    items: dict[int, Item] = field(default_factory=dict)
    """Queued or leased, by id, rising."""
    deliveries: dict[int, int] = field(default_factory=dict)
    """How often items went out, of those that did."""
    learners: dict[str, Learner] = field(default_factory=dict)
    lapsed: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Queued items whose last lease ended by time, and which lease that was."""
    writers: dict[str, int] = field(default_factory=dict)
    """The last request of each."""
    account: Account = field(default_factory=Account)
    queue: Queue = field(init=False)

    def __post_init__(self) -> None:
        self.queue = Queue(ORDERS[self.selector]())


def apply(state: State, operation: Operation) -> None:
    """Change the state by one operation."""
    match operation:
        case Declared():
            state.encoding = operation.encoding
        case Accepted():
            _accept(state, operation)
        case Removed():
            _remove(state, operation)
        case Snapshot():
            _restore(state, operation)
        case Leased():
            _lease(state, operation)
        case Extended():
            for lease in (learner := state.learners[operation.learner]).leases.values():
                learner.leases[lease.number] = msgspec.structs.replace(lease, deadline=operation.deadline)
        case Acknowledged():
            _acknowledge(state, operation.learner, operation.upto, operation.items)
        case Lapsed():
            _lapse(state, operation)
        case Missed():
            _miss(state, operation.learner, operation.after)
        case LearnerResumed():
            _resume(state, operation)
        case _ as unreachable:
            assert_never(unreachable)


def _accept(state: State, accepted: Accepted) -> None:
    item = accepted.item
    state.queue.add(item)
    state.items[item.id] = item
    state.next_id = max(state.next_id, item.id + 1)
    state.account.accepted.add(item)
    state.account.queued.add(item)
    if accepted.writer is not None:
        state.writers.pop(accepted.writer, None)
        state.writers[accepted.writer] = accepted.number
        while len(state.writers) > MAX_WRITERS:
            del state.writers[next(iter(state.writers))]


def _remove(state: State, removed: Removed) -> None:
    state.queue.remove(removed.items)
    amount = state.account.removed.setdefault(removed.reason, Amount())
    for item in _forget(state, removed.items):
        state.account.queued.add(item, -1)
        amount.add(item)


def _forget(state: State, items: Iterable[int]) -> list[Item]:
    for item in items:
        state.deliveries.pop(item, None)
        state.lapsed.pop(item, None)
    return [state.items.pop(item) for item in items]


def _lease(state: State, leased: Leased) -> None:
    items = [state.items[item] for item in leased.items]
    state.queue.lease(leased.items)
    for item in items:
        state.account.queued.add(item, -1)
        state.account.leased.add(item)
        state.account.sampled.add(item)
        state.deliveries[item.id] = state.deliveries.get(item.id, 0) + 1
        state.lapsed.pop(item.id, None)
    learner = state.learners.setdefault(leased.learner, Learner())
    learner.leases[leased.number] = Lease(leased.number, leased.items, leased.deadline)
    learner.next_number = max(learner.next_number, leased.number + 1)


def _acknowledge(state: State, name: str, upto: int, items: Iterable[int]) -> None:
    learner = state.learners.setdefault(name, Learner())
    for number in [number for number in learner.leases if number <= upto]:
        lease = learner.leases.pop(number)
        state.queue.used(lease.items)
        for item in _forget(state, lease.items):
            state.account.leased.add(item, -1)
            state.account.acknowledged.add(item)
        learner.done[number] = len(lease.items)
    rest = [item for item in items if item in state.items]
    for number in [number for number in learner.lapsed if number <= upto]:
        lapsed = learner.lapsed.pop(number)
        learner.done[number] = len(set(lapsed).intersection(rest))
        state.account.late += len(lapsed) - learner.done[number]
    if rest:
        state.queue.remove(rest)
        for item in _forget(state, rest):
            state.account.queued.add(item, -1)
            state.account.acknowledged.add(item)
    while len(learner.done) > MAX_DONE:
        del learner.done[next(iter(learner.done))]


def _put_back(state: State, lease: Lease) -> None:
    state.queue.put_back(lease.items)
    for number in lease.items:
        item = state.items[number]
        state.account.leased.add(item, -1)
        state.account.queued.add(item)
    state.account.redelivered += len(lease.items)


def _lapse(state: State, lapsed: Lapsed) -> None:
    learner = state.learners[lapsed.learner]
    lease = learner.leases.pop(lapsed.number)
    _put_back(state, lease)
    learner.lapsed[lease.number] = lease.items
    state.lapsed |= dict.fromkeys(lease.items, (lapsed.learner, lease.number))


def _miss(state: State, name: str, after: int) -> None:
    learner = state.learners[name]
    for number in [number for number in learner.lapsed if number > after]:
        for item in learner.lapsed.pop(number):
            if state.lapsed.get(item) == (name, number):
                del state.lapsed[item]


def _resume(state: State, resumed: LearnerResumed) -> None:
    _acknowledge(state, resumed.learner, resumed.cursor, resumed.items)
    learner = state.learners[resumed.learner]
    for number in list(learner.leases):
        _put_back(state, learner.leases.pop(number))
    _miss(state, resumed.learner, resumed.cursor)
    learner.next_number = max(learner.next_number, resumed.cursor + 1)


def snapshot(state: State, at: int) -> Snapshot:
    """The whole state."""
    return Snapshot(
        at=at,
        encoding=state.encoding,
        next_id=state.next_id,
        items=list(state.items.values()),
        deliveries=dict(state.deliveries),
        learners=copy.deepcopy(state.learners),
        lapsed=dict(state.lapsed),
        writers=dict(state.writers),
        account=copy.deepcopy(state.account),
    )


def _restore(state: State, saved: Snapshot) -> None:
    new = State(selector=state.selector, encoding=saved.encoding, next_id=saved.next_id)
    for item in saved.items:
        new.queue.add(item)
        new.items[item.id] = item
    new.deliveries = dict(saved.deliveries)
    new.learners = copy.deepcopy(saved.learners)
    new.writers = dict(saved.writers)
    new.account = copy.deepcopy(saved.account)
    for learner in new.learners.values():
        for lease in learner.leases.values():
            new.queue.lease(lease.items)
    new.lapsed = dict(saved.lapsed)
    for name in State.__slots__:
        setattr(state, name, getattr(new, name))
