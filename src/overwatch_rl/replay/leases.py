"""What may be asked of a table of sequences, as pure decisions over one state.

    operations = leases.append(state, items, writer, now)      # changes nothing
    for operation in operations:
        fold.apply(state, operation)

Owns consume-once: an item is leased to one learner at a time, is used when that learner acknowledges, and
comes again when the lease ends otherwise. Must not know a clock, files, bytes or limits of memory.
"""

from collections.abc import Iterable, Sequence

from overwatch_rl.replay.base import Removal, Resumed, Which, Writer
from overwatch_rl.replay.fold import State
from overwatch_rl.replay.operations import (
    Accepted,
    Acknowledged,
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
)
from overwatch_rl.replay.orders import Unit


def is_repeat(state: State, writer: Writer | None) -> bool:
    """Whether a writer's request was taken before."""
    return writer is not None and writer.number <= state.writers.get(writer.id, -1)


def accept(state: State, item: Item, writer: Writer | None) -> list[Operation]:
    """Take a chunk; `writer` goes with the last one of a request.

    It may break an episode of which the rest will not come.
    """
    broken = state.queue.grouping.broken_by(item)
    name, number = (None, 0) if writer is None else (writer.id, writer.number)
    accepted = Accepted(at=item.at, item=item, writer=name, number=number)
    old = tuple(found for found in broken if found != item.id)
    operations: list[Operation] = [Removed(at=item.at, items=old, reason="incomplete")] if old else []
    operations.append(accepted)
    if item.id in broken:
        operations.append(Removed(at=item.at, items=(item.id,), reason="incomplete"))
    return operations


def evict(state: State, items: int, size: int, now: int) -> list[Operation]:
    """Remove the oldest that is queued until there is room for so many items and bytes, or nothing more."""
    gone: list[int] = []
    for unit in state.queue.all():
        if items <= 0 and size <= 0:
            break
        gone += unit
        items -= len(unit)
        size -= sum(state.items[item].size for item in unit)
    return [Removed(at=now, items=tuple(gone), reason="evicted")] if gone else []


def known_lease(state: State, learner: str, after: int) -> Lease | None:
    """The first lease that a learner has and did not get."""
    found = state.learners.get(learner)
    return None if found is None else next((found.leases[n] for n in sorted(found.leases) if n > after), None)


def next_units(state: State, steps: int) -> list[Unit] | None:
    """As few of the next units as have so many steps; `None` where there are not so many."""
    units: list[Unit] = []
    for unit in state.queue.units:
        units.append(unit)
        steps -= sum(state.items[item].steps for item in unit)
        if steps <= 0:
            return units
    return None


def lease(
    state: State, owner: tuple[str, int], units: Iterable[Unit], deadline: int, now: int
) -> list[Operation]:
    """Give units to a learner, by its name, and the last lease that it got."""
    learner, after = owner
    known = state.learners.get(learner, Learner())
    items = tuple(item for unit in units for item in unit)
    missed = any(number > after for number in known.lapsed)
    operations: list[Operation] = [Missed(at=now, learner=learner, after=after)] if missed else []
    number = max(known.next_number, after + 1)
    return [*operations, Leased(at=now, learner=learner, number=number, items=items, deadline=deadline)]


def extend(state: State, learner: str, deadline: int, now: int) -> list[Operation]:
    """Give all leases of a learner a new deadline."""
    found = state.learners.get(learner)
    return [Extended(at=now, learner=learner, deadline=deadline)] if found and found.leases else []


def acknowledge(state: State, learner: str, upto: int, now: int) -> list[Operation]:
    """The items of leases up to a number are used."""
    found = state.learners.get(learner)
    if found is None or not any(number <= upto for number in (*found.leases, *found.lapsed)):
        return []
    return [Acknowledged(at=now, learner=learner, upto=upto, items=_used(state, learner, upto))]


def resume(state: State, learner: str, cursor: int, now: int) -> tuple[list[Operation], Resumed]:
    """Go on from a checkpoint; the answer holds once the operation was applied."""
    found = state.learners.get(learner, Learner())
    used = _used(state, learner, cursor)
    answer = Resumed(
        next_number=max(found.next_number, cursor + 1),
        redelivered=sum(len(lease.items) for lease in found.leases.values() if lease.number > cursor),
        acknowledged=len(used),
        gap=sum(number > cursor for number in found.done),
        is_unknown=cursor >= found.next_number,
    )
    return [LearnerResumed(at=now, learner=learner, cursor=cursor, items=used)], answer


def _used(state: State, learner: str, upto: int) -> tuple[int, ...]:
    """Items of a learner's leases up to a number; of those that lapsed, what went to no other lease."""
    found = state.learners.get(learner, Learner())
    held = [item for number, lease in found.leases.items() if number <= upto for item in lease.items]
    late = [
        item
        for number, items in found.lapsed.items()
        for item in items
        if number <= upto and state.lapsed.get(item) == (learner, number)
    ]
    return (*held, *late)


def expire(state: State, now: int) -> list[Operation]:
    """End the leases whose deadline has passed."""
    return [
        Lapsed(at=now, learner=name, number=lease.number)
        for name, learner in state.learners.items()
        for lease in learner.leases.values()
        if lease.deadline <= now
    ]


def remove(state: State, which: Which, now: int) -> list[Operation]:
    """Remove queued items, and what is of one unit with them."""
    units = list(state.queue.all())
    if which.keep_last is not None:
        keep, kept = which.keep_last, 0
        newest = sorted(units, key=lambda unit: unit[-1], reverse=True)
        while kept < len(newest) and sum(map(len, newest[: kept + 1])) <= keep:
            kept += 1
        units = newest[kept:]
    gone = [item for unit in units if any(_fits(state.items[item], which) for item in unit) for item in unit]
    return removed(sorted(gone), which.reason, now)


def removed(items: Sequence[int], reason: Removal, now: int) -> list[Operation]:
    """Remove these."""
    return [Removed(at=now, items=tuple(items), reason=reason)] if items else []


def lose(state: State, items: Iterable[int], now: int) -> list[Operation]:
    """Remove chunks whose bytes are gone, and what is of one unit with them; leases that have any end."""
    gone = frozenset(items)
    ended: list[Operation] = [
        Lapsed(at=now, learner=name, number=lease.number)
        for name, learner in state.learners.items()
        for lease in learner.leases.values()
        if not gone.isdisjoint(lease.items)
    ]
    units = [unit for unit in state.queue.everything() if not gone.isdisjoint(unit)]
    return [*ended, *removed(sorted(item for unit in units for item in unit), "lost", now)]


def _fits(item: Item, which: Which) -> bool:
    version = (item.lineage, item.version)
    return (
        (which.env is None or item.env == which.env)
        and (which.before is None or item.at < which.before)
        and (which.older_than is None or version < which.older_than)
        and (which.beyond is None or (item.lineage <= which.beyond[0] and item.version > which.beyond[1]))
    )
