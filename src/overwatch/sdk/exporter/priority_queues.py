"""What waits in a spool: two queues, one order, one request being delivered.

Rules: the oldest request of both queues is the next; to make room the oldest numbers go first, and facts
only for facts. A request that is being delivered is never dropped: when its place is needed it leaves its
queue and stays with its taker. Must not know folders or locks.
"""

from collections import Counter
from typing import Final

from overwatch.sdk.exporter.disk_queue import DiskQueue, Entry
from overwatch.sdk.exporter.request import Request

FULL: Final = "spool_full"


class PriorityQueues:
    """Facts and numbers. Not safe for use from several threads at once."""

    def __init__(self, budget_bytes: int, memory_bytes: int) -> None:
        self._budget = budget_bytes
        self._memory = memory_bytes
        self.facts, self.numbers = DiskQueue(is_fact=True), DiskQueue(is_fact=False)
        self.queues = (self.facts, self.numbers)
        self.taken: Request | None = None
        """The request that is being delivered."""
        self._is_lifted = False
        """It has left its queue."""

    @property
    def accepted(self) -> int:
        """Records put."""
        return sum(queue.stats.accepted for queue in self.queues)

    @property
    def delivered(self) -> int:
        """Records that the collector has."""
        return sum(queue.stats.delivered for queue in self.queues)

    @property
    def dropped(self) -> Counter[str]:
        """Records given up, by reason."""
        total: Counter[str] = Counter()
        for queue in self.queues:
            total.update(queue.stats.dropped)
        return total

    @property
    def waiting(self) -> int:
        """Records of requests that are not settled."""
        return self.in_memory + sum(queue.waiting - queue.held for queue in self.queues)

    @property
    def bytes(self) -> int:
        """Bytes of requests on the queues."""
        return sum(queue.bytes for queue in self.queues)

    @property
    def is_in_memory(self) -> bool:
        """Whether a request is in memory only."""
        return self._is_lifted or any(queue.memory for queue in self.queues)

    @property
    def in_memory(self) -> int:
        """Records of requests that are in memory only."""
        lifted = self.taken.records if self.taken is not None and self._is_lifted else 0
        return lifted + sum(queue.held for queue in self.queues)

    def of(self, request: Request) -> DiskQueue:
        """The queue that a request belongs in."""
        return self.facts if request.is_fact else self.numbers

    def oldest(self) -> Request | None:
        """The request to deliver next: the one that is being delivered, while there is one."""
        if self.taken is not None:
            return self.taken
        heads = [head for queue in self.queues if (head := queue.head()) is not None]
        return min(heads, key=lambda head: head.order, default=None)

    def take(self) -> Request | None:
        """The oldest request is being delivered from now on."""
        self.taken = self.oldest()
        return self.taken

    def settle(self, request: Request) -> DiskQueue | None:
        """The taken request has left the queues; the queue to account for it, `None` where that was done.

        Raises `ValueError` for a request that was not taken.
        """
        if self.taken is None or self.taken.order != request.order:
            raise ValueError(f"request {request.order} was not taken, or is settled already")
        queue, is_lifted = self.of(request), self._is_lifted
        self.taken, self._is_lifted = None, False
        if not is_lifted:
            head = queue.head()
            if head is None or head.order != request.order:
                return None
            queue.pass_head()
        queue.is_dirty = True
        return queue

    def lift(self) -> None:
        """Keep the taken request when its queue goes."""
        if self.taken is not None and not self._is_lifted:
            self._pass(self.of(self.taken))

    def make_room(self, queue: DiskQueue, size: int) -> bool:
        """Drop the oldest until a request of `size` bytes fits in `queue`; whether it does."""
        if size > self._budget:
            return False
        victims = [self.numbers, self.facts] if queue.is_fact else [self.numbers]
        while self.bytes + size > self._budget:
            victim = next((queue for queue in victims if queue.head() is not None), None)
            if victim is None:
                return False
            self._pass(victim)
        return True

    def hold(self, queue: DiskQueue, entry: Entry) -> None:
        """Keep a request in memory, older ones of it going first; else drop it."""
        size = len(entry.request.body)
        victims = [self.numbers, self.facts] if queue.is_fact else [self.numbers]
        while size <= self._memory and self._held_bytes() + size > self._memory:
            victim = next((queue for queue in victims if queue.memory), None)
            if victim is None:
                break
            self._forget(victim)
        if self._held_bytes() + size > self._memory:
            self.drop(queue, entry.request)
        else:
            queue.hold(entry)

    def drop(self, queue: DiskQueue, request: Request) -> None:
        """Count a request as given up for want of room."""
        queue.stats.drop(FULL, request.records)
        queue.is_dirty = True

    def _held_bytes(self) -> int:
        return sum(queue.memory_bytes for queue in self.queues)

    def _pass(self, queue: DiskQueue) -> None:
        """The oldest request of a queue goes."""
        head = queue.head()
        if head is not None:
            queue.pass_head()
            self._account(queue, head)

    def _forget(self, queue: DiskQueue) -> None:
        """The oldest request of a queue's memory goes."""
        self._account(queue, queue.unload().request)

    def _account(self, queue: DiskQueue, gone: Request) -> None:
        if self.taken is not None and gone.order == self.taken.order:
            self._is_lifted = True
        else:
            self.drop(queue, gone)
