"""The writing end of one ring, and why it is safe: one producer, one consumer, no lock that waits.

The writer is a trainer, which must not wait, make a system call or raise; the reader is another process. They
share a mapped file (`file`, `layout`) and nothing else. A record is written in four steps:

1. **Take the token**, a list with one element: `del token[0]`. Whoever gets `IndexError` leaves its record
   aside (`producer`), and the holder of the token writes it later.
2. **Find room.** `off` is where the next record goes and `limit` up to where it is known to be free. Only
   where that is not enough is the reader's mark read again. A full ring refuses at once.
3. **Write** checksum, head and payload behind what is published. No reader looks there.
4. **Publish**: one aligned 64-bit store of the mark, sequence number and end of the record in one word.

What each step rests on:

**Threads.** `del token[0]` is one bytecode, so under the GIL one thread succeeds. In a free-threaded build
list operations take the list's own lock: one thread succeeds there too, and what the last holder stored
before its `append` is seen by the next. The other steps are the holder's alone. `threading.Lock` would not
do: a signal between `acquire()` and the `try` behind it would leave it locked for ever.

**Signals.** CPython runs signal handlers in the main thread, at the start of a function, at a backward jump
and behind a call. Never between `del token[0]` and the `try` behind it, where there is none of these; and one
that comes behind `token.append(None)` finds the token back. A handler that emits finds the token taken, as
another thread does, and leaves its record aside. A handler that raises (KeyboardInterrupt) ends the call
wherever it is: `resync` then goes on from the mark in the file, so the record is either published or was
never there. The attributes `word` and `off` are copies of that mark, no more. What may run user code
(names, encoding) comes before the token is taken. (A trace function written in Python runs between any two
lines. Where it is interrupted there, the token may be lost: records are then counted as `contended`.)

**Death.** `kill -9` at any moment leaves the file as the last store left it. The mark is stored last, so what
it covers is whole, and what lies behind it is not read. A store of eight aligned bytes is one instruction
(`memoryview` copies a constant eight bytes), so a mark is old or new, never a mix.

**Memory order.** A record must be visible before its mark. x86 keeps the order of stores and that of loads.
On other processors (ARM) `FENCE` stands between record and mark, and in the reader between mark and record.
The reader still checks each record: its head repeats the mark, which no record of an earlier lap has, and the
checksum covers tag and payload. A record that fails is looked at again, then skipped and counted.

**The other direction.** The reader frees room by its own mark in the same way, once it has copied a record. A
stale mark makes the ring look fuller than it is, which is safe.

**Laps.** A record is never split. Where the rest of the file is too small, `LAP` in place of a length sends
the reader to the start; it is written behind what is published, like a record.

**Forks.** A child has the same mapping and would be a second writer. A hook that runs before any of its code
takes the token for good (`RingSet.abandon`). A fork that runs no Python hook must not emit.

Rules: nothing here waits or makes a system call. Must not know frames.
"""

import functools
import struct
from collections.abc import Callable
from zlib import crc32

import msgspec

from overwatch.sdk.rings.file import (
    ALIGN,
    FENCE,
    FORM,
    HEAD,
    HEADER_BYTES,
    LAP,
    LENGTH,
    ONE,
    REASONS,
    W_DROPPED,
    W_FORMS,
    W_PUBLISHED,
    W_RELEASED,
    WHOLE,
    RingFile,
    checksum,
    end_of,
    padded,
    sequence_of,
)


@functools.lru_cache(maxsize=256)
def _shape(count: int) -> tuple[Callable[..., None], Callable[[bytes, int], int], int, int, int]:
    """What writes a head and so many bytes behind it, what sums those, and their length, size and step.

    A trainer's records have a few lengths, and arithmetic costs Python more than a look into a table.
    """
    length = HEAD.size + count
    size = padded(length)
    pack = struct.Struct(f"{HEAD.format}{count}s").pack_into
    return pack, crc32 if count <= WHOLE else checksum, length, size, ONE + size // ALIGN


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One record as it goes into a ring."""

    tag: int
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes in the ring."""
        return padded(HEAD.size + len(self.payload))


class RingWriter:
    """Appends records. Every method but the constructor needs the token."""

    def __init__(self, file: RingFile, share: int) -> None:
        self.file = file
        self.view = file.view
        self.words = file.words
        self.data = file.data
        self.largest = (file.size - self.data) // share
        """Bytes of the largest record that is taken."""
        self.token: list[None] = [None]
        self.closed = False
        self.word = 0
        """Mark of the last record."""
        self.off = 0
        """Where the next record goes, from the start of the file."""
        self.limit = 0
        """Up to where it is known to be free; 0 makes the next record look."""
        self.seen = 0
        """The reader's mark when it was last read."""
        self.resync()

    @property
    def published(self) -> int:
        """Records written so far."""
        return sequence_of(self.words[W_PUBLISHED])

    def resync(self) -> None:
        """Go on behind what is published."""
        self.word = self.words[W_PUBLISHED]
        self.off = self.data + end_of(self.word)
        self.limit = 0

    def append(self, tag: int, payload: bytes) -> bool:
        """Write and publish a record; False where there is no room now or never."""
        write, total, length, size, step = _shape(len(payload))
        off = self.off
        end = off + size
        if end > self.limit:
            if not self.make_room(size):
                return False
            off = self.off
            end = off + size
        word = self.word + step
        write(self.view, off, length, total(payload, tag), word, tag, payload)
        # The order that everything hangs on: the record is whole before its mark is stored, and the mark is
        # in the file before the copies of it move.
        if FENCE is not None:
            FENCE()
        self.words[W_PUBLISHED] = word
        self.word = word
        self.off = end
        return True

    def make_room(self, size: int) -> bool:
        """See how far the reader is; may go to the next lap. Whether `size` bytes are free at `off`."""
        if self.closed or size > self.largest:
            return False
        released = self.seen = self.words[W_RELEASED]
        end, behind = self.file.size, self.data + end_of(released)
        is_empty = sequence_of(released) == sequence_of(self.word)
        if behind > self.off:
            self.limit = behind
        elif behind == self.off and not is_empty:
            self.limit = 0
        else:
            self.limit = end
            if self.off + size > end and size <= behind - self.data:
                self._lap(behind)
        return self.off + size <= self.limit

    def _lap(self, behind: int) -> None:
        if self.off < self.file.size:
            LENGTH.pack_into(self.view, self.off, LAP)
        self.word = sequence_of(self.word) * ONE
        self.off, self.limit = self.data, behind

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records that are not written."""
        self.words[W_DROPPED + REASONS.index(reason if reason in REASONS else "other")] += count

    def add_form(self, data: bytes) -> int | None:
        """Keep a form where the reader finds it for ever; its place is its number, `None` without room."""
        used = self.words[W_FORMS]
        start = HEADER_BYTES + used
        size = padded(FORM.size + len(data))
        if start + size > self.data:
            return None
        FORM.pack_into(self.view, start, len(data), checksum(data, 0))
        self.view[start + FORM.size : start + FORM.size + len(data)] = data
        if FENCE is not None:
            FENCE()
        self.words[W_FORMS] = used + size
        return used // ALIGN

    def close(self) -> None:
        """Take nothing more, and unmap. The token stays taken."""
        self.closed = True
        self.limit = 0
        self.file.close()
