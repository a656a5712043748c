"""What is on its way to one target: batches in turn, and which of them are settled.

Rules: batches of one producer go one after the other, in order; those of others beside them. Batches of one
signal that wait together go as one request: requests of OTLP laid end to end are one request, so nothing is
decoded for it. One that is refused as a whole is tried again in its parts. A batch is settled once it was
delivered or given up, and the place in the journal is before the first that is not. Must not know targets.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from overwatch.delivery.answer import Outgoing
from overwatch.delivery.sender import REFUSED
from overwatch.journal import Batch, CursorFile, Place

MOST_WAITING: Final = 128
"""Batches in memory; the others wait in the journal."""
MOST_BYTES: Final = 8 << 20
"""Bytes in memory, one batch more or less."""
JOINED_BYTES: Final = 1 << 20
"""Bytes of a request that is made of several batches; a quarter of what servers take by default."""
_MOST_SPANS: Final = 200
_FIRST_FIELD: Final = 0x0A
"""Tag of field 1, length-delimited: the resource's items in a request, and the resource in those."""


class Shipment(Outgoing, frozen=True, kw_only=True):
    """A batch of the journal on its way."""

    sequence: int
    line: bytes
    """Shipments of one line keep their order."""
    parts: "tuple[Shipment, ...]" = ()
    """What it is made of, where it is made of several."""
    is_alone: bool = False
    """Is not joined to others: it was part of something that was refused."""

    @property
    def sequences(self) -> tuple[int, ...]:
        """Of all batches in it."""
        return tuple(part.sequence for part in self.parts) or (self.sequence,)


def shipment(batch: Batch) -> Shipment:
    """A batch, in the line of its producer."""
    return Shipment(signal=batch.signal, body=batch.body, sequence=batch.sequence, line=producer(batch.body))


def producer(body: bytes) -> bytes:
    """The resource of a request that holds one; nothing for a request of several, which share a line."""
    start, end = _field(body, 0)
    if end != len(body):
        return b""
    resource_start, resource_end = _field(body, start)
    return body[resource_start:resource_end]


def _field(data: bytes, at: int) -> tuple[int, int]:
    """Where the value of a field 1 at `at` begins and ends; nowhere when there is none."""
    if at >= len(data) or data[at] != _FIRST_FIELD:
        return 0, 0
    length = shift = 0
    for position in range(at + 1, min(at + 6, len(data))):
        length |= (data[position] & 0x7F) << shift
        shift += 7
        if data[position] < 0x80:
            return position + 1, min(position + 1 + length, len(data))
    return 0, 0


Settled = Callable[[Shipment, int, str | None], None]
"""Called at a shipment's end: how many of its records the target did not keep, why it was given up."""


class Turns:
    """A source of shipments for any number of senders; safe from any thread."""

    def __init__(self, settled: Settled, most: int | None = None) -> None:
        """`most` is how many may be in here, where that is less than usual."""
        self._settled = settled
        self._most = MOST_WAITING if most is None else min(most, MOST_WAITING)
        self._lines: dict[bytes, deque[Shipment]] = {}
        self._taken: dict[bytes, int] = {}
        """How many shipments at the head of a line are on their way."""
        self._ready: deque[bytes] = deque()
        """Lines whose first shipment no sender has taken, in the order of their turn."""
        self._count = 0
        self._bytes = 0
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._count

    @property
    def num_bytes(self) -> int:
        """Of the bodies of all of them."""
        return self._bytes

    @property
    def lines(self) -> int:
        """How many senders could be at work now."""
        return len(self._lines)

    def put(self, shipment: Shipment) -> None:
        """One more; it is for the caller to ask for room before."""
        with self._changed:
            line = self._lines.get(shipment.line)
            if line is None:
                self._lines[shipment.line] = deque((shipment,))
                self._ready.append(shipment.line)
            else:
                line.append(shipment)
            self._count += 1
            self._bytes += len(shipment.body)
            self._changed.notify_all()

    def wait_room(self, timeout_s: float) -> bool:
        """Wait until there is room for more; whether there is."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._count < self._most and self._bytes < MOST_BYTES, timeout_s
            )

    def take(self, timeout_s: float) -> Shipment | None:
        """The first shipments of the line whose turn it is, joined."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready, timeout_s):
                return None
            name = self._ready.popleft()
            parts = _head(self._lines[name])
            self._taken[name] = len(parts)
            return _joined(parts)

    def landed(self, request: Shipment, rejected: int) -> None:
        """The target has it, but for so many records."""
        self._settle(request, rejected, None)

    def lost(self, request: Shipment, reason: str) -> None:
        """It is given up."""
        self._settle(request, 0, reason)

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until all shipments are settled; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout_s)

    def clear(self, *, taken: bool = False) -> list[Shipment]:
        """Take out all that no sender has taken; with `taken`, once all senders ended, all that is left."""
        with self._changed:
            out: list[Shipment] = []
            self._ready.clear()
            if taken:
                self._taken.clear()
            for name, line in list(self._lines.items()):
                flying = [line.popleft() for _ in range(self._taken.get(name, 0))]
                out += line
                self._lines[name] = deque(flying)
                if not flying:
                    del self._lines[name]
            self._count -= len(out)
            self._bytes -= sum(len(shipment.body) for shipment in out)
            self._changed.notify_all()
            return out

    def _settle(self, request: Shipment, rejected: int, reason: str | None) -> None:
        if request.parts and reason is not None and reason.startswith(REFUSED):
            self._put_back(request.line)
            return
        try:
            self._settled(request, rejected, reason)
        finally:
            with self._changed:
                line = self._lines[request.line]
                for _ in range(self._taken.pop(request.line)):
                    line.popleft()
                    self._count -= 1
                self._bytes -= len(request.body)
                if line:
                    self._ready.append(request.line)
                else:
                    del self._lines[request.line]
                self._changed.notify_all()

    def _put_back(self, name: bytes) -> None:
        """Who is to blame shows when each is tried for itself."""
        with self._changed:
            line = self._lines[name]
            parts = [line.popleft() for _ in range(self._taken.pop(name))]
            line.extendleft(msgspec.structs.replace(part, is_alone=True) for part in reversed(parts))
            self._ready.append(name)
            self._changed.notify_all()


def _head(line: deque[Shipment]) -> tuple[Shipment, ...]:
    """The shipments at the head of a line that go together."""
    first = line[0]
    count, size = 1, len(first.body)
    for following in islice(line, 1, None):
        size += len(following.body)
        if (
            first.is_alone
            or following.is_alone
            or following.signal is not first.signal
            or size > JOINED_BYTES
        ):
            break
        count += 1
    return tuple(islice(line, count))


def _joined(parts: tuple[Shipment, ...]) -> Shipment:
    """Shipments as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return msgspec.structs.replace(first, body=b"".join(part.body for part in parts), parts=parts)


class _Note(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What is kept with the place: spans of batches after it that are settled, as offsets from it."""

    spans: tuple[tuple[int, int], ...] = ()


_note: Final = msgspec.msgpack.Decoder(_Note).decode


class Passed:
    """Which batches are settled; safe from any thread."""

    def __init__(self, kept: CursorFile | None, position: int) -> None:
        self._kept = kept
        place = None if kept is None else kept.place
        self._lock = threading.Lock()
        self._open: dict[int, None] = {}
        """Batches that are read and not settled, in order."""
        self._read = position
        self._ahead: set[int] = set() if place is None else set(_noted(place))
        """Settled batches after the place."""

    @property
    def position(self) -> int:
        """The first batch that is not settled."""
        with self._lock:
            return self._position()

    def begin(self, sequence: int) -> bool:
        """A batch was read; whether it is still to be settled, by `settle`."""
        with self._lock:
            self._read = sequence + 1
            if sequence in self._ahead:
                return False
            self._open[sequence] = None
            return True

    def settle(self, sequences: Iterable[int]) -> None:
        """Batches that were read were delivered or given up."""
        with self._lock:
            for sequence in sequences:
                self._open.pop(sequence, None)
                self._ahead.add(sequence)
            position = self._position()
            if min(self._ahead, default=position) < position:
                self._ahead = {sequence for sequence in self._ahead if sequence >= position}

    def skip_to(self, position: int) -> None:
        """No batch before `position` is left to read."""
        with self._lock:
            self._read = max(self._read, position)

    def save(self, *, sync: bool = False) -> None:
        """Keep the place where it outlives the process. Raises `OSError`."""
        with self._lock:
            if self._kept is not None:
                position = self._position()
                spans = tuple(_spans(sorted(self._ahead), position))[:_MOST_SPANS]
                note = msgspec.msgpack.encode(_Note(spans=spans))
                self._kept.save(Place(position=position, note=note), sync=sync)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._kept is not None:
                self._kept.close()

    def _position(self) -> int:
        return next(iter(self._open), self._read)


def _spans(sequences: list[int], position: int) -> Iterator[tuple[int, int]]:
    """Runs of numbers as (offset from `position`, length)."""
    start = length = 0
    for sequence in sequences:
        if length and sequence == start + length:
            length += 1
            continue
        if length:
            yield start - position, length
        start, length = sequence, 1
    if length:
        yield start - position, length


def _noted(place: Place) -> Iterator[int]:
    """The settled batches after a place; what cannot be read is sent again."""
    try:
        note = _note(place.note)
    except msgspec.DecodeError:
        return
    for offset, length in note.spans:
        yield from range(place.position + offset, place.position + offset + min(length, 1 << 20))
