"""Batches that go out, and how they end.

Owns leases. An explicit lease is acknowledged, extended or given back by its holder; at its deadline its
groups are queued again. An old client never acknowledges: its lease counts as used when it asks for the next
batch, or some time after the reply was written whole, and comes back when the connection broke before that or
the trainer begins a new life. Groups that come back are delivered again, and are marked so.
Must not know which groups make a batch.
"""

from collections.abc import Sequence
from typing import Final

from overwatch_rl.rollouts.admission import NS, is_done, overdue, permits
from overwatch_rl.rollouts.answers import (
    Batch,
    Decision,
    LeaseAnswer,
    NoBatch,
    Served,
    Status,
    Unknown,
)
from overwatch_rl.rollouts.assembly import Candidates, assembled, over_age
from overwatch_rl.rollouts.operations import (
    Acknowledged,
    Delivered,
    Ended,
    Expired,
    Extended,
    Lease,
    Leased,
    Operation,
    Released,
    Renewed,
    Reset,
    Seen,
    TicketsExpired,
    Trainer,
    TrainerRegistered,
    TrainerStarted,
    Version,
    VersionMoved,
)
from overwatch_rl.rollouts.state import Lane, State, lane_of

NO_TRAINER: Final = Unknown(reason="no trainer has registered; POST /register first")


def status(state: State, now: int) -> Status:
    """The queue as a whole."""
    over = sum(state.tickets[found].sequences for found in overdue(state, now))
    account = state.account
    return Status(
        step=state.step,
        version=state.version,
        held_groups=account.queued.groups + account.leased.groups,
        held_sequences=state.held,
        running_sequences=state.running - over,
        permits=permits(state, state.running - over),
        is_done=is_done(state),
        account=account,
    )


def _implicit(state: State) -> list[Lease]:
    return [lease for lease in state.leases.values() if not lease.is_explicit]


def batch(state: State, now: int, *, is_explicit: bool = False) -> Decision[Batch | NoBatch | Unknown]:
    """Lease the next batch; the first call starts the trainer, an implicit one settles the last lease."""
    if state.trainer is None:
        return Decision(answer=NO_TRAINER)
    operations: list[Operation] = [] if state.is_started else [TrainerStarted(at=now)]
    settled = [] if is_explicit else _implicit(state)
    used = [lease for lease in settled if lease.is_delivered]
    back = [lease for lease in settled if not lease.is_delivered]
    operations += [Acknowledged(at=now, lease=lease.id) for lease in used]
    for lease in back:
        operations += _back(state, lease, now, "broken")
    version = state.version
    if not state.is_version_stated:
        version = Version(lineage=version.lineage, number=version.number + len(used))
    elif state.behind + len(used) > 0:
        operations.append(VersionMoved(at=now, version=version, resumed_from=state.resumed_from))
    over = overdue(state, now)
    if over:
        operations.append(TicketsExpired(at=now, tickets=over))
    candidates = Candidates(
        version=version,
        lanes=_with_returned(state, back),
        tickets=[ticket for ticket in state.tickets.values() if ticket.expires_at > now],
    )
    for lane, reason in over_age(state, candidates):
        operations.append(Expired(at=now, items=tuple(candidates.lanes.pop(lane)), reason=reason))
    found = assembled(state, candidates)
    if not isinstance(found, Sequence):
        answer = _lack(state, candidates, found)
        return Decision(answer=answer, operations=tuple(operations))
    returned = {item for lease in back for item in lease.items}
    leased, served = _leased(state, now, found, is_explicit=is_explicit)
    return Decision(
        answer=Batch(
            lease=leased.lease,
            is_explicit=is_explicit,
            deadline=leased.deadline,
            version=version,
            items=tuple(_served(state, item, version, returned) for item in served),
        ),
        operations=(*operations, leased),
    )


def _with_returned(state: State, back: list[Lease]) -> dict[Lane, Sequence[int]]:
    """What is queued once these leases are released."""
    lanes: dict[Lane, Sequence[int]] = dict(state.lanes)
    for item in (state.items[found] for lease in back for found in lease.items):
        lane = lane_of(item)
        lanes[lane] = sorted([*lanes.get(lane, ()), item.id])
    return lanes


def _leased(
    state: State, now: int, items: Sequence[int], *, is_explicit: bool
) -> tuple[Leased, tuple[int, ...]]:
    seconds = state.limits.lease_s if is_explicit else state.limits.implicit_lease_s
    leased = Leased(
        at=now,
        lease=state.next_id,
        items=tuple(items),
        is_explicit=is_explicit,
        deadline=now + int(seconds * NS),
    )
    return leased, leased.items


def _served(state: State, found: int, version: Version, returned: set[int]) -> Served:
    item = state.items[found]
    return Served(
        id=item.id,
        env_id=item.env_id,
        sequences=item.sequences,
        version=item.version,
        version_source=item.version_source,
        age=max(0, version.number - item.version.number),
        is_redelivered=item.deliveries > 0 or item.id in returned,
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


def delivered(state: State, lease: int, now: int) -> Decision[LeaseAnswer | Unknown]:
    """The reply with this lease was written to its last byte."""
    is_new = lease in state.leases and not state.leases[lease].is_delivered
    operations = (Delivered(at=now, lease=lease),) if is_new else ()
    return Decision(answer=_answer(state, lease), operations=operations)


def broken(state: State, lease: int, now: int) -> Decision[LeaseAnswer | Unknown]:
    """The connection broke before the last byte of a reply: its groups are queued again."""
    return _released(state, lease, now, "broken")


def release(state: State, lease: int, now: int) -> Decision[LeaseAnswer | Unknown]:
    """The trainer gives a lease back: its groups are queued again."""
    return _released(state, lease, now, "released")


def _released(state: State, lease: int, now: int, reason: Ended) -> Decision[LeaseAnswer | Unknown]:
    if lease not in state.leases:
        return Decision(answer=_answer(state, lease))
    answer = LeaseAnswer(lease=lease, deadline=None, ended=reason)
    return Decision(answer=answer, operations=_back(state, state.leases[lease], now, reason))


def _back(state: State, lease: Lease, now: int, reason: Ended) -> tuple[Operation, ...]:
    """The groups of a lease are queued again; those that came back too often are set aside.

    A reply that did not arrive is no reader's failure: it is not counted.
    """
    most = state.limits.max_returns
    aside = tuple(
        item for item in lease.items if reason != "broken" and state.items[item].returns + 1 >= most
    )
    released = Released(at=now, lease=lease.id, reason=reason)
    return (released, Expired(at=now, items=aside, reason="returned")) if aside else (released,)


def acknowledge(state: State, lease: int, now: int) -> Decision[LeaseAnswer | Unknown]:
    """The trainer has used a lease; asked again, the answer is the same."""
    if lease not in state.leases:
        return Decision(answer=_answer(state, lease))
    answer = LeaseAnswer(lease=lease, deadline=None, ended="acknowledged")
    return Decision(answer=answer, operations=(Acknowledged(at=now, lease=lease),))


def extend(state: State, lease: int, seconds: float | None, now: int) -> Decision[LeaseAnswer | Unknown]:
    """Move a lease's deadline to so many seconds from now."""
    if lease not in state.leases:
        return Decision(answer=_answer(state, lease))
    deadline = now + int((state.limits.lease_s if seconds is None else seconds) * NS)
    answer = LeaseAnswer(lease=lease, deadline=deadline)
    return Decision(answer=answer, operations=(Extended(at=now, lease=lease, deadline=deadline),))


def register_trainer(state: State, trainer: Trainer, now: int) -> Decision[Status]:
    """A trainer registers; again after a crash: what its old wire had got is queued again."""
    operations: list[Operation] = []
    for lease in _implicit(state):
        operations += _back(state, lease, now, "registered")
    operations.append(TrainerRegistered(at=now, trainer=trainer))
    return Decision(answer=status(state, now), operations=tuple(operations))


def move_version(
    state: State, version: Version, resumed_from: int | None, now: int
) -> Decision[Status | Unknown]:
    """The trainer states its version; within a lineage numbers only rise."""
    old = state.version
    if state.is_version_stated and (version.lineage, version.number) < (old.lineage, old.number):
        reason = (
            f"version {version.lineage}.{version.number} is older than {old.lineage}.{old.number}; "
            f"a trainer that resumes begins lineage {old.lineage + 1}"
        )
        return Decision(answer=Unknown(reason=reason))
    if state.is_version_stated and version == old:
        return Decision(answer=status(state, now))
    moved = VersionMoved(at=now, version=version, resumed_from=resumed_from)
    return Decision(answer=status(state, now), operations=(moved,))


def sweep(state: State, now: int) -> Decision[None]:
    """End what time has ended: leases, tickets, and the shares of environments that are silent."""
    operations: list[Operation] = []
    for lease in state.leases.values():
        if lease.deadline > now:
            continue
        if lease.is_delivered and not lease.is_explicit:
            operations.append(Acknowledged(at=now, lease=lease.id))
        else:
            operations += _back(state, lease, now, "expired")
    over = overdue(state, now)
    if over:
        operations.append(TicketsExpired(at=now, tickets=over))
    patience = int(state.limits.env_lease_s * NS)
    operations += [
        Renewed(at=now, env_id=env_id, is_present=False)
        for env_id, env in state.envs.items()
        if env.presence == "present" and env.seen + patience <= now
    ]
    return Decision(answer=None, operations=tuple(operations))


def restarted(state: State, now: int) -> Decision[None]:
    """After a log was read: no call could come meanwhile, so every lease starts anew.

    A reply that was not written whole when the server ended never will be.
    """
    least = now + int(state.limits.lease_s * NS)
    operations: list[Operation] = []
    for lease in state.leases.values():
        if lease.is_explicit and lease.deadline < least:
            operations.append(Extended(at=now, lease=lease.id, deadline=least))
        elif not lease.is_explicit and not lease.is_delivered:
            operations.append(Released(at=now, lease=lease.id, reason="broken"))
    operations += [
        Seen(at=now, env_id=env_id) for env_id, env in state.envs.items() if env.presence == "present"
    ]
    return Decision(answer=None, operations=tuple(operations))


def reset(state: State, now: int) -> Decision[int]:
    """Forget trainer, environments and groups; answers how many groups are lost, which count as expired."""
    return Decision(answer=len(state.items), operations=(Reset(at=now),))
