"""A trainer's records, read out of its two rings in the order of its own clock.

Rules: nothing leaves the files before it is released; a source made later goes on at what was not. Must not
know where records go.
"""

import fcntl
import heapq
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from overwatch.sdk.conflate import Folded
from overwatch.sdk.rings.file import RingFile, open_ring
from overwatch.sdk.rings.layout import W_SAID
from overwatch.sdk.rings.reader import RingReader
from overwatch.sdk.rings.records import Content, Form, RecordError, content_of, decode_form
from overwatch.sdk.rings.ringset import FACTS, NUMBERS, RingSet, part_of
from overwatch.sdk.rings.writer import dropped

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

        With `alone` nobody else reads with it until this source is closed; raises `BlockingIOError` when
        somebody does.
        """
        self._claim = _claimed(rings) if isinstance(rings, Path) and alone else None
        try:
            self._files = _opened(rings) if isinstance(rings, Path) else _mine(rings)
        except BaseException:
            self._let_go()
            raise
        self._readers = [RingReader(file) for file in self._files]
        self._forms: dict[int, Form] = {}
        self._broken = 0

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
            if upto:
                self._readers[ring].unfold(upto)
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
    def said(self) -> int:
        """What the reader leaves to the next: see `layout.W_SAID`."""
        return self._files[_NUMBERS].words[W_SAID]

    @said.setter
    def said(self, number: int) -> None:
        self._files[_NUMBERS].words[W_SAID] = number

    @property
    def waiting(self) -> int:
        """Records published and not read."""
        return sum(reader.published - reader.sequence for reader in self._readers)

    @property
    def is_over(self) -> bool:
        """Whether the trainer has closed its rings and everything in them is read."""
        return all(reader.is_closed for reader in self._readers) and not self.waiting

    @property
    def malformed(self) -> int:
        """Records that could not be read or were none."""
        return self._broken + sum(reader.corrupt for reader in self._readers)

    @property
    def unsaid(self) -> int:
        """Updates folded by the trainer that are in no record yet; lost when the trainer is dead."""
        return self._readers[_NUMBERS].unsaid

    def dropped(self) -> dict[str, int]:
        """What the trainer's side has dropped so far, by reason."""
        total: dict[str, int] = {}
        for file in self._files:
            for reason, count in dropped(file).items():
                total[reason] = total.get(reason, 0) + count
        return total

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
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise
    except OSError:
        pass  # a place without locks: whoever comes reads
    return fd


def _opened(path: Path) -> list[RingFile]:
    numbers = open_ring(part_of(path, NUMBERS))
    try:
        return [numbers, open_ring(part_of(path, FACTS))]
    except (OSError, ValueError):
        numbers.close()
        raise


def _mine(rings: RingSet) -> list[RingFile]:
    return [producer.ring.file.again() for producer in (rings.numbers, rings.facts)]
