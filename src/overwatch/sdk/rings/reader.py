"""The reading end of one ring.

Rules: what is read stays in the file until it is released, so a reader that dies is followed by one that
reads it again. A record whose CRC or mark is wrong is looked at again, then skipped and counted: nothing
wrong is ever returned. Reads only what is published; works as well when the writer is dead. Must not know
frames.
"""

from collections import deque
from typing import Final

from overwatch.sdk.rings.file import FENCE, RingError, RingFile
from overwatch.sdk.rings.layout import (
    ALIGN,
    FORM,
    HEAD,
    HEADER_BYTES,
    INDEXED,
    LAP,
    LENGTH,
    W_CLOSED,
    W_FOLDED,
    W_FORMS,
    W_PUBLISHED,
    W_RELEASED,
    W_UNFOLDED,
    Kind,
    checksum,
    end_of,
    mark,
    padded,
    seed,
    sequence_of,
    untagged,
)
from overwatch.sdk.rings.stamped import opened
from overwatch.sdk.rings.stretch import LEAST, Stretch, stretch
from overwatch.sdk.rings.writer import Entry

_LOOKS: Final = 3
"""How often a wrong record is looked at before it is given up."""


class RingReader:
    """Reads from where the last reader released."""

    def __init__(self, file: RingFile) -> None:
        self._file = file
        self._released = file.words[W_RELEASED]
        self._read = self._released
        self._held: deque[tuple[int, int]] = deque()
        """Mark and folded count of what is read and not released, oldest first."""
        self._done: set[int] = set()
        self._unfolded = file.words[W_UNFOLDED]
        self._folded_read = self._unfolded
        self._looks = 0
        self.corrupt = 0
        """Records that were published and could not be read."""

    @property
    def published(self) -> int:
        """Records that the writer has published."""
        return sequence_of(self._file.words[W_PUBLISHED])

    @property
    def sequence(self) -> int:
        """Number of the last record that was read."""
        return sequence_of(self._read)

    @property
    def released(self) -> int:
        """Number of the last record that was released."""
        return sequence_of(self._released)

    @property
    def is_closed(self) -> bool:
        """Whether the writer has ended by itself."""
        return bool(self._file.words[W_CLOSED])

    @property
    def unsaid(self) -> int:
        """Updates that were folded and whose record has not been read; lost when the writer is dead."""
        return self._file.words[W_FOLDED] - self._folded_read

    def read(self, limit: int) -> list[tuple[int, Entry]]:
        """At most `limit` published records behind those already read, each with its sequence number."""
        published = self._file.words[W_PUBLISHED]
        if self._read == published:
            return []
        if FENCE is not None:
            FENCE()
        found: list[tuple[int, Entry]] = []
        while len(found) < limit and sequence_of(self._read) < sequence_of(published):
            record = self._next()
            if record is not None:
                found.append(record)
                self._looks = 0
            elif self._looks < _LOOKS:
                self._looks += 1
                break
            else:
                self._skip(published)
        return found

    def look(self, limit: int) -> Stretch | None:
        """Many records behind those already read, at most `limit`, where they are numbers of forms.

        They are read once they are passed.
        """
        published = self._file.words[W_PUBLISHED]
        limit = min(limit, sequence_of(published) - self.sequence)
        if limit < LEAST:
            return None
        if FENCE is not None:
            FENCE()
        return stretch(self._file, self._start(), self._read, limit)

    def pass_stretch(self, found: Stretch) -> int:
        """What was looked at is read; the number of its last record, which releases all of it."""
        self._pass(found.mark, 0)
        self._looks = 0
        return self.sequence

    def _next(self) -> tuple[int, Entry] | None:
        """The record behind the last one, if it is whole."""
        start = self._start()
        length, crc, at_mark, at, index, which = self._head(start)
        end = start + padded(length)
        sequence = sequence_of(self._read) + 1
        if length < HEAD.size or end > self._file.size or at_mark != mark(sequence, end - self._file.data):
            return None
        payload = bytes(self._file.view[start + HEAD.size : start + length])
        kind, form, rows = untagged(which)
        if kind == Kind.STAMPED:
            entry = _unstamped(payload, which, crc)
        elif checksum(payload, seed(at, index, which)) == crc:
            entry = Entry(kind, at, payload, index, form, rows)
        else:
            entry = None
        if entry is None:
            return None
        self._pass(at_mark, index if kind == Kind.FOLDED else 0)
        return sequence, entry

    def _start(self) -> int:
        """Where the next record is."""
        start = self._file.data + end_of(self._read)
        if start + ALIGN > self._file.size or LENGTH.unpack_from(self._file.view, start)[0] == LAP:
            return self._file.data
        return start

    def _head(self, start: int) -> tuple[int, int, int, int, int, int]:
        if start + HEAD.size > self._file.size:
            return (0,) * 6
        length, crc, at_mark, at, index, which = HEAD.unpack_from(self._file.view, start)
        return length, crc, at_mark, at, index, which

    def _pass(self, at_mark: int, folded: int) -> None:
        self._read = at_mark
        self._held.append((at_mark, folded))
        self._folded_read = max(self._folded_read, folded)

    def _skip(self, published: int) -> None:
        """Give up the next record: go on behind it where its head is sound, else behind everything."""
        start = self._start()
        length, _, at_mark, *_ = self._head(start)
        sequence = sequence_of(self._read) + 1
        end = start + padded(length)
        is_sound = HEAD.size <= length and end <= self._file.size
        if is_sound and at_mark == mark(sequence, end - self._file.data):
            self.corrupt += 1
        else:
            at_mark = published
            self.corrupt += sequence_of(published) - sequence + 1
        self._pass(at_mark, 0)
        self._done.add(self.sequence)
        self._looks = 0

    def release(self, sequence: int) -> None:
        """Everything up to and with a record that was read is safe elsewhere: its room is free."""
        before = self._released
        while self._held and sequence_of(self._held[0][0]) <= sequence:
            self._free()
        if self._released != before:
            self._store()

    def done(self, sequence: int) -> None:
        """One record is safe elsewhere; room is free once all before it are."""
        self._done.add(sequence)
        before = self._released
        while self._held and sequence_of(self._held[0][0]) in self._done:
            self._free()
        if self._released != before:
            self._store()

    def _free(self) -> None:
        self._released, folded = self._held.popleft()
        self._done.discard(self.released)
        self._unfolded = max(self._unfolded, folded)

    def _store(self) -> None:
        self._file.words[W_UNFOLDED] = self._unfolded
        if FENCE is not None:
            FENCE()
        self._file.words[W_RELEASED] = self._released

    def form(self, number: int) -> bytes:
        """The form at a place; raises `RingError` where there is none."""
        used = number * ALIGN
        start = HEADER_BYTES + used
        if used + FORM.size <= self._file.words[W_FORMS]:
            length, crc = FORM.unpack_from(self._file.view, start)
            data = bytes(self._file.view[start + FORM.size : start + FORM.size + length])
            if len(data) == length and checksum(data, 0) == crc:
                return data
        raise RingError(f"{self._file.path} has no form {number}")


def _unstamped(payload: bytes, which: int, crc: int) -> Entry | None:
    """An update that carries its moment and index, as one that does not; `None` when it is not whole."""
    _, form, names = untagged(which)
    found = opened(payload, names, which, crc)
    if found is None:
        return None
    if found.index is None:
        return Entry(Kind.UPDATE, found.at, found.numbers, 0, form)
    return Entry(Kind.UPDATE | INDEXED, found.at, found.numbers, found.index, form)
