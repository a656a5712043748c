"""Batches that go out, and how they end.

Owns leases. An explicit lease is acknowledged, extended or given back by its holder; at its deadline its
groups are queued again. An old client never acknowledges: its lease counts as used when it asks for the next
batch, or some time after the reply was written whole, and comes back when the connection broke before that or
the trainer begins a new life. Groups that come back are delivered again, and are marked so. How a reply ends
that another server sends is not known here: its lease waits for that server, or for its deadline.
Must not know which groups make a batch.
"""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from overwatch_rl.rollouts import wire
from overwatch_rl.rollouts.admission import is_done, overdue, permits
from overwatch_rl.rollouts.answers import ANONYMOUS
from overwatch_rl.rollouts.assembly import Candidates, assembled, over_age
from overwatch_rl.rollouts.state import KEY_RETENTION_NS, NS, Ended, Lease, State
from overwatch_rl.web.faults import Fault, InvalidError, RefusedError


class Leased(NamedTuple):
    """The reply to a trainer, of a batch without the groups' bytes; and what they are kept under."""

    reply: wire.Batch | wire.NoTrainer
    lease: int | None = None
    items: tuple[int, ...] = ()


def status(state: State, now: int) -> wire.Status:
    """The queue as a whole."""
    running = state.running - sum(state.tickets[ticket].sequences for ticket in overdue(state, now))
    account = state.account
    return wire.Status(
        current_step=state.step,
        queue_size=account.queued.groups + account.leased.groups,
        queued_sequences=state.held,
        version=state.version,
        permits=permits(state, running),
        set_aside=aside.groups if (aside := account.expired.get("returned")) else 0,
        done=is_done(state),
    )


def _implicit(state: State) -> list[Lease]:
    return [lease for lease in state.leases.values() if not lease.is_explicit]


def batch(state: State, now: int, *, is_explicit: bool = False) -> Leased:
    """Lease the next batch; the first call starts the trainer, an implicit one ends the last lease."""
    head = state.head
    if head.trainer is None:
        return Leased(wire.NoTrainer(message="no trainer has registered; POST /register first"))
    head.is_started = True
    for lease in [] if is_explicit else _implicit(state):
        if lease.is_delivered:
            state.acknowledge(lease.id)
        elif lease.server == state.server:
            state.release(lease.id, "broken")
    if head.is_version_stated:
        head.behind = min(0, head.behind)
    state.expire_tickets(overdue(state, now))
    tickets = list(state.tickets.values())
    candidates = Candidates(version=head.version, lanes=dict(state.lanes), tickets=tickets)
    for lane, reason in over_age(state, candidates):
        for old in list(candidates.lanes.pop(lane)):
            state.drop_item(old, reason)
    found = assembled(state, candidates)
    if not isinstance(found, Sequence):
        lack, why = _lack(state, candidates, found)
        state.count("batches", status=lack)
        return Leased(wire.Batch(batch=None, lack=lack, message=why, retry_s=state.limits.retry_s))
    state.count("batches", status="served")
    seconds = state.limits.lease_s if is_explicit else state.limits.implicit_lease_s
    lease = Lease(
        id=state.next_id(),
        items=tuple(found),
        is_explicit=is_explicit,
        deadline=now + int(seconds * NS),
        server=state.server,
    )
    least = min(state.envs[lane.env_id].virtual for lane in state.lanes)
    state.head.virtual = max(state.head.virtual, least)
    state.leases[lease.id] = lease
    for item in [state.items[item] for item in lease.items]:
        state.observe("wait_time", (now - item.at) / NS)
        state.observe("age", state.age(item.version), source=item.version_source)
        state.items.read(item.id, msgspec.structs.replace(item, is_leased=True))
        state.move_item(item, 1)
    answer = wire.Batch(
        batch=None,
        items=[_served(state, item) for item in lease.items],
        lease=wire.BatchLease(id=lease.id, expires_in_s=seconds) if is_explicit else None,
        version=head.version,
    )
    return Leased(answer, lease.id, lease.items)


def _served(state: State, found: int) -> wire.BatchItem:
    item = state.items[found]
    return wire.BatchItem(
        id=item.id,
        env_id=None if item.env_id == ANONYMOUS else item.env_id,
        version=item.version,
        version_source=item.version_source,
        age=state.age(item.version),
        redelivered=item.deliveries > 0,
        traceparent=item.traceparent,
    )


def _lack(state: State, candidates: Candidates, missing: Sequence[int] | int | None) -> tuple[wire.Lack, str]:
    queued = sum(lane.sequences * len(ids) for lane, ids in candidates.lanes.items())
    size = state.batch_size
    if isinstance(missing, int):
        return "running", f"{missing} sequences are being generated that no later batch can have"
    if is_done(state):
        return "done", "every step has had its batch"
    if queued < size:
        return "few", f"{queued} of {size} sequences are queued"
    sizes = ", ".join(str(found) for found in sorted({lane.sequences for lane in candidates.lanes}))
    return "unreachable", f"{queued} sequences are queued, but groups of {sizes} do not add up to {size}"


def _answer(state: State, lease: int, now: int) -> wire.Lease:
    if lease in state.leases:
        left = max(0.0, (state.leases[lease].deadline - now) / NS)
        return wire.Lease(id=lease, expires_in_s=left, ended=None)
    if lease in state.ended:
        return wire.Lease(id=lease, expires_in_s=None, ended=state.ended[lease])
    why = f"lease {lease} is not known; ask GET /batch for another"
    raise RefusedError(why, "id", status=404)


def delivered(state: State, lease: int, now: int) -> wire.Lease:
    """The reply with this lease was written to its last byte."""
    if lease in state.leases:
        state.leases[lease] = msgspec.structs.replace(state.leases[lease], is_delivered=True)
    return _answer(state, lease, now)


def broken(state: State, lease: int, now: int) -> wire.Lease:
    """The connection broke before the last byte of a reply: its groups are queued again."""
    return _released(state, lease, "broken", now)


def release(state: State, lease: int, now: int) -> wire.Lease:
    """The trainer gives a lease back: its groups are queued again."""
    return _released(state, lease, "released", now)


def _released(state: State, lease: int, reason: Ended, now: int) -> wire.Lease:
    if lease in state.leases:
        state.release(lease, reason)
    return _answer(state, lease, now)


def acknowledge(state: State, lease: int, now: int) -> wire.Lease:
    """The trainer has used a lease; asked again, the answer is the same."""
    if lease in state.leases:
        state.acknowledge(lease)
    return _answer(state, lease, now)


def extend(state: State, lease: int, seconds: float | None, now: int) -> wire.Lease:
    """The trainer needs longer with a lease: so many seconds from now."""
    if lease in state.leases:
        deadline = now + int((state.limits.lease_s if seconds is None else seconds) * NS)
        state.leases[lease] = msgspec.structs.replace(state.leases[lease], deadline=deadline)
    return _answer(state, lease, now)


def register_trainer(state: State, trainer: wire.Registration, now: int) -> wire.Registered:  # noqa: ARG001
    """The trainer registers; what is queued stays, and what its old wire had got is queued again."""
    most = state.limits.max_batch_size
    if trainer.batch_size > most:
        message = f"is {trainer.batch_size}; send at most {most}, or raise --max-memory-mib of the server"
        raise InvalidError(Fault("batch_size", message))
    for lease in _implicit(state):
        state.release(lease.id, "registered")
    head = state.head
    if head.trainer is None and not head.is_version_stated:
        head.version = wire.PolicyVersion(number=trainer.starting_step)
    head.trainer, head.batches, head.behind = trainer, 0, 0
    return wire.Registered(uuid=uuid.uuid4().int)


def move_version(state: State, body: wire.VersionMove, now: int) -> wire.Moved:  # noqa: ARG001 as every decision
    """The trainer states which version of the policy it has; within a lineage numbers only rise."""
    head, old = state.head, state.version
    version = wire.PolicyVersion(lineage=body.lineage, number=body.number)
    if head.is_version_stated and (version.lineage, version.number) < (old.lineage, old.number):
        why = (
            f"version {version.lineage}.{version.number} is older than {old.lineage}.{old.number}; "
            f"a trainer that resumes begins lineage {old.lineage + 1}"
        )
        raise RefusedError(why, "number", status=409)
    if not head.is_version_stated or version != old:
        moved_by = version.number - old.number
        goes_on = old.lineage == version.lineage and moved_by > 0
        head.behind = max(-len(state.leases), head.behind - moved_by) if goes_on else 0
        if old.lineage != version.lineage:
            head.resumed_from = body.resumed_from
        head.version, head.is_version_stated = version, True
    return wire.Moved(version=version)


def sweep(state: State, now: int) -> None:
    """End what time has ended: leases, tickets, keys, and the shares of environments that are silent."""
    _end_overdue(state, now)
    state.expire_tickets(overdue(state, now))
    for key in [key for key, first in state.keys.items() if first.at < now - KEY_RETENTION_NS]:
        del state.keys[key]
    patience = int(state.limits.env_lease_s * NS)
    for env_id, env in state.envs.items():
        if env.presence == "present" and env.seen + patience <= now:
            state.leave(env_id, "silent")


def _end_overdue(state: State, now: int) -> None:
    """Leases whose time is over; one of an old client that had it whole counts as used."""
    for lease in [lease for lease in state.leases.values() if lease.deadline <= now]:
        if lease.is_delivered and not lease.is_explicit:
            state.acknowledge(lease.id)
        else:
            state.release(lease.id, "expired")


def restarted(state: State, now: int, *, is_alone: bool = True) -> None:
    """A server begins: no call could come to it meanwhile, so every lease has its time anew.

    Where it is alone, a reply that was not written whole never will be.
    """
    least = now + int(state.limits.lease_s * NS)
    for lease in list(state.leases.values()):
        if lease.is_explicit and lease.deadline < least:
            state.leases[lease.id] = msgspec.structs.replace(lease, deadline=least)
        elif is_alone and not lease.is_explicit and not lease.is_delivered:
            state.release(lease.id, "broken")
    for env_id, env in state.envs.items():
        if env.presence == "present":
            state.see(env_id, now)


def reset(state: State, body: wire.Confirmation, now: int) -> wire.Done:  # noqa: ARG001 as every decision
    """Discards the trainer, all environments and all groups, which count as expired."""
    state.reset()
    return wire.Done()
