"""What waits in a spool: two shelves, one order, one request being delivered.

Rules: the oldest request of both shelves is the next; to make room the oldest numbers go first, and facts
only for facts. A request that is being delivered is never dropped: when its place is needed it leaves its
shelf and stays with its taker. Must not know folders or locks.
"""

from collections import Counter
from typing import Final

from overwatch.sdk.exporter.request import Request
from overwatch.sdk.exporter.shelf import Entry, Shelf

FULL: Final = "spool_full"


class Stock:
    """Facts and numbers. Not safe for use from several threads at once."""

    def __init__(self, budget_bytes: int, memory_bytes: int) -> None:
        self._budget = budget_bytes
        self._memory = memory_bytes
        self.facts, self.numbers = Shelf(is_fact=True), Shelf(is_fact=False)
        self.shelves = (self.facts, self.numbers)
        self.taken: Request | None = None
        """The request that is being delivered."""
        self._is_lifted = False
        """It has left its shelf."""

    @property
    def accepted(self) -> int:
        """Records put."""
        return sum(shelf.books.accepted for shelf in self.shelves)

    @property
    def delivered(self) -> int:
        """Records that the collector has."""
        return sum(shelf.books.delivered for shelf in self.shelves)

    @property
    def dropped(self) -> Counter[str]:
        """Records given up, by reason."""
        total: Counter[str] = Counter()
        for shelf in self.shelves:
            total.update(shelf.books.dropped)
        return total

    @property
    def waiting(self) -> int:
        """Records of requests that are not settled."""
        return self.in_memory + sum(shelf.waiting - shelf.held for shelf in self.shelves)

    @property
    def bytes(self) -> int:
        """Bytes of requests on the shelves."""
        return sum(shelf.bytes for shelf in self.shelves)

    @property
    def is_in_memory(self) -> bool:
        """Whether a request is in memory only."""
        return self._is_lifted or any(shelf.memory for shelf in self.shelves)

    @property
    def in_memory(self) -> int:
        """Records of requests that are in memory only."""
        lifted = self.taken.records if self.taken is not None and self._is_lifted else 0
        return lifted + sum(shelf.held for shelf in self.shelves)

    def of(self, request: Request) -> Shelf:
        """The shelf that a request belongs on."""
        return self.facts if request.is_fact else self.numbers

    def oldest(self) -> Request | None:
        """The request to deliver next: the one that is being delivered, while there is one."""
        if self.taken is not None:
            return self.taken
        heads = [head for shelf in self.shelves if (head := shelf.head()) is not None]
        return min(heads, key=lambda head: head.order, default=None)

    def take(self) -> Request | None:
        """The oldest request is being delivered from now on."""
        self.taken = self.oldest()
        return self.taken

    def settle(self, request: Request) -> Shelf | None:
        """The taken request has left the stock; the shelf to account for it, `None` where that was done.

        Raises `ValueError` for a request that was not taken.
        """
        if self.taken is None or self.taken.order != request.order:
            raise ValueError(f"request {request.order} was not taken, or is settled already")
        shelf, is_lifted = self.of(request), self._is_lifted
        self.taken, self._is_lifted = None, False
        if not is_lifted:
            head = shelf.head()
            if head is None or head.order != request.order:
                return None
            shelf.pass_head()
        shelf.is_dirty = True
        return shelf

    def lift(self) -> None:
        """Keep the taken request when its shelf goes."""
        if self.taken is not None and not self._is_lifted:
            self._pass(self.of(self.taken))

    def make_room(self, shelf: Shelf, size: int) -> bool:
        """Drop the oldest until a request of `size` bytes fits on `shelf`; whether it does."""
        if size > self._budget:
            return False
        victims = [self.numbers, self.facts] if shelf.is_fact else [self.numbers]
        while self.bytes + size > self._budget:
            victim = next((shelf for shelf in victims if shelf.head() is not None), None)
            if victim is None:
                return False
            self._pass(victim)
        return True

    def hold(self, shelf: Shelf, entry: Entry) -> None:
        """Keep a request in memory, older ones of it going first; else drop it."""
        size = len(entry.request.body)
        victims = [self.numbers, self.facts] if shelf.is_fact else [self.numbers]
        while size <= self._memory and self._held_bytes() + size > self._memory:
            victim = next((shelf for shelf in victims if shelf.memory), None)
            if victim is None:
                break
            self._forget(victim)
        if self._held_bytes() + size > self._memory:
            self.drop(shelf, entry.request)
        else:
            shelf.hold(entry)

    def drop(self, shelf: Shelf, request: Request) -> None:
        """Count a request as given up for want of room."""
        shelf.books.drop(FULL, request.records)
        shelf.is_dirty = True

    def _held_bytes(self) -> int:
        return sum(shelf.memory_bytes for shelf in self.shelves)

    def _pass(self, shelf: Shelf) -> None:
        """The oldest request of a shelf goes."""
        head = shelf.head()
        if head is not None:
            shelf.pass_head()
            self._account(shelf, head)

    def _forget(self, shelf: Shelf) -> None:
        """The oldest request of a shelf's memory goes."""
        self._account(shelf, shelf.unload().request)

    def _account(self, shelf: Shelf, gone: Request) -> None:
        if self.taken is not None and gone.order == self.taken.order:
            self._is_lifted = True
        else:
            self.drop(shelf, gone)
