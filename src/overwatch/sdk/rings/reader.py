"""The reading end of one ring; `writer` says on what it relies.

Rules: what is read stays in the file until it is released, so a reader that dies is followed by one that
reads it again. A record whose checksum or mark is wrong is looked at again, then skipped and counted: nothing
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
    LAP,
    LENGTH,
    W_CLOSED,
    W_FOLDED,
    W_FORMS,
    W_PUBLISHED,
    W_RELEASED,
    W_UNFOLDED,
    checksum,
    end_of,
    mark,
    padded,
    sequence_of,
)
from overwatch.sdk.rings.writer import Entry

_LOOKS: Final = 3
"""How often a wrong record is looked at before it is given up."""


class RingReader:
    """Reads from where the last reader released."""

    def __init__(self, file: RingFile) -> None:
        self._file = file
        self._released = file.words[W_RELEASED]
        self._read = self._released
        self._held: deque[int] = deque()
        """Marks of what is read and not released, oldest first."""
        self._looks = 0
        self._unfolded = file.words[W_UNFOLDED]
        """Of the folded updates, those that were read."""
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
        return self._file.words[W_FOLDED] - self._unfolded

    def unfold(self, upto: int) -> None:
        """A record was read that has all updates that were folded so far, up to so many."""
        self._unfolded = max(self._unfolded, upto)

    def read(self, limit: int) -> list[tuple[int, Entry]]:
        """At most `limit` published records behind those already read, each with its sequence number."""
        published = self._file.words[W_PUBLISHED]
        if self._read == published:
            return []
        # Nothing of a record may be loaded before the mark that covers it.
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

    def _next(self) -> tuple[int, Entry] | None:
        """The record behind the last one, if it is whole."""
        start = self._start()
        length, crc, at_mark, tag = self._head(start)
        end = start + padded(length)
        sequence = sequence_of(self._read) + 1
        if length < HEAD.size or end > self._file.size or at_mark != mark(sequence, end - self._file.data):
            return None
        payload = bytes(self._file.view[start + HEAD.size : start + length])
        if checksum(payload, tag) != crc:
            return None
        self._pass(at_mark)
        return sequence, Entry(tag, payload)

    def _start(self) -> int:
        """Where the next record is."""
        start = self._file.data + end_of(self._read)
        if start + ALIGN > self._file.size or LENGTH.unpack_from(self._file.view, start)[0] == LAP:
            return self._file.data
        return start

    def _head(self, start: int) -> tuple[int, int, int, int]:
        if start + HEAD.size > self._file.size:
            return (0,) * 4
        length, crc, at_mark, tag = HEAD.unpack_from(self._file.view, start)
        return length, crc, at_mark, tag

    def _pass(self, at_mark: int) -> None:
        self._read = at_mark
        self._held.append(at_mark)

    def _skip(self, published: int) -> None:
        """Give up the next record: go on behind it where its head is sound, else behind everything."""
        start = self._start()
        length, _, at_mark, _ = self._head(start)
        sequence = sequence_of(self._read) + 1
        end = start + padded(length)
        is_sound = HEAD.size <= length and end <= self._file.size
        if is_sound and at_mark == mark(sequence, end - self._file.data):
            self.corrupt += 1
        else:
            at_mark = published
            self.corrupt += sequence_of(published) - sequence + 1
        self._pass(at_mark)
        self._looks = 0

    def release(self, sequence: int, upto: int = 0) -> None:
        """Everything up to and with a record that was read is safe elsewhere: its room is free.

        `upto` is how many updates had been folded up to that record, where it has folded ones.
        """
        words, before = self._file.words, self._released
        while self._held and sequence_of(self._held[0]) <= sequence:
            self._released = self._held.popleft()
        if self._released != before:
            # A reader that dies in between counts the folded updates once: the word is a total.
            words[W_UNFOLDED] = max(words[W_UNFOLDED], upto)
            if FENCE is not None:
                FENCE()
            words[W_RELEASED] = self._released

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
