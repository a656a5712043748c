"""What waits to be sent: bounded, in order, numbers giving way to facts.

Rules: a record that does not fit pushes out the oldest numbers; when only facts wait, it is dropped itself.
Every record is either waiting, delivered or dropped under a reason. Safe from any thread. Must not know the
network.
"""

import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from opentelemetry.sdk._logs import ReadableLogRecord

MAX_BATCH: Final = 512
MAX_BATCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """What may wait while the collector is away."""

    waiting_bytes: int = 64 << 20
    """Bytes of records, as the trainer framed them."""
    waiting_records: int = 100_000
    """Records of any size."""

    def __post_init__(self) -> None:
        if self.waiting_bytes < 1 or self.waiting_records < 1:
            raise ValueError(f"a queue holds at least one byte and one record: {self}")


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One record on its way."""

    record: ReadableLogRecord
    order: int
    """Its sequence number."""
    size: int
    fact: bool
    counted: bool
    """Handed in by the trainer, so part of its account; the exporter's own records are not."""


class SendQueue:
    """Records in order of their numbers."""

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self._limits = limits or QueueLimits()
        self._changed = threading.Condition()
        self._facts: deque[Waiting] = deque()
        self._numbers: deque[Waiting] = deque()
        self._bytes = 0
        self._flying: Sequence[Waiting] = ()
        self._closed = False
        self.delivered = 0
        """Counted records that the collector took."""
        self.dropped: Counter[str] = Counter()
        """Counted records that were given up, by reason."""

    def put(self, item: Waiting) -> None:
        """Let a record wait; may drop older numbers or, at the limit of facts, the record."""
        with self._changed:
            while self._is_over(item) and self._numbers:
                self._drop(self._pop(self._numbers), "exporter_full")
            if self._is_over(item):
                self._drop(item, "exporter_full")
                return
            (self._facts if item.fact else self._numbers).append(item)
            self._bytes += item.size
            self._changed.notify_all()

    def take(self, timeout_s: float) -> Sequence[Waiting]:
        """The next batch in order, waiting up to `timeout_s` for the first record; then it is in flight."""
        with self._changed:
            self._changed.wait_for(lambda: self._facts or self._numbers or self._closed, timeout_s)
            batch: list[Waiting] = []
            size = 0
            while len(batch) < MAX_BATCH and (source := self._next()) is not None:
                size += source[0].size
                if batch and size > MAX_BATCH_BYTES:
                    break
                batch.append(self._pop(source))
            self._flying = batch
            return batch

    def landed(self, batch: Sequence[Waiting], rejected: int = 0) -> None:
        """The collector took a batch, but for `rejected` of its records."""
        with self._changed:
            counted = sum(item.counted for item in batch)
            refused = min(rejected, counted)
            self._flying = ()
            self.delivered += counted - refused
            if refused:
                self.dropped["rejected"] += refused
            self._changed.notify_all()

    def lost(self, batch: Sequence[Waiting], reason: str) -> None:
        """A batch is given up."""
        with self._changed:
            self._flying = ()
            for item in batch:
                self._drop(item, reason)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will be put; readers stop waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def pending(self) -> int:
        """Counted records that wait or are in flight."""
        with self._changed:
            return sum(item.counted for item in (*self._flying, *self._facts, *self._numbers))

    @property
    def is_over(self) -> bool:
        """Closed, and nothing waits."""
        with self._changed:
            return self._closed and not self._facts and not self._numbers

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until everything has landed or is lost; whether it has."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._facts or self._numbers or self._flying), max(timeout_s, 0.0)
            )

    def _next(self) -> deque[Waiting] | None:
        """Where the oldest record waits."""
        if self._facts and self._numbers:
            return min(self._facts, self._numbers, key=lambda queue: queue[0].order)
        return self._facts or self._numbers or None

    def _pop(self, source: deque[Waiting]) -> Waiting:
        item = source.popleft()
        self._bytes -= item.size
        return item

    def _is_over(self, item: Waiting) -> bool:
        full = len(self._facts) + len(self._numbers) >= self._limits.waiting_records
        return full or self._bytes + item.size > self._limits.waiting_bytes

    def _drop(self, item: Waiting, reason: str) -> None:
        if item.counted:
            self.dropped[reason] += 1
