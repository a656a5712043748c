"""A table of sequences: whole chunks, leased to learners and used once; in memory or on disk.

Owns the state and the bytes of one table. Rules: a request is taken whole or not at all; what was taken is
never dropped but by name (`Removal`); a durable table is first in, first out, and refuses when it is full.
One thread uses it. Must not know the wire, nor limiters.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import msgspec

from overwatch_rl.oplog import ItemLostError, Level, Store, StoreLimits
from overwatch_rl.replay import fold, leases
from overwatch_rl.replay.base import (
    ItemId,
    LeasedChunk,
    LeaseOf,
    Refused,
    Resumed,
    TableConfig,
    TableStats,
    Taken,
    Wait,
    Which,
    Writer,
)
from overwatch_rl.replay.chunk import Bytes, Chunk, Encoding
from overwatch_rl.replay.fold import State
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.operations import (
    Acknowledged,
    Declared,
    Extended,
    Item,
    Lapsed,
    LearnerResumed,
    Lease,
    Leased,
    Missed,
    Operation,
    Removed,
    Snapshot,
)
from overwatch_rl.replay.orders import ORDERS

REMOVERS: Final = ("refuse", "oldest")
"""What a full table does: refuse new chunks, or remove the oldest that are queued."""


@dataclass(frozen=True, slots=True)
class SequenceBook:
    """The table, as the log sees it."""

    state: State

    @property
    def items(self) -> Mapping[int, Item]:
        """Chunks that are queued or leased."""
        return self.state.items

    def apply(self, operation: Operation) -> None:
        """Change the state."""
        fold.apply(self.state, operation)

    def snapshot(self, at: int) -> Snapshot:
        """The whole state."""
        return fold.snapshot(self.state, at)

    def lost(self, items: tuple[int, ...], at: int) -> list[Operation]:
        """What takes chunks out whose bytes are gone, and what is of one unit with them."""
        return leases.lose(self.state, items, at)

    def mended(self, operation: Operation) -> Operation | None:
        """What an operation means where others are lost; `None` for nothing."""
        state = self.state
        match operation:
            case Leased(items=items) | Removed(items=items):
                # They were queued then: what had them before ended in a record that is lost.
                self._end(lambda _, lease: not set(items).isdisjoint(lease.items), operation.at)
                queued = {item for unit in state.queue.all() for item in unit}
                left = tuple(item for item in items if item in queued)
                return msgspec.structs.replace(operation, items=left) if left else None
            case Acknowledged(upto=upto, items=items) | LearnerResumed(cursor=upto, items=items):
                used, mine = set(items), operation.learner
                self._end(
                    lambda name, lease: (
                        not used.issuperset(lease.items)
                        if name == mine and lease.number <= upto
                        else not used.isdisjoint(lease.items)
                    ),
                    operation.at,
                )
                left = tuple(item for item in items if item in state.items)
                return msgspec.structs.replace(operation, items=left)
            case Lapsed(learner=learner, number=number):
                known = state.learners.get(learner)
                return operation if known is not None and number in known.leases else None
            case Extended(learner=learner) | Missed(learner=learner):
                return operation if learner in state.learners else None
            case _:
                return operation

    def _end(self, is_over: Callable[[str, Lease], bool], at: int) -> None:
        """End leases as if by time."""
        for name, learner in self.state.learners.items():
            for lease in [lease for lease in learner.leases.values() if is_over(name, lease)]:
                fold.apply(self.state, Lapsed(at=at, learner=name, number=lease.number))


class Sequences:
    """One table. `close` it."""

    def __init__(
        self, config: TableConfig, encoding: Encoding | None = None, segment_bytes: int = 64 << 20
    ) -> None:
        """Read back what its folder has. Raises `ValueError` for a configuration that contradicts itself."""
        _check(config)
        self.config = config
        self.state = State(selector=config.selector)
        self.last: Future[None] | None = None
        """Of what was done last and is not safe at once."""
        self._is_full = False
        capacity = config.capacity
        self.store: Store[Operation] = Store(
            SequenceBook(self.state),
            Operation,
            (config.folder, "replay"),
            StoreLimits(
                level=config.durability,
                held_bytes=capacity.bytes,
                memory_bytes=capacity.memory_bytes,
                disk_bytes=capacity.disk_bytes or 4 * capacity.bytes + 4 * segment_bytes,
                segment_bytes=segment_bytes,
            ),
        )
        if encoding is not None and self.state.encoding is None:
            self._do([Declared(at=self.store.last_at, encoding=encoding)])

    @property
    def encoding(self) -> Encoding:
        """What its bytes mean. Raises `ValueError` where that is not declared."""
        if self.state.encoding is None:
            raise ValueError(f"table {self.config.name!r} has no encoding: declare it first")
        return self.state.encoding

    def append(self, chunks: Sequence[Chunk], writer: Writer | None, now: int) -> Taken | Wait | Refused:
        """Take all of checked chunks, or none."""
        if leases.is_repeat(self.state, writer):
            return Taken(items=0, steps=0, safe=self.last or self._do([]), is_repeat=True)
        payloads = [self.encoding.pack(chunk) for chunk in chunks]
        size = sum(map(len, payloads))
        refusal = self._refusal(len(chunks), size, now)
        if refusal is not None:
            return refusal
        operations: list[Operation] = []
        kept: dict[int, bytes] = {}
        for index, (chunk, payload) in enumerate(zip(chunks, payloads, strict=True)):
            item = _item(self.state.next_id, chunk, len(payload), now)
            is_last = index == len(chunks) - 1
            for operation in leases.accept(self.state, item, writer if is_last else None):
                fold.apply(self.state, operation)
                operations.append(operation)
            kept[item.id] = payload
        self._is_full = False
        self.last = safe = self.store.submit(operations, kept, _gone(operations))
        return Taken(items=len(chunks), steps=sum(chunk.steps for chunk in chunks), safe=safe)

    def lease(self, learner: str, steps: int, after: int, now: int) -> LeaseOf | None:
        """See `base.SequenceTable`."""
        is_new = False
        while True:
            known = leases.known_lease(self.state, learner, after)
            if known is None:
                units = leases.next_units(self.state, steps)
                if units is None:
                    return None
                deadline = now + int(self.config.lease_s * 1e9)
                self._do(leases.lease(self.state, (learner, after), units, deadline, now))
                is_new = True
                continue
            payloads = self._load(known)
            if isinstance(payloads, dict):
                return self._served(learner, known, payloads, is_new=is_new)
            self._do(leases.lose(self.state, payloads, now))

    def extend(self, learner: str, now: int) -> int:
        """See `base.SequenceTable`."""
        deadline = now + int(self.config.lease_s * 1e9)
        self._do(leases.extend(self.state, learner, deadline, now))
        known = self.state.learners.get(learner)
        return 0 if known is None else len(known.leases)

    def acknowledge(self, learner: str, upto: int, now: int) -> int:
        """See `base.SequenceTable`."""
        before = self.state.account.acknowledged.items
        self._do(leases.acknowledge(self.state, learner, upto, now))
        return self.state.account.acknowledged.items - before

    def resume(self, learner: str, cursor: int, now: int) -> Resumed:
        """See `base.SequenceTable`."""
        operations, answer = leases.resume(self.state, learner, cursor, now)
        self._do(operations)
        return answer

    def expire(self, now: int) -> int:
        """See `base.SequenceTable`."""
        before = self.state.account.redelivered
        self._do(leases.expire(self.state, now))
        return self.state.account.redelivered - before

    def remove(self, which: Which, now: int) -> int:
        """Remove queued chunks; what is leased stays."""
        before = len(self.state.items)
        self._do(leases.remove(self.state, which, now))
        return before - len(self.state.items)

    def stats(self) -> TableStats:
        """What it holds and did."""
        state, account = self.state, self.state.account
        envs: dict[str, int] = {}
        for item in state.items.values():
            envs[item.env] = envs.get(item.env, 0) + item.steps
        times = [item.at for item in state.items.values()]
        return TableStats(
            name=self.config.name,
            kind=self.config.kind,
            items=len(state.items),
            steps=self.steps,
            bytes=account.queued.bytes + account.leased.bytes,
            accepted=account.accepted.items,
            queued=account.queued.items,
            leased=account.leased.items,
            acknowledged=account.acknowledged.items,
            removed={reason: amount.items for reason, amount in account.removed.items()},
            sampled=account.sampled.items,
            redelivered=account.redelivered,
            late={"ack": account.late},
            leases=sum(len(learner.leases) for learner in state.learners.values()),
            spilled_bytes=self.store.spilled_bytes,
            episodes=len({(item.run, item.env, item.episode) for item in state.items.values()}),
            envs=envs,
            oldest=min(times, default=None),
            newest=max(times, default=None),
            problem=self.store.problem,
            is_full=self._is_full,
            most_items=self.config.capacity.items,
            most_bytes=self.config.capacity.bytes,
        )

    @property
    def steps(self) -> int:
        """Steps that are queued or leased."""
        return self.state.account.queued.steps + self.state.account.leased.steps

    def close(self) -> None:
        """Write what waits and let go of the folder. A second call does nothing."""
        self.store.close()

    def _do(self, operations: Sequence[Operation]) -> "Future[None]":
        for operation in operations:
            fold.apply(self.state, operation)
        gone = _gone(operations)
        made = self.store.submit(operations, {}, gone)
        self._is_full = self._is_full and not gone
        if not made.done():
            self.last = made
        return made

    def _refusal(self, items: int, size: int, now: int) -> Wait | Refused | None:
        """Why a request cannot be taken now; the oldest are removed first where that is the rule."""
        capacity, name = self.config.capacity, self.config.name
        if items > capacity.items or size > capacity.bytes:
            most = f"{capacity.items} chunks and {capacity.bytes} bytes"
            return Refused(
                reason="too_large",
                message=f"{items} chunks of {size} bytes; table {name!r} holds {most}: send fewer at once",
            )
        if self.store.problem is not None:
            return Refused(reason="disk", message=f"table {name!r} cannot write: {self.store.problem}")
        over = len(self.state.items) + items - capacity.items, self.store.held_bytes + size - capacity.bytes
        if self.config.remover == "oldest" and max(over) > 0:
            self._do(leases.evict(self.state, *over, now))
        if len(self.state.items) + items <= capacity.items and self.store.room(size):
            return None
        if not self.state.queue.units and not self.state.account.leased.items:
            return Refused(
                reason="full",
                message=f"table {name!r} is full of episodes that have not ended: raise its capacity",
            )
        self._is_full = True
        return Wait(reason="full")

    def _load(self, lease: Lease) -> dict[int, bytes] | list[int]:
        """The bytes of a lease's chunks, or which of them are lost."""
        found: dict[int, bytes] = {}
        lost = []
        for item in lease.items:
            try:
                found[item] = self.store.load(item)
            except ItemLostError:
                lost.append(item)
        return lost or found

    def _served(self, learner: str, lease: Lease, payloads: dict[int, bytes], *, is_new: bool) -> LeaseOf:
        items = []
        for number in lease.items:
            item, count = self.state.items[number], self.state.deliveries[number]
            columns = self.encoding.unpack(payloads[number], item.steps, item.end)
            items.append(
                LeasedChunk(
                    id=ItemId(number, count),
                    chunk=_chunk(item, columns),
                    is_redelivered=count > 1 or not is_new,
                    at=item.at,
                )
            )
        return LeaseOf(learner=learner, number=lease.number, items=tuple(items), deadline=lease.deadline)


def _gone(operations: Sequence[Operation]) -> list[int]:
    """Chunks that live no more after these."""
    return [
        item
        for operation in operations
        if isinstance(operation, Acknowledged | LearnerResumed | Removed)
        for item in operation.items
    ]


def _check(config: TableConfig) -> None:
    """Raise `ValueError`, naming what contradicts what."""
    name = f"table {config.name!r}"
    if config.selector not in ORDERS:
        raise ValueError(f"{name}: selector {config.selector!r} is none of {', '.join(ORDERS)}")
    if config.remover not in REMOVERS:
        raise ValueError(f"{name}: remover {config.remover!r} is none of {', '.join(REMOVERS)}")
    if config.durability is not Level.MEMORY:
        if config.folder is None:
            raise ValueError(f"{name}: the level {config.durability.value} needs a folder")
        if config.selector != "fifo" or config.remover != "refuse":
            raise ValueError(f"{name}: a durable table is fifo and refuses when it is full")
    elif config.folder is not None or config.capacity.memory_bytes is not None:
        raise ValueError(f"{name}: the level memory has no folder and no memory_bytes")
    if config.rate != Rate():
        raise ValueError(f"{name}: a rate is for tables of steps; a chunk of sequences is used once anyway")
    if not config.lease_s > 0:
        raise ValueError(f"{name}: lease_s is {config.lease_s}, not above 0")


def _item(number: int, chunk: Chunk, size: int, now: int) -> Item:
    return Item(
        id=number,
        at=now,
        run=chunk.run,
        env=chunk.env,
        episode=chunk.episode,
        first_step=chunk.first_step,
        steps=chunk.steps,
        lineage=chunk.lineage,
        version=chunk.version,
        end=chunk.end,
        size=size,
    )


def _chunk(item: Item, columns: Mapping[str, Bytes]) -> Chunk:
    return Chunk(
        run=item.run,
        env=item.env,
        episode=item.episode,
        first_step=item.first_step,
        steps=item.steps,
        lineage=item.lineage,
        version=item.version,
        end=item.end,
        columns=columns,
    )
