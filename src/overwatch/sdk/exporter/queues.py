"""What waits in a spool: two queues of requests, facts and numbers, one order, one request being delivered.

Owns how a request lies in a record, and the counts: accepted = delivered + waiting + dropped, in records, at
any time and over a restart. For that each record states how many records were stored before it, so that a
damaged one is counted by what it held. Rules: the oldest request of both queues is the next; to make room the
oldest numbers go first, and facts only for facts. A request that is being delivered is never dropped: when
its place is needed it leaves its queue and stays with its taker. Must not know folders or locks.
"""

import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

import msgspec

from overwatch.delivery.answer import Outgoing
from overwatch.journal import CursorFile, Log, Place, Reader, Record, Signal
from overwatch.journal.batches import KINDS
from overwatch.journal.cursors import MAX_NOTE_BYTES
from overwatch.journal.scan import LOGS, before, parted

LOST: Final = "spool_lost"
"""Why a record is gone that was damaged on disk, or was in memory when its process died."""
FULL: Final = "spool_full"
_OTHER: Final = "other"
_MOST_REASONS: Final = 32
_LONGEST_REASON: Final = 64
_SIGNALS: Final = {kind: signal for signal, kind in KINDS.items() if signal is not Signal.START}


class Request(Outgoing, frozen=True, kw_only=True):
    """An export request with the trainer's counts of it."""

    order: int
    """1 for the first request of a producer's life, then without gaps; survives a restart of the exporter."""
    is_fact: bool
    """Holds at least one fact; numbers are given up first."""
    records: int
    """Records of the trainer in it; the exporter's own are not counted."""
    last_seq: int
    """`overwatch.seq` of the newest log record in it or before it; 0 before the first."""


class DeliveryStats(msgspec.Struct, array_like=True):
    """What became of a queue's records."""

    accepted: int = 0
    delivered: int = 0
    dropped: dict[str, int] = {}
    """By reason."""

    def drop(self, reason: str, records: int) -> None:
        """Count records as given up; the number of reasons is bounded."""
        if records > 0:
            reason = reason[:_LONGEST_REASON]
            if reason not in self.dropped and len(self.dropped) >= _MOST_REASONS:
                reason = _OTHER
            self.dropped[reason] = self.dropped.get(reason, 0) + records

    @property
    def settled(self) -> int:
        """Records that nothing more will happen to."""
        return self.delivered + sum(self.dropped.values())


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """How far the spool has come in what is put into it."""

    order: int = 0
    last_seq: int = 0
    rings: dict[str, int] = {}

    def after(self, order: int, last_seq: int, rings: Mapping[str, int]) -> "Mark":
        """The mark when this has come too; never falls."""
        merged = dict(self.rings)
        for ring, position in rings.items():
            merged[ring] = max(merged.get(ring, 0), position)
        return Mark(max(self.order, order), max(self.last_seq, last_seq), merged)


class Entry(msgspec.Struct, frozen=True):
    """A request as it was put."""

    request: Request
    rings: Mapping[str, int]
    accepted: int
    """Records that the queue had accepted with it."""


class _Meta(msgspec.Struct, frozen=True, array_like=True):
    """What lies before a request's body in its record."""

    order: int
    records: int
    last_seq: int
    stored: int
    """Records stored in this queue before it."""
    stats: DeliveryStats
    mark: Mark


class _Note(msgspec.Struct, frozen=True, array_like=True):
    """What is kept with the queue's place."""

    passed: int
    stats: DeliveryStats
    mark: Mark


_note: Final = msgspec.msgpack.Decoder(_Note).decode
_meta: Final = msgspec.msgpack.Decoder(_Meta).decode


class _Kept(msgspec.Struct, frozen=True):
    """The oldest request on disk."""

    request: Request
    sequence: int
    size: int


class DiskQueue:
    """Requests in order. Not safe for use from several threads at once."""

    def __init__(self, *, is_fact: bool) -> None:
        self.is_fact = is_fact
        self.name = LOGS[0] if is_fact else LOGS[1]
        self.stats = DeliveryStats(dropped={})
        self.memory: deque[Entry] = deque()
        self.memory_bytes = 0
        self.is_dirty = False
        """The counts or the place have changed since they were saved."""
        self.is_cursor_lost = False
        """The place could not be read: all that was kept is delivered again."""
        self._stored = 0
        self._passed = 0
        self._log: Log | None = None
        self._cursor: CursorFile | None = None
        self._reader: Reader | None = None
        self._kept: _Kept | None = None

    @property
    def waiting(self) -> int:
        """Records of the requests in the queue."""
        return self._stored - self._passed + self.held

    @property
    def held(self) -> int:
        """Records of those that are in memory."""
        return sum(entry.request.records for entry in self.memory)

    @property
    def disk_bytes(self) -> int:
        """Bytes of the records on disk that were not passed."""
        if self._reader is None:
            return 0
        return self._reader.unread_bytes + (self._kept.size if self._kept is not None else 0)

    def restore(self, log: Log, cursor: CursorFile) -> Mark:
        """Go on where the last process stopped, with what it left; its mark."""
        self._log, self._cursor = log, cursor
        note = _decoded_note(cursor.place)
        last = _decoded(log.recovery.last) if log.recovery.last is not None else None
        meta = last[0] if last is not None else None
        if note is not None and cursor.place is not None:
            self._reader = log.reader(cursor.place.position)
            self.stats, self._passed = note.stats, note.passed
        else:
            self._reader = log.reader()
            self.is_cursor_lost = cursor.is_lost or meta is not None
            self._passed = _stored_before(log)
            self.stats = meta.stats if meta is not None else DeliveryStats(dropped={})
        if meta is not None:
            self._stored = meta.stored + meta.records
            self.stats.accepted = max(self.stats.accepted, meta.stats.accepted)
        self._stored = max(self._stored, self._passed)
        self._reconcile()
        marks = [found.mark for found in (note, meta) if found is not None]
        return merged(*marks)

    def begin(self, log: Log, cursor: CursorFile) -> None:
        """Store from now on in this log; what may lie in it is not this queue's."""
        self._log, self._cursor = log, cursor
        self._reader = log.reader(log.next_sequence)
        self.is_dirty = True

    def leave(self) -> None:
        """Give up what is on disk, and the disk with it."""
        self.stats.drop(LOST, self._stored - self._passed)
        self._passed = self._stored
        self.close()

    def close(self) -> None:
        """Let go of the files; what is on disk stays there."""
        if self._reader is not None:
            self._reader.close()
        if self._log is not None:
            self._log.close()
        if self._cursor is not None:
            self._cursor.close()
        self._reader = self._log = self._cursor = self._kept = None

    def store(self, entry: Entry, mark: Mark) -> None:
        """Keep a request on disk. Raises `OSError`; then it is not kept."""
        if self._log is None:
            raise OSError("there is no folder to store in")
        request = entry.request
        stats = DeliveryStats(entry.accepted, self.stats.delivered, self.stats.dropped)
        meta = _Meta(request.order, request.records, request.last_seq, self._stored, stats, mark)
        head = msgspec.msgpack.encode(meta)
        self._log.check()
        self._log.append(KINDS[request.signal], time.time_ns(), before(head), head, request.body)
        self._stored += request.records

    def hold(self, entry: Entry) -> None:
        """Keep a request in memory."""
        self.memory.append(entry)
        self.memory_bytes += len(entry.request.body)

    def unload(self) -> Entry:
        """Take the oldest request out of memory."""
        entry = self.memory.popleft()
        self.memory_bytes -= len(entry.request.body)
        return entry

    def head(self) -> Request | None:
        """The oldest request; what cannot be read is counted and passed over."""
        if self._kept is None:
            self._kept = self._load()
        if self._kept is not None:
            return self._kept.request
        return self.memory[0].request if self.memory else None

    def pass_head(self) -> None:
        """The oldest request is none of the queue's any more; the caller accounts for it."""
        self.is_dirty = True
        if self._kept is None:
            self.unload()
        else:
            self._passed += self._kept.request.records
            self._kept = None

    def save(self, mark: Mark) -> None:
        """Keep counts and place, and remove the files that were passed. Raises `OSError`."""
        if self._log is None or self._cursor is None or self._reader is None:
            return
        position = self._kept.sequence if self._kept is not None else self._reader.position
        may_drop = self._log.can_drop(position)
        note = msgspec.msgpack.encode(_Note(self._passed, self.stats, mark))
        if len(note) > MAX_NOTE_BYTES:
            note = msgspec.msgpack.encode(_Note(self._passed, self.stats, Mark(mark.order, mark.last_seq)))
        self._cursor.save(Place(position=position, note=note), sync=may_drop)
        self.is_dirty = False
        if may_drop:
            self._log.drop(position)

    def _load(self) -> _Kept | None:
        """The next whole request on disk."""
        if self._reader is None:
            return None
        before = self._reader.unread_bytes
        while (record := self._reader.next()) is not None:
            found = _decoded(record)
            if found is None or found[0].stored < self._passed:
                continue
            meta, body = found
            self._miss(meta.stored - self._passed)
            request = Request(
                order=meta.order, signal=_SIGNALS[record.kind], body=body, is_fact=self.is_fact,
                records=meta.records, last_seq=meta.last_seq,
            )  # fmt: skip
            return _Kept(request, record.sequence, before - self._reader.unread_bytes)
        self._miss(self._stored - self._passed)
        return None

    def _miss(self, records: int) -> None:
        if records > 0:
            self.stats.drop(LOST, records)
            self._passed += records
            self._stored = max(self._stored, self._passed)
            self.is_dirty = True

    def _reconcile(self) -> None:
        """Make the counts whole again: what is not known to have happened to a record is its loss."""
        waiting = self._stored - self._passed
        if self.is_cursor_lost:
            self.stats.delivered = max(self.stats.accepted - sum(self.stats.dropped.values()) - waiting, 0)
        missing = self.stats.accepted - self.stats.settled - waiting
        self.stats.drop(LOST, missing)
        self.stats.accepted -= min(missing, 0)
        self.is_dirty = True


def merged(*marks: Mark) -> Mark:
    """The highest of several marks."""
    result = Mark()
    for mark in marks:
        result = result.after(mark.order, mark.last_seq, mark.rings)
    return result


def _decoded(record: Record) -> tuple[_Meta, bytes] | None:
    """What a record of the spool holds, `None` for one that is not the spool's."""
    found = parted(record.payload)
    if record.kind not in _SIGNALS or found is None:
        return None
    head, start = found
    try:
        meta = _meta(head)
    except msgspec.MsgspecError:
        return None
    return meta, record.payload[start:]


def _decoded_note(place: Place | None) -> _Note | None:
    if place is None:
        return None
    try:
        return _note(place.note)
    except msgspec.MsgspecError:
        return None


def _stored_before(log: Log) -> int:
    """Records stored before the oldest that is kept."""
    return next((found[0].stored for record in log.read() if (found := _decoded(record))), 0)


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
        return sum(queue.disk_bytes + queue.memory_bytes for queue in self.queues)

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
        while self.bytes + size > self._budget:
            victim = next((victim for victim in self._victims(queue) if victim.head() is not None), None)
            if victim is None:
                return False
            self._pass(victim)
        return True

    def hold(self, queue: DiskQueue, entry: Entry) -> None:
        """Keep a request in memory, older ones of it going first; else drop it."""
        size = len(entry.request.body)
        while size <= self._memory and self._held_bytes() + size > self._memory:
            victim = next((victim for victim in self._victims(queue) if victim.memory), None)
            if victim is None:
                break
            self._account(victim, victim.unload().request)
        if self._held_bytes() + size > self._memory:
            self.drop(queue, entry.request)
        else:
            queue.hold(entry)

    def drop(self, queue: DiskQueue, request: Request) -> None:
        """Count a request as given up for want of room."""
        queue.stats.drop(FULL, request.records)
        queue.is_dirty = True

    def _victims(self, queue: DiskQueue) -> tuple[DiskQueue, ...]:
        """Whose oldest go for a request of a queue, the first ones first."""
        return (self.numbers, self.facts) if queue.is_fact else (self.numbers,)

    def _held_bytes(self) -> int:
        return sum(queue.memory_bytes for queue in self.queues)

    def _pass(self, queue: DiskQueue) -> None:
        """The oldest request of a queue goes."""
        head = queue.head()
        if head is not None:
            queue.pass_head()
            self._account(queue, head)

    def _account(self, queue: DiskQueue, gone: Request) -> None:
        if self.taken is not None and gone.order == self.taken.order:
            self._is_lifted = True
        else:
            self.drop(queue, gone)
