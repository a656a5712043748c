"""What a trainer says, read out of its two rings in the order of its own clock; many numbers as one item.

Rules: nothing leaves the files before it is released; a source made later goes on at what was not. Must not
know where frames go.
"""

import fcntl
import heapq
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from overwatch.sdk.conflate import Folded
from overwatch.sdk.rings.file import RingFile, open_ring
from overwatch.sdk.rings.gathered import Gathered, gathered
from overwatch.sdk.rings.layout import W_SAID
from overwatch.sdk.rings.reader import RingReader
from overwatch.sdk.rings.records import Form, RecordError, Said, decode_form, said
from overwatch.sdk.rings.ringset import FACTS, NUMBERS, RingSet, part_of
from overwatch.sdk.rings.writer import Entry, dropped

_SOME: Final = 32
"""Records that are read one by one where there is no stretch, before one is looked for again."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record and its place."""

    said: Said | Gathered
    """Of many records in one, what they say together."""
    size: int
    """Bytes of its payload."""
    ring: int
    sequence: int
    """Number in its ring; of many, that of the last."""

    @property
    def count(self) -> int:
        """Records handed in that this one stands for."""
        if isinstance(self.said, tuple):
            return sum(part.n for part in self.said)
        return self.said.n if isinstance(self.said, Folded) else 1


class RingSource:
    """Reads a `RingSet`'s rings. Raises `OSError` or `RingError` when there are none."""

    def __init__(self, rings: Path | RingSet, *, alone: bool = False, gathers: bool = False) -> None:
        """`rings` is a path that a trainer gave, or rings that are written in this process.

        With `alone` nobody else reads with it until this source is closed; raises `BlockingIOError` when
        somebody does. With `gathers`, which loads NumPy when it is of use, many numbers are one item.
        """
        self._claim = _claimed(rings) if isinstance(rings, Path) and alone else None
        try:
            self._files = _opened(rings) if isinstance(rings, Path) else _mine(rings)
        except BaseException:
            self._let_go()
            raise
        self._readers = self._numbers, self._facts = [RingReader(file) for file in self._files]
        self._forms: dict[int, Form] = {}
        self._gathers = gathers
        self._single = 0
        self._broken = 0

    def single(self, upto: int) -> None:
        """Numbers up to this one are to be items of their own."""
        self._single = upto

    def read(self, limit: int = 1024) -> list[Item]:
        """What has been published and not read, at most `limit` records a ring, by the trainer's clock."""
        numbers = self._read_numbers(limit)
        facts = [(entry.at, self._item(1, sequence, entry)) for sequence, entry in self._facts.read(limit)]
        if numbers and facts:
            numbers = list(heapq.merge(numbers, facts, key=lambda one: one[0]))
        return [item for _, item in numbers or facts if item is not None]

    def _read_numbers(self, limit: int) -> list[tuple[int, Item | None]]:
        """Numbers with their times; of many at once that of the last."""
        found: list[tuple[int, Item | None]] = []
        reader = self._numbers
        # What comes while this reads is the next look's, together with its like.
        limit = min(limit, reader.published - reader.sequence)
        while limit > 0:
            some = min(_SOME, limit)
            stretch = reader.look(limit) if self._gathers and reader.sequence >= self._single else None
            if stretch is not None:
                together = gathered(stretch, self._files[0].view, self._form)
                if together is None:
                    some = stretch.count
                else:
                    size = sum(part.size for part in together)
                    item = Item(together, size, 0, reader.pass_stretch(stretch))
                    found.append((stretch.groups[-1].at, item))
                    limit -= stretch.count
                    continue
            entries = reader.read(some)
            found += [(entry.at, self._item(0, sequence, entry)) for sequence, entry in entries]
            limit -= len(entries)
            if len(entries) < some:
                break
        return found

    def _item(self, ring: int, sequence: int, entry: Entry) -> Item | None:
        try:
            return Item(said(entry, self._form), len(entry.payload), ring, sequence)
        except RecordError:
            self._broken += 1
            self._readers[ring].done(sequence)
            return None

    def _form(self, number: int) -> Form:
        form = self._forms.get(number)
        if form is None:
            form = self._forms[number] = decode_form(self._numbers.form(number))
        return form

    def done(self, item: Item) -> None:
        """A record is safe elsewhere; its room is free once all before it in its ring are."""
        self._readers[item.ring].done(item.sequence)

    @property
    def said(self) -> int:
        """What the reader leaves to the next: see `layout.W_SAID`."""
        return self._files[0].words[W_SAID]

    @said.setter
    def said(self, number: int) -> None:
        self._files[0].words[W_SAID] = number

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
        """Updates folded by the trainer that no record tells of yet; lost when the trainer is dead."""
        return self._numbers.unsaid

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
    return [chute.ring.file.again() for chute in (rings.numbers, rings.facts)]
