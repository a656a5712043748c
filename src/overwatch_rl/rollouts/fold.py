"""State and operation to state.

Owns `apply`, the only code that changes a state, and `snapshot`, its inverse. Rules: an operation is applied
as it was logged, whatever limits hold now; the same operations give the same state, to the bit. Must not
decide anything.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar, assert_never

import msgspec

from overwatch_rl.rollouts.operations import (
    Accepted,
    Account,
    Acknowledged,
    Amount,
    Answered,
    Delivered,
    Env,
    EnvDisconnected,
    EnvRegistered,
    Expired,
    Extended,
    Item,
    Lease,
    Leased,
    Operation,
    Outcome,
    Refused,
    Released,
    Renewed,
    Reset,
    Seen,
    Snapshot,
    Ticket,
    TicketsExpired,
    TicketsIssued,
    TrainerRegistered,
    TrainerStarted,
    Version,
    VersionMoved,
    Waiting,
)
from overwatch_rl.rollouts.state import State, lane_of

T = TypeVar("T")
KEY_RETENTION_NS: Final = 3_600 * 10**9
MAX_KEYS: Final = 4_096
"""Most idempotency keys of an environment that are remembered; the oldest goes first."""
MAX_ENDED: Final = 1_000
MAX_LATE: Final = 10_000
MAX_DURATIONS: Final = 15
LEAST_WEIGHT: Final = 0.01
_FROZEN: Final = (
    "trainer", "is_started", "version", "is_version_stated", "behind", "resumed_from", "batches", "virtual",
    "next_id", "next_env",
)  # fmt: skip
"""Fields that a snapshot has as the state has them."""


def weight_of(env: Env) -> float:
    """The weight that an environment counts with."""
    return max(env.registered.weight, LEAST_WEIGHT)


def apply(state: State, operation: Operation) -> None:
    """Change the state by one operation."""
    match operation:
        case TrainerRegistered() | TrainerStarted() | VersionMoved() | Reset() | Snapshot():
            _apply_trainer(state, operation)
        case EnvRegistered() | EnvDisconnected() | Renewed() | Seen() | Waiting():
            _apply_env(state, operation)
        case TicketsIssued():
            _issue(state, operation)
        case TicketsExpired():
            for ticket in operation.tickets:
                _expire_ticket(state, ticket)
        case Accepted():
            _accept(state, operation)
        case Refused():
            _refuse(state, operation)
        case Leased():
            _lease(state, operation)
        case Delivered():
            lease = state.leases[operation.lease]
            state.leases[lease.id] = msgspec.structs.replace(lease, is_delivered=True)
        case Extended():
            lease = state.leases[operation.lease]
            state.leases[lease.id] = msgspec.structs.replace(lease, deadline=operation.deadline)
        case Acknowledged():
            _acknowledge(state, operation)
        case Released():
            _release(state, operation)
        case Expired():
            _expire(state, operation)
        case _ as unreachable:
            assert_never(unreachable)


def _apply_trainer(
    state: State, operation: TrainerRegistered | TrainerStarted | VersionMoved | Reset | Snapshot
) -> None:
    match operation:
        case TrainerRegistered():
            if state.trainer is None and not state.is_version_stated:
                state.version = Version(number=operation.trainer.starting_step)
            state.trainer = operation.trainer
            state.batches = state.behind = 0
        case TrainerStarted():
            state.is_started = True
        case VersionMoved():
            _move(state, operation)
        case Reset():
            _reset(state)
        case Snapshot():
            _restore(state, operation)
        case _ as unreachable:
            assert_never(unreachable)


def _move(state: State, moved: VersionMoved) -> None:
    old, new = state.version, moved.version
    goes_on = old.lineage == new.lineage and old.number < new.number
    moved_by = new.number - old.number
    state.behind = max(-len(state.leases), state.behind - moved_by) if goes_on else 0
    if old.lineage != new.lineage:
        state.resumed_from = moved.resumed_from
    state.version = new
    state.is_version_stated = True


def _apply_env(state: State, operation: EnvRegistered | EnvDisconnected | Renewed | Seen | Waiting) -> None:
    if isinstance(operation, EnvRegistered):
        state.envs[operation.env_id] = Env(
            registered=operation, seen=operation.at, answered=state.version, virtual=state.virtual
        )
        state.names[operation.desired_name] = state.names.get(operation.desired_name, 0) + 1
        state.next_env = max(state.next_env, operation.env_id + 1)
        return
    env = state.envs[operation.env_id]
    match operation:
        case EnvDisconnected():
            env.presence = "disconnected"
            _free(state, operation.env_id)
        case Renewed(is_present=True):
            env.presence, env.seen = "present", operation.at
        case Renewed():
            env.presence = "silent"
            _free(state, operation.env_id)
        case Seen():
            env.seen = operation.at
            if operation.is_answered:
                env.answered = state.version
        case Waiting(groups=0):
            state.waiting.pop(operation.env_id, None)
        case Waiting():
            state.waiting[operation.env_id] = operation
        case _ as unreachable:
            assert_never(unreachable)


def _free(state: State, env_id: int) -> None:
    """Nobody waits for what an environment that is not here may be generating."""
    state.waiting.pop(env_id, None)
    for ticket in [ticket.id for ticket in state.tickets.values() if ticket.env_id == env_id]:
        _expire_ticket(state, ticket)


def _issue(state: State, issued: TicketsIssued) -> None:
    for ticket in issued.tickets:
        state.tickets[ticket] = Ticket(
            id=ticket,
            env_id=issued.env_id,
            at=issued.at,
            sequences=issued.sequences,
            version=issued.version,
            expires_at=issued.expires_at,
        )
        state.running += issued.sequences
        state.next_id = max(state.next_id, ticket + 1)
    env = state.envs[issued.env_id]
    env.seen, env.answered = issued.at, issued.version


def _expire_ticket(state: State, ticket: int) -> None:
    state.late[ticket] = over = state.tickets.pop(ticket)
    state.running -= over.sequences
    _bound(state.late, MAX_LATE)


def _bound(kept: dict[int, Ticket] | dict[int, str], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]


def _accounts(state: State, env_id: int) -> tuple[Account, Account]:
    return state.account, state.envs[env_id].account


def _used(state: State, env_id: int, ticket: int | None, at: int) -> None:
    """A ticket's group came: it runs no longer, and shows how long its environment needs."""
    if ticket is None:
        return
    known = state.tickets.pop(ticket, None)
    if known is not None:
        state.running -= known.sequences
    else:
        known = state.late.pop(ticket, None)
        if known is None:
            return
        for account in _accounts(state, env_id):
            account.late += 1
    durations = state.envs[env_id].durations
    durations.append(at - known.at)
    del durations[:-MAX_DURATIONS]


def _answered(state: State, operation: Accepted | Refused, outcome: Outcome) -> None:
    if operation.key is None:
        return
    keys = state.envs[operation.env_id].keys
    if operation.key not in keys:
        keys[operation.key] = Answered(at=operation.at, outcomes={}, digest=operation.digest)
        oldest = next(iter(keys))
        while len(keys) > MAX_KEYS or keys[oldest].at < operation.at - KEY_RETENTION_NS:
            del keys[oldest]
            oldest = next(iter(keys))
    keys[operation.key].outcomes[operation.index] = outcome


def _accept(state: State, accepted: Accepted) -> None:
    env = state.envs[accepted.env_id]
    env.seen = accepted.at
    if not env.account.queued.groups:
        env.virtual = max(env.virtual, state.virtual)
    for account in _accounts(state, accepted.env_id):
        account.accepted.add(accepted.sequences, accepted.tokens)
        account.queued.add(accepted.sequences, accepted.tokens)
    item = Item(
        id=accepted.id,
        env_id=accepted.env_id,
        at=accepted.at,
        sequences=accepted.sequences,
        tokens=accepted.tokens,
        version=accepted.version,
        version_source=accepted.version_source,
        traceparent=accepted.traceparent,
    )
    state.items[item.id] = item
    state.lanes.setdefault(lane_of(item), deque()).append(item.id)
    state.next_id = max(state.next_id, item.id + 1)
    _used(state, accepted.env_id, accepted.ticket, accepted.at)
    _answered(state, accepted, Outcome(id=accepted.id))


def _refuse(state: State, refused: Refused) -> None:
    state.envs[refused.env_id].seen = refused.at
    for account in _accounts(state, refused.env_id):
        account.refused.setdefault(refused.reason, Amount()).add(refused.sequences, refused.tokens)
    _used(state, refused.env_id, refused.ticket, refused.at)
    _answered(state, refused, Outcome(reason=refused.reason))


def _unqueue(state: State, item: Item) -> None:
    lane = state.lanes[lane_of(item)]
    if lane[0] == item.id:
        lane.popleft()
    else:
        lane.remove(item.id)
    if not lane:
        del state.lanes[lane_of(item)]


def _lease(state: State, leased: Leased) -> None:
    least = min(state.envs[lane.env_id].virtual for lane in state.lanes)
    state.virtual = max(state.virtual, least)
    for item in [state.items[found] for found in leased.items]:
        _unqueue(state, item)
        state.items[item.id] = msgspec.structs.replace(item, is_leased=True)
        env = state.envs[item.env_id]
        env.virtual += item.sequences / weight_of(env)
        for account in _accounts(state, item.env_id):
            account.queued.add(item.sequences, item.tokens, -1)
            account.leased.add(item.sequences, item.tokens)
    state.leases[leased.lease] = Lease(
        id=leased.lease,
        at=leased.at,
        items=leased.items,
        is_explicit=leased.is_explicit,
        deadline=leased.deadline,
    )
    state.next_id = max(state.next_id, leased.lease + 1)


def _end_lease(state: State, lease: int, how: str) -> Iterator[Item]:
    ended = state.leases.pop(lease)
    state.ended[lease] = how
    _bound(state.ended, MAX_ENDED)
    return (state.items[found] for found in ended.items)


def _acknowledge(state: State, acknowledged: Acknowledged) -> None:
    for item in _end_lease(state, acknowledged.lease, "acknowledged"):
        del state.items[item.id]
        for account in _accounts(state, item.env_id):
            account.leased.add(item.sequences, item.tokens, -1)
            account.acknowledged.add(item.sequences, item.tokens)
    state.batches += 1
    if state.is_version_stated:
        state.behind += 1
    else:
        state.version = msgspec.structs.replace(state.version, number=state.version.number + 1)


def _release(state: State, released: Released) -> None:
    back = list(_end_lease(state, released.lease, released.reason))
    for item in back:
        state.items[item.id] = msgspec.structs.replace(
            item,
            is_leased=False,
            deliveries=item.deliveries + 1,
            returns=item.returns + (released.reason != "broken"),
        )
        env = state.envs[item.env_id]
        env.virtual -= item.sequences / weight_of(env)
        for account in _accounts(state, item.env_id):
            account.leased.add(item.sequences, item.tokens, -1)
            account.queued.add(item.sequences, item.tokens)
            account.redelivered += 1
    _queue(state, back)


def _queue(state: State, items: Iterable[Item]) -> None:
    """Put groups into their lanes where their age puts them."""
    changed = {lane_of(item): state.lanes.get(lane_of(item), deque()) for item in items}
    for item in items:
        changed[lane_of(item)].append(item.id)
    state.lanes.update({lane: deque(sorted(ids)) for lane, ids in changed.items()})


def _expire(state: State, expired: Expired) -> None:
    for item in [state.items.pop(found) for found in expired.items]:
        _unqueue(state, item)
        for account in _accounts(state, item.env_id):
            account.queued.add(item.sequences, item.tokens, -1)
            account.expired.setdefault(expired.reason, Amount()).add(item.sequences, item.tokens)


def _reset(state: State) -> None:
    fresh = State(limits=state.limits, next_id=state.next_id, next_env=state.next_env)
    fresh.account, fresh.ended = state.account, state.ended
    for lease in state.leases:
        fresh.ended[lease] = "reset"
    for item in state.items.values():
        source = fresh.account.leased if item.is_leased else fresh.account.queued
        source.add(item.sequences, item.tokens, -1)
        fresh.account.expired.setdefault("reset", Amount()).add(item.sequences, item.tokens)
    _become(state, fresh)


def _become(state: State, other: State) -> None:
    for name in State.__slots__:
        setattr(state, name, getattr(other, name))


def _copied(value: T, kind: Any) -> T:
    """A value that shares nothing that changes with this one; many times faster than `deepcopy`."""
    found: T = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
    return found


def snapshot(state: State, now: int) -> Snapshot:
    """The whole state as one operation; shares nothing with it that changes."""
    return Snapshot(
        at=now,
        **{name: getattr(state, name) for name in _FROZEN},
        envs=_copied(state.envs, dict[int, Env]),
        names=dict(state.names),
        items=list(state.items.values()),
        tickets=list(state.tickets.values()),
        late=list(state.late.values()),
        leases=list(state.leases.values()),
        ended=dict(state.ended),
        account=_copied(state.account, Account),
    )


def _restore(state: State, saved: Snapshot) -> None:
    """Become what a snapshot holds, and share nothing with it that changes."""
    queued = sorted((item for item in saved.items if not item.is_leased), key=lambda item: item.id)
    restored = State(
        limits=state.limits,
        **{name: getattr(saved, name) for name in _FROZEN},
        envs=_copied(saved.envs, dict[int, Env]),
        names=dict(saved.names),
        items={item.id: item for item in saved.items},
        tickets={ticket.id: ticket for ticket in saved.tickets},
        late={ticket.id: ticket for ticket in saved.late},
        running=sum(ticket.sequences for ticket in saved.tickets),
        leases={lease.id: lease for lease in saved.leases},
        ended=dict(saved.ended),
        account=_copied(saved.account, Account),
    )
    _queue(restored, queued)
    _become(state, restored)
