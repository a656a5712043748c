"""A table of sequences: whole chunks in memory, leased to learners and used once.

Owns the chunks of one table and who has them. An item is queued or leased to one learner; it is used when
that learner acknowledges, and comes again, flagged, when the lease ends otherwise. Rules: a request is taken
whole or not at all; what was taken is never dropped but by name (`Removal`); all memory that a chunk takes
counts. One thread uses it, and nothing of it survives that process. Must not know the wire, nor limiters.
"""

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from overwatch_rl.protos.replay.v1.replay_pb2 import ClearRequest
from overwatch_rl.replay.base import (
    ItemId,
    LeasedChunk,
    LeaseOf,
    Refused,
    Removal,
    Resumed,
    TableConfig,
    TableStats,
    Taken,
    Wait,
    matching,
)
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.limiter import Rate

REMOVERS: Final = ("refuse", "oldest")
"""What a full table does: refuse new chunks, or remove the oldest that are queued."""
BESIDE_BYTES: Final = 640
"""What a chunk takes beside the bytes of its columns and its names, as measured; 64 more a column."""
MOST_LEARNERS: Final = 4_096
"""Most that are remembered; the one that came first and has no lease goes first."""
MOST_DONE: Final = 4_096
"""Most acknowledged leases of a learner that are remembered."""


@dataclass(slots=True, eq=False)
class Lease:
    """Chunks that a learner has, or had until their time was over."""

    items: tuple[int, ...]
    deadline: int
    has_lapsed: bool = False
    """Its chunks are queued again; a late acknowledgement counts for those that no other lease got."""


@dataclass(slots=True, eq=False)
class Item:
    """A chunk that is queued or leased."""

    chunk: Chunk
    at: int
    size: int
    is_queued: bool = True
    deliveries: int = 0
    lease: Lease | None = None
    """The newest one that got it."""


@dataclass(slots=True)
class Learner:
    """One learner's leases."""

    next_number: int = 1
    leases: dict[int, Lease] = field(default_factory=dict)
    """By number, rising."""
    done: "deque[int]" = field(default_factory=lambda: deque(maxlen=MOST_DONE))
    """Numbers of the last leases that were acknowledged."""


class Sequences:
    """One table."""

    def __init__(self, config: TableConfig, encoding: Encoding) -> None:  # noqa: ARG002 as every kind's
        self.config = config
        self.steps = 0
        """That are queued or leased."""
        self._items: dict[int, Item] = {}
        self._queue: list[int] = []
        """A heap of ids; some may be of items that are gone."""
        self._learners: dict[str, Learner] = {}
        self._removed: Counter[str] = Counter()
        self._accepted = self._acknowledged = self._sampled = self._redelivered = self._late = 0
        self._size = self._queued = self._queued_steps = 0
        self._is_full = False

    @staticmethod
    def check(config: TableConfig) -> None:
        """Raise `ValueError`, naming what contradicts what."""
        name = f"table {config.name!r}"
        if config.selector != "fifo":
            raise ValueError(f"{name}: selector {config.selector!r} is not fifo, as that of sequences is")
        if config.remover not in REMOVERS:
            raise ValueError(f"{name}: remover {config.remover!r} is none of {', '.join(REMOVERS)}")
        if config.rate != Rate():
            raise ValueError(
                f"{name}: a rate is for tables of steps; a chunk of sequences is used once anyway"
            )
        if not config.lease_s > 0:
            raise ValueError(f"{name}: lease_s is {config.lease_s}, not above 0")

    def append(self, chunks: Sequence[Chunk], now: int) -> Taken | Wait | Refused:
        """Take all of checked chunks, or none."""
        sizes = [
            chunk.size + BESIDE_BYTES + 64 * len(chunk.columns) + len(chunk.run) + len(chunk.env)
            for chunk in chunks
        ]
        refusal = self._refusal(len(chunks), sum(sizes))
        if refusal is not None:
            return refusal
        for chunk, size in zip(chunks, sizes, strict=True):
            # The bytes of its own: a view would keep a whole request, or change with its array.
            columns = {name: bytes(data) for name, data in chunk.columns.items()}
            self._accepted += 1
            self._items[self._accepted] = item = Item(
                msgspec.structs.replace(chunk, columns=columns), now, size
            )
            self.steps += chunk.steps
            self._size += size
            self._enqueue(self._accepted, item)
        self._is_full = False
        return Taken(items=len(chunks), steps=sum(chunk.steps for chunk in chunks))

    def lease(self, learner: str, steps: int, after: int, now: int) -> LeaseOf | None:
        """The learner's first lease numbered above `after`: one that it did not get, or a new one.

        `after` is the last lease that it got, or `Resumed.next_number - 1`. A new one has as few of the next
        chunks as have at least `steps` steps; `None` where there are not so many.
        """
        owner = self._learner(learner)
        missed = {number: lease for number, lease in owner.leases.items() if number > after}
        for number, lease in missed.items():
            if not lease.has_lapsed:
                return self._served(learner, number, lease, is_new=False)
        if self._queued_steps < max(1, steps):
            return None
        for number in missed:
            # It never got them, so it cannot acknowledge them.
            del owner.leases[number]
        number = max(owner.next_number, after + 1)
        owner.next_number = number + 1
        lease = owner.leases[number] = Lease(
            self._dequeue(max(1, steps)), now + int(self.config.lease_s * 1e9)
        )
        for one in lease.items:
            self._items[one].lease = lease
            self._items[one].deliveries += 1
        self._sampled += len(lease.items)
        return self._served(learner, number, lease, is_new=True)

    def extend(self, learner: str, now: int) -> int:
        """Give all leases of a learner a new deadline; how many it has."""
        leases = [lease for lease in self._learner(learner).leases.values() if not lease.has_lapsed]
        for lease in leases:
            lease.deadline = now + int(self.config.lease_s * 1e9)
        return len(leases)

    def acknowledge(self, learner: str, upto: int) -> int:
        """The items of leases numbered up to `upto` are used; how many are so by this call."""
        owner, used = self._learner(learner), 0
        for number in [number for number in owner.leases if number <= upto]:
            lease = owner.leases.pop(number)
            owner.done.append(number)
            for one in lease.items:
                item = self._items.get(one)
                if item is not None and item.lease is lease:
                    self._forget(one)
                    used += 1
                else:
                    self._late += 1
        self._acknowledged += used
        return used

    def resume(self, learner: str, cursor: int) -> Resumed:
        """Leases up to the cursor are used; later ones are void, and their items come again."""
        owner = self._learner(learner)
        known = owner.next_number
        used = self.acknowledge(learner, cursor)
        again = sum(self._put_back(lease) for lease in owner.leases.values() if not lease.has_lapsed)
        owner.leases.clear()
        owner.next_number = max(known, cursor + 1)
        return Resumed(
            next_number=owner.next_number,
            redelivered=again,
            acknowledged=used,
            gap=sum(number > cursor for number in owner.done),
            is_unknown=cursor >= known,
        )

    def expire(self, now: int) -> int:
        """End the leases whose deadline has passed; how many items come again."""
        over = [
            lease
            for owner in self._learners.values()
            for lease in owner.leases.values()
            if lease.deadline <= now and not lease.has_lapsed
        ]
        for lease in over:
            lease.has_lapsed = True
        return sum(map(self._put_back, over))

    def remove(self, which: ClearRequest) -> int:
        """Remove queued items; how many. What is leased stays."""
        queued = [number for number, item in self._items.items() if item.is_queued]
        matches = matching(which)
        gone = [
            number
            for number in queued[: max(0, len(queued) - which.keep_last)]
            if matches(
                (chunk := self._items[number].chunk).env,
                self._items[number].at,
                (chunk.lineage, chunk.version),
            )
        ]
        self._remove(gone, "cleared")
        self._queue = sorted(number for number, item in self._items.items() if item.is_queued)
        return len(gone)

    def stats(self) -> TableStats:
        """What it holds and did."""
        items = self._items.values()
        envs: Counter[str] = Counter()
        for item in items:
            envs[item.chunk.env] += item.chunk.steps
        times = [item.at for item in items]
        leases = [lease for owner in self._learners.values() for lease in owner.leases.values()]
        return TableStats(
            name=self.config.name,
            kind=self.config.kind,
            items=len(items),
            steps=self.steps,
            bytes=self._size,
            accepted=self._accepted,
            queued=self._queued,
            leased=len(items) - self._queued,
            acknowledged=self._acknowledged,
            removed=dict(self._removed),
            sampled=self._sampled,
            redelivered=self._redelivered,
            late={"ack": self._late},
            leases=sum(not lease.has_lapsed for lease in leases),
            episodes=len({(item.chunk.run, item.chunk.env, item.chunk.episode) for item in items}),
            envs=envs,
            oldest=min(times, default=None),
            newest=max(times, default=None),
            is_full=self._is_full,
            most_items=self.config.capacity.items,
            most_bytes=self.config.capacity.bytes,
        )

    def _learner(self, name: str) -> Learner:
        if name not in self._learners:
            if len(self._learners) >= MOST_LEARNERS:
                idle = next((one for one, owner in self._learners.items() if not owner.leases), None)
                self._learners.pop(idle or "", None)
            self._learners[name] = Learner()
        return self._learners[name]

    def _refusal(self, items: int, size: int) -> Wait | Refused | None:
        """Why a request cannot be taken now; the oldest are removed first where that is the rule."""
        capacity, name = self.config.capacity, self.config.name
        if items > capacity.items or size > capacity.bytes:
            most = f"{capacity.items} chunks and {capacity.bytes} bytes"
            message = f"{items} chunks of {size} bytes; table {name!r} holds {most}: send fewer at once"
            return Refused(reason="too_large", message=message)
        while len(self._items) + items > capacity.items or self._size + size > capacity.bytes:
            if self.config.remover == "refuse" or not self._queued:
                self._is_full = True
                return Wait(reason="full")
            self._remove(self._dequeue(1), "evicted")
        return None

    def _enqueue(self, number: int, item: Item) -> None:
        item.is_queued = True
        heapq.heappush(self._queue, number)
        self._queued += 1
        self._queued_steps += item.chunk.steps

    def _dequeue(self, steps: int) -> tuple[int, ...]:
        """As few of the next ones as have so many steps, which are there."""
        taken: list[int] = []
        while steps > 0:
            number = heapq.heappop(self._queue)
            item = self._items.get(number)
            if item is not None:
                item.is_queued = False
                self._queued -= 1
                self._queued_steps -= item.chunk.steps
                steps -= item.chunk.steps
                taken.append(number)
        return tuple(taken)

    def _put_back(self, lease: Lease) -> int:
        for number in lease.items:
            self._enqueue(number, self._items[number])
        self._redelivered += len(lease.items)
        return len(lease.items)

    def _remove(self, numbers: Sequence[int], reason: Removal) -> None:
        for number in numbers:
            self._forget(number)
        if numbers:
            self._removed[reason] += len(numbers)

    def _forget(self, number: int) -> None:
        item = self._items.pop(number)
        self.steps -= item.chunk.steps
        self._size -= item.size
        self._queued -= item.is_queued
        self._queued_steps -= item.is_queued * item.chunk.steps
        self._is_full = False

    def _served(self, learner: str, number: int, lease: Lease, *, is_new: bool) -> LeaseOf:
        items = tuple(
            LeasedChunk(
                id=ItemId(one, self._items[one].deliveries),
                chunk=self._items[one].chunk,
                is_redelivered=self._items[one].deliveries > 1 or not is_new,
                at=self._items[one].at,
            )
            for one in lease.items
        )
        return LeaseOf(learner=learner, number=number, items=items, deadline=lease.deadline)
