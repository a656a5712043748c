"""A trainer's records, read out of its two rings in the order of its own clock.

Rules: what is read stays in the file until it is released, so a reader that dies is followed by one that
reads it again. A record whose checksum or mark is wrong is looked at again, then skipped and counted: nothing
wrong is ever returned. Reads only what is published; works as well when the writer is dead (`writer` has the
theory). Must not know where records go.
"""

import contextlib
import heapq
import os
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from overwatch.file_lock import try_lock
from overwatch.sdk.conflate import Folded
from overwatch.sdk.rings.file import (
    ALIGN,
    FENCE,
    FORM,
    HEAD,
    HEADER_BYTES,
    LAP,
    LENGTH,
    W_FOLDED,
    W_FORMS,
    W_PUBLISHED,
    W_RELEASED,
    W_STATED,
    W_UNFOLDED,
    RingError,
    RingFile,
    checksum,
    end_of,
    mark,
    open_ring,
    padded,
    sequence_of,
)
from overwatch.sdk.rings.records import Content, Form, RecordError, content_of, decode_form
from overwatch.sdk.rings.ringset import FACTS, NUMBERS, RingSet, part_of
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

    def read(self, limit: int) -> list[tuple[int, Entry]]:
        """At most `limit` published records behind those already read, each with its sequence number."""
        published = self._file.words[W_PUBLISHED]
        if self._read == published:
            return []
        # Nothing of a record may be loaded before the mark that covers it.
        if FENCE is not None:
            FENCE()
        found: list[tuple[int, Entry]] = []
        while len(found) < limit and self.sequence < sequence_of(published):
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
        start, length, crc, at_mark, tag = self._head()
        payload = bytes(self._file.view[start + HEAD.size : start + length])
        if not at_mark or checksum(payload, tag) != crc:
            return None
        self._pass(at_mark)
        return self.sequence, Entry(tag, payload)

    def _head(self) -> tuple[int, int, int, int, int]:
        """Where the next record is, its length, checksum, mark and tag; the mark is 0 where that is odd."""
        file, start = self._file, self._file.data + end_of(self._read)
        if start + ALIGN > file.size or LENGTH.unpack_from(file.view, start)[0] == LAP:
            start = file.data
        if start + HEAD.size <= file.size:
            length, crc, at_mark, tag = HEAD.unpack_from(file.view, start)
            end = start + padded(length)
            is_next = at_mark == mark(self.sequence + 1, end - file.data)
            if HEAD.size <= length and end <= file.size and is_next:
                return start, length, crc, at_mark, tag
        return start, 0, 0, 0, 0

    def _pass(self, at_mark: int) -> None:
        self._read = at_mark
        self._held.append(at_mark)

    def _skip(self, published: int) -> None:
        """Give up the next record: go on behind it where its head is sound, else behind everything."""
        before = self.sequence
        self._pass(self._head()[3] or published)
        self.corrupt += self.sequence - before
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


_NUMBERS: Final = 0
"""Which of the rings has the forms and the folded updates."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record and its place."""

    content: Content
    size: int
    """Bytes of its payload."""
    ring: int
    sequence: int
    """Number in its ring."""
    upto: int = 0
    """How many updates were folded up to this one, where it has folded ones."""

    @property
    def count(self) -> int:
        """Records handed in that this one stands for."""
        return self.content.n if isinstance(self.content, Folded) else 1

    @property
    def at(self) -> int:
        """Unix nanoseconds on the trainer's clock."""
        return self.content.at


class RingSource:
    """Reads a `RingSet`'s rings. Raises `OSError` or `RingError` when there are none."""

    def __init__(self, rings: Path | RingSet, *, alone: bool = False) -> None:
        """`rings` is a path that a trainer gave, or rings that are written in this process.

        With `alone` no other source reads until this one is closed; raises `BlockingIOError` when one does.
        """
        self._claim = _claimed(rings) if isinstance(rings, Path) and alone else None
        try:
            self._files = _opened(rings)
        except BaseException:
            self._let_go()
            raise
        self._readers = [RingReader(file) for file in self._files]
        self._forms: dict[int, Form] = {}
        self._broken = 0
        self._unfolded = self._files[_NUMBERS].words[W_UNFOLDED]
        """Of the folded updates, those that were read."""

    def read(self, limit: int = 1024) -> list[Item]:
        """What has been published and not read, at most `limit` records a ring, by the trainer's clock."""
        numbers, facts = (self._items(ring, limit) for ring in range(len(self._readers)))
        if not numbers or not facts:
            return numbers or facts
        return list(heapq.merge(numbers, facts, key=lambda item: item.at))

    def _items(self, ring: int, limit: int) -> list[Item]:
        found: list[Item] = []
        for sequence, entry in self._readers[ring].read(limit):
            try:
                content, upto = content_of(entry, self._form)
            except RecordError:
                self._broken += 1
                continue
            self._unfolded = max(self._unfolded, upto)
            found.append(Item(content, len(entry.payload), ring, sequence, upto))
        return found

    def _form(self, number: int) -> Form:
        form = self._forms.get(number)
        if form is None:
            form = self._forms[number] = decode_form(self._readers[_NUMBERS].form(number))
        return form

    def done(self, item: Item) -> None:
        """A record, and with it all before it in its ring, is safe elsewhere: its room is free."""
        self._readers[item.ring].release(item.sequence, item.upto)

    @property
    def stated(self) -> int:
        """What the reader leaves to the next: see `file.W_STATED`."""
        return self._files[_NUMBERS].words[W_STATED]

    @stated.setter
    def stated(self, number: int) -> None:
        self._files[_NUMBERS].words[W_STATED] = number

    @property
    def waiting(self) -> int:
        """Records published and not read."""
        return sum(reader.published - reader.sequence for reader in self._readers)

    @property
    def malformed(self) -> int:
        """Records that could not be read or were none."""
        return self._broken + sum(reader.corrupt for reader in self._readers)

    @property
    def unsaid(self) -> int:
        """Updates folded by the trainer that are in no record yet; lost when the trainer is dead."""
        return self._files[_NUMBERS].words[W_FOLDED] - self._unfolded

    def dropped(self) -> dict[str, int]:
        """What the trainer's side has dropped so far, by reason."""
        return dict(sum((file.dropped() for file in self._files), Counter()))

    def close(self) -> None:
        """Let go of the files; they stay."""
        for file in self._files:
            file.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None


def _claimed(path: Path) -> int:
    """A lock on reading rings, which goes with its process; raises `OSError`."""
    fd = os.open(part_of(path, FACTS), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    is_mine = True
    with contextlib.suppress(OSError):  # a place without locks: any reader reads
        is_mine = try_lock(fd)
    if not is_mine:
        os.close(fd)
        raise BlockingIOError(f"another process reads {path}")
    return fd


def _opened(rings: Path | RingSet) -> list[RingFile]:
    if not isinstance(rings, Path):
        return [producer.ring.file.again() for producer in (rings.numbers, rings.facts)]
    numbers = open_ring(part_of(rings, NUMBERS))
    try:
        return [numbers, open_ring(part_of(rings, FACTS))]
    except (OSError, ValueError):
        numbers.close()
        raise
