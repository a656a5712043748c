"""Batches that go out, and how they end.

Owns leases. An explicit lease is acknowledged, extended or given back by its holder; at its deadline its
groups are queued again. An old client never acknowledges: its lease counts as used when it asks for the next
batch, or some time after the reply was written whole, and comes back when the connection broke before that or
the trainer begins a new life. Groups that come back are delivered again, and are marked so. Of a lease whose
server sends it still, no other server knows how that ends: it waits until that server is gone.
Must not know which groups make a batch.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from overwatch_rl.rollouts.admission import is_done, overdue, permits
from overwatch_rl.rollouts.answers import (
    Batch,
    LeaseAnswer,
    NoBatch,
    Served,
    Status,
    Trainer,
    Unknown,
    Version,
)
from overwatch_rl.rollouts.assembly import Candidates, assembled, over_age
from overwatch_rl.rollouts.state import KEY_RETENTION_NS, NS, Ended, Lease, State

NO_TRAINER: Final = Unknown(reason="no trainer has registered; POST /register first")
BEAT_NS: Final = 5 * NS
"""How often a server writes that it is here."""
GONE_NS: Final = 30 * NS
"""After so long without a word a server is gone, and what it was sending with it."""


def status(state: State, now: int) -> Status:
    """The queue as a whole."""
    running = state.running - sum(state.tickets[ticket].sequences for ticket in overdue(state, now))
    account = state.account
    return Status(
        step=state.step,
        version=state.version,
        held_groups=account.queued.groups + account.leased.groups,
        held_sequences=state.held,
        running_sequences=running,
        permits=permits(state, running),
        is_done=is_done(state),
        account=account,
    )


def _implicit(state: State) -> list[Lease]:
    return [lease for lease in state.leases.values() if not lease.is_explicit]


def batch(state: State, now: int, *, is_explicit: bool = False) -> Batch | NoBatch | Unknown:
    """Lease the next batch; the first call starts the trainer, an implicit one ends the last lease."""
    head = state.head
    if head.trainer is None:
        return NO_TRAINER
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
        for old in candidates.lanes.pop(lane):
            state.drop_item(old, reason)
    found = assembled(state, candidates)
    if not isinstance(found, Sequence):
        lacking = _lack(state, candidates, found)
        state.count("batches", status=lacking.lack)
        return lacking
    state.count("batches", status="served")
    for item in [state.items[item] for item in found]:
        state.observe("wait_time", (now - item.at) / NS)
        state.observe("age", state.age(item.version), source=item.version_source)
    seconds = state.limits.lease_s if is_explicit else state.limits.implicit_lease_s
    lease = Lease(
        id=state.next_id(),
        at=now,
        items=tuple(found),
        is_explicit=is_explicit,
        deadline=now + int(seconds * NS),
        server=state.server,
    )
    _lease(state, lease)
    return Batch(
        lease=lease.id,
        is_explicit=is_explicit,
        deadline=lease.deadline,
        version=head.version,
        items=tuple(_served(state, item) for item in lease.items),
    )


def _lease(state: State, lease: Lease) -> None:
    least = min(state.envs[lane.env_id].virtual for lane in state.lanes)
    state.head.virtual = max(state.head.virtual, least)
    state.leases[lease.id] = lease
    for item in [state.items[item] for item in lease.items]:
        state.items[item.id] = msgspec.structs.replace(item, is_leased=True)
        state.move_item(item, 1)


def _served(state: State, found: int) -> Served:
    item = state.items[found]
    return Served(
        id=item.id,
        env_id=item.env_id,
        sequences=item.sequences,
        version=item.version,
        version_source=item.version_source,
        age=state.age(item.version),
        is_redelivered=item.deliveries > 0,
        traceparent=item.traceparent,
    )


def _lack(state: State, candidates: Candidates, missing: Sequence[int] | int | None) -> NoBatch:
    queued = sum(lane.sequences * len(ids) for lane, ids in candidates.lanes.items())
    size, retry_s = state.batch_size, state.limits.retry_s
    if isinstance(missing, int):
        reason = f"{missing} sequences are being generated that no later batch can have"
        return NoBatch(lack="running", reason=reason, retry_s=retry_s)
    if is_done(state):
        return NoBatch(lack="done", reason="every step has had its batch", retry_s=retry_s)
    if queued < size:
        return NoBatch(lack="few", reason=f"{queued} of {size} sequences are queued", retry_s=retry_s)
    sizes = ", ".join(str(found) for found in sorted({lane.sequences for lane in candidates.lanes}))
    reason = f"{queued} sequences are queued, but groups of {sizes} do not add up to {size}"
    return NoBatch(lack="unreachable", reason=reason, retry_s=retry_s)


def _answer(state: State, lease: int) -> LeaseAnswer | Unknown:
    if lease in state.leases:
        return LeaseAnswer(lease=lease, deadline=state.leases[lease].deadline)
    if lease in state.ended:
        return LeaseAnswer(lease=lease, deadline=None, ended=state.ended[lease])
    return Unknown(reason=f"lease {lease} is not known; ask GET /batch for another")


def delivered(state: State, lease: int, now: int) -> LeaseAnswer | Unknown:  # noqa: ARG001 as every decision
    """The reply with this lease was written to its last byte."""
    if lease in state.leases:
        state.leases[lease] = msgspec.structs.replace(state.leases[lease], is_delivered=True)
    return _answer(state, lease)


def broken(state: State, lease: int, now: int) -> LeaseAnswer | Unknown:  # noqa: ARG001 as every decision
    """The connection broke before the last byte of a reply: its groups are queued again."""
    return _released(state, lease, "broken")


def release(state: State, lease: int, now: int) -> LeaseAnswer | Unknown:  # noqa: ARG001 as every decision
    """The trainer gives a lease back: its groups are queued again."""
    return _released(state, lease, "released")


def _released(state: State, lease: int, reason: Ended) -> LeaseAnswer | Unknown:
    if lease in state.leases:
        state.release(lease, reason)
    return _answer(state, lease)


def acknowledge(state: State, lease: int, now: int) -> LeaseAnswer | Unknown:  # noqa: ARG001 as every decision
    """The trainer has used a lease; asked again, the answer is the same."""
    if lease in state.leases:
        state.acknowledge(lease)
    return _answer(state, lease)


def extend(state: State, lease: int, seconds: float | None, now: int) -> LeaseAnswer | Unknown:
    """Move a lease's deadline to so many seconds from now."""
    if lease in state.leases:
        deadline = now + int((state.limits.lease_s if seconds is None else seconds) * NS)
        state.leases[lease] = msgspec.structs.replace(state.leases[lease], deadline=deadline)
    return _answer(state, lease)


def register_trainer(state: State, trainer: Trainer, now: int) -> Status:
    """A trainer registers; again after a crash: what its old wire had got is queued again."""
    for lease in _implicit(state):
        state.release(lease.id, "registered")
    head = state.head
    if head.trainer is None and not head.is_version_stated:
        head.version = Version(number=trainer.starting_step)
    head.trainer, head.batches, head.behind = trainer, 0, 0
    return status(state, now)


def move_version(state: State, version: Version, resumed_from: int | None, now: int) -> Status | Unknown:
    """The trainer states its version; within a lineage numbers only rise."""
    head, old = state.head, state.version
    if head.is_version_stated and (version.lineage, version.number) < (old.lineage, old.number):
        reason = (
            f"version {version.lineage}.{version.number} is older than {old.lineage}.{old.number}; "
            f"a trainer that resumes begins lineage {old.lineage + 1}"
        )
        return Unknown(reason=reason)
    if not head.is_version_stated or version != old:
        moved_by = version.number - old.number
        goes_on = old.lineage == version.lineage and moved_by > 0
        head.behind = max(-len(state.leases), head.behind - moved_by) if goes_on else 0
        if old.lineage != version.lineage:
            head.resumed_from = resumed_from
        head.version, head.is_version_stated = version, True
    return status(state, now)


def sweep(state: State, now: int) -> None:
    """End what time has ended: leases, tickets, keys, and the shares of environments that are silent."""
    servers = state.head.servers
    if now - servers.get(state.server, -BEAT_NS) >= BEAT_NS:
        servers[state.server] = now
    for server in [name for name, seen in servers.items() if now - seen >= GONE_NS]:
        del servers[server]
    _end_unsent(state, {state.server, *servers})
    _end_overdue(state, now)
    state.expire_tickets(overdue(state, now))
    for key in [key for key, first in state.keys.items() if first.at < now - KEY_RETENTION_NS]:
        state.forget(key)
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


def _end_unsent(state: State, here: set[str]) -> None:
    """A reply that was not written whole when its server ended never will be."""
    for lease in _implicit(state):
        if not lease.is_delivered and lease.server not in here:
            state.release(lease.id, "broken")


def restarted(state: State, now: int, *, is_alone: bool = True) -> None:
    """A server begins, after all others where it is alone: every lease has its time anew.

    No call could come to it meanwhile.
    """
    if is_alone:
        state.head.servers.clear()
    least = now + int(state.limits.lease_s * NS)
    for lease in list(state.leases.values()):
        if lease.is_explicit and lease.deadline < least:
            state.leases[lease.id] = msgspec.structs.replace(lease, deadline=least)
    for env_id, env in state.envs.items():
        if env.presence == "present":
            state.see(env_id, now)
    _end_unsent(state, set(state.head.servers))


def reset(state: State, now: int) -> int:  # noqa: ARG001 as every decision
    """Forget trainer, environments and groups; answers how many groups are lost, which count as expired."""
    lost = len(state.items)
    state.reset()
    return lost
