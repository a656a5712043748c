"""The writing end of one ring.

Rules: nothing here waits or makes a system call. Whoever takes the token out of `token` may write, and puts
it back; taking it is one operation on a list, so threads and signal handlers exclude each other without a
lock that could wait. The truth is the published mark in the file: after an interruption `resync` reads it
back, and a record is either published or was never there. A full ring refuses. Must not know frames.
"""

from typing import Final

import msgspec

from overwatch.sdk.rings.file import FENCE, RingFile
from overwatch.sdk.rings.layout import (
    ALIGN,
    FORM,
    HEAD,
    HEADER_BYTES,
    LAP,
    LENGTH,
    ONE,
    REASONS,
    W_CLOSED,
    W_DROPPED,
    W_FORMS,
    W_PUBLISHED,
    W_RELEASED,
    checksum,
    end_of,
    padded,
    seed,
    sequence_of,
    tag,
)

_REASON: Final = {reason: W_DROPPED + place for place, reason in enumerate(REASONS)}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One record as it goes into a ring."""

    kind: int
    at: int
    """Unix nanoseconds on the trainer's clock."""
    payload: bytes
    index: int = 0
    form: int = 0
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes in the ring."""
        return padded(HEAD.size + len(self.payload))


class RingWriter:
    """Appends records. Every method but the constructor needs the token."""

    __slots__ = ("closed", "data", "file", "largest", "limit", "off", "token", "view", "word", "words")

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

    def append(self, entry: Entry) -> bool:
        """Write and publish a record; False when there is no room now."""
        payload, size = entry.payload, entry.size
        off = self.off
        if off + size > self.limit:
            if not self.make_room(size):
                return False
            off = self.off
        word = self.word + ONE + size // ALIGN
        which = tag(entry.kind, entry.form, entry.rows)
        crc = checksum(payload, seed(entry.at, entry.index, which))
        length = HEAD.size + len(payload)
        HEAD.pack_into(self.view, off, length, crc, word, entry.at, entry.index, which)
        self.view[off + HEAD.size : off + length] = payload
        self.publish(word, size)
        return True

    def publish(self, word: int, size: int) -> None:
        """Let the reader see what was written at `off`."""
        if FENCE is not None:
            FENCE()
        self.words[W_PUBLISHED] = word
        self.word = word
        self.off += size

    def make_room(self, size: int) -> bool:
        """See how far the reader is; may go to the next lap. Whether `size` bytes are free at `off`."""
        released = self.words[W_RELEASED]
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
        self.words[_REASON.get(reason, _REASON["other"])] += count

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
        """Say that nothing follows, and unmap. The token stays taken."""
        self.words[W_CLOSED] = 1
        self.closed = True
        self.limit = 0
        self.file.close()


def dropped(file: RingFile) -> dict[str, int]:
    """What was not written, by reason, as the header says; either side may ask."""
    counts = {reason: file.words[W_DROPPED + place] for place, reason in enumerate(REASONS)}
    return {reason: count for reason, count in counts.items() if count}
