"""A recording as lives of a collector: which ticks there were, and what is folded at which.

Owns the order of replay. Where batches lie is kept in columns, some tens of bytes a batch, so that the index
of a large recording fits into little memory. Must not know where bodies come from.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from overwatch.fold import FAST_NS, next_tick
from overwatch.journal import Signal
from overwatch.recordings.index import Ended, Located, Started

_SIGNALS: Final = tuple(Signal)
_NUMBERS: Final = {signal: number for number, signal in enumerate(_SIGNALS)}
_LONGEST: Final = (1 << 32) - 1
"""What is recorded as longer is so long that it is not read either way."""


class Entries:
    """Batches and starts in order, as columns."""

    def __init__(self) -> None:
        self._sequences, self._stamps = array("q"), array("q")
        self._offsets, self._lengths = array("q"), array("I")
        self._files, self._signals = list[str](), array("B")
        self._starts: dict[int, Started] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entries) and len(self) == len(other) and self.begins_with(other)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Located | Started]:
        return (self.at(place) for place in range(len(self)))

    def __getitem__(self, which: slice) -> list[Located | Started]:
        return [self.at(place) for place in range(*which.indices(len(self)))]

    def begins_with(self, other: "Entries") -> bool:
        """Whether these are the others and perhaps more, whatever their files are called now."""
        known = len(other)
        return len(self) >= known and all(
            mine[:known] == others for mine, others in zip(self.columns, other.columns, strict=True)
        )

    @property
    def columns(self) -> "tuple[array[int], ...]":
        """Everything but starts and the names of files."""
        return self._sequences, self._stamps, self._offsets, self._lengths, self._signals

    def sequences(self, start: int, stop: int) -> list[int]:
        """Those of some entries."""
        return list(self._sequences[start:stop])

    def append(self, entry: Located | Started) -> None:
        """Add one at the end."""
        offset, length, file = 0, 0, ""
        if isinstance(entry, Started):
            self._starts[len(self)] = entry
        else:
            offset, length, file = entry.offset, entry.length, sys.intern(entry.file)
        self._sequences.append(entry.sequence)
        self._stamps.append(entry.stamp)
        self._signals.append(_NUMBERS[entry.signal])
        self._offsets.append(offset)
        self._lengths.append(min(length, _LONGEST))
        self._files.append(file)

    def at(self, place: int) -> Located | Started:
        """One entry."""
        started = self._starts.get(place)
        if started is not None:
            return started
        return Located(
            sequence=self._sequences[place], stamp=self._stamps[place],
            signal=_SIGNALS[self._signals[place]], file=self._files[place],
            offset=self._offsets[place], length=self._lengths[place],
        )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Segment:
    """One life of a collector: every tick from `first` to `last`, and what is folded at which."""

    first: int
    """First tick, Unix nanoseconds."""
    last: int
    """Last tick; before `first` when nothing was folded."""
    before: "Segment | None" = None
    """The life whose fold this one went on with; `None` when it began empty."""
    began: int | None = None
    """Sequence of the start record with which the fold began empty; `None` where that is not there."""
    entries: Entries = field(default_factory=Entries)
    due: "array[int]" = field(default_factory=lambda: array("q"))
    """The tick at which each entry is folded; never falls."""

    @property
    def root(self) -> "Segment":
        """The life in which this one's fold began."""
        life = self
        while life.before is not None:
            life = life.before
        return life

    def taken(self, tick: int) -> tuple[int, int]:
        """How many batches, starts among them, and ticks this fold took up to a tick of this life."""
        batches = ticks = 0
        life: Segment | None = self
        while life is not None:
            batches += bisect_right(life.due, tick)
            ticks += max(0, (min(life.last, tick) - life.first) // FAST_NS + 1)
            first, life = life, life.before
        # A start record that changes nothing is no entry, and a collector folds it.
        is_folded = first.began is None or first.entries.sequences(0, 1) == [first.began]
        return batches + (not is_folded), ticks

    def ticks(self, after: int) -> Iterator[tuple["Segment", int]]:
        """Every tick of this fold after one of them, up to the last of this life."""
        lives = [self]
        while lives[-1].before is not None and lives[-1].first > after + FAST_NS:
            lives.append(lives[-1].before)
        for life in reversed(lives):
            for tick in range(max(life.first, after + FAST_NS), life.last + 1, FAST_NS):
                yield life, tick

    def last_up_to(self, tick: int, most: int) -> tuple[int, list[Located | Started]]:
        """How many entries were folded up to a tick, and the last of them."""
        stop = bisect_right(self.due, tick)
        return stop, self.entries[max(0, stop - most) : stop]

    def since(self, tick: int) -> Iterator[tuple[int, Located | Started]]:
        """The entries that are folded at a tick or later, each with its tick."""
        places = range(bisect_left(self.due, tick), len(self.due))
        return ((self.due[place], self.entries.at(place)) for place in places)

    def at(self, tick: int) -> list[Located | Started]:
        """The entries that are folded at a tick."""
        return self.entries[bisect_left(self.due, tick) : bisect_right(self.due, tick)]

    def add(self, entry: Located | Started) -> None:
        """Append an entry; it is folded at the first tick at or after its stamp that is still to come."""
        floor = self.due[-1] if self.due else self.first
        if not self.due or self.due[-1] < self.last:
            floor = max(floor, self.last + FAST_NS)
        self.entries.append(entry)
        self.due.append(max(next_tick(entry.stamp), floor))
        self.last = max(self.last, self.due[-1])


class Lives:
    """Lives of a collector, as the lines of an index record them."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._is_over = False
        """What comes next has nothing to go on with: what was before it is gone."""
        self._is_gone = self._is_there = False
        """What is known of the piece that is read: something went from it, something is in it."""

    def piece(self) -> None:
        """A piece begins."""
        self._is_over = self._is_over or (self._is_gone and not self._is_there)
        self._is_gone = self._is_there = False

    def gone(self) -> None:
        """Something went from this piece."""
        self._is_gone = True

    def add(self, entry: Located | Started) -> None:
        """Take a line that is folded."""
        self._is_there = True
        before = self.segments[-1] if self.segments and not self._is_over else None
        if isinstance(entry, Started):
            self.segments.append(_entered(entry, before))
        else:
            if before is None:
                first = next_tick(entry.stamp)
                self.segments.append(
                    Segment(
                        first=first,
                        last=first - FAST_NS,
                    )
                )
            self.segments[-1].add(entry)
        self._is_over = False

    def end(self, entry: Ended) -> None:
        """A life ended."""
        if self.segments:
            self.segments[-1].last = max(self.segments[-1].last, entry.end // FAST_NS * FAST_NS)


def _entered(start: Started, before: Segment | None) -> Segment:
    """The life that begins with a start record."""
    first = next_tick(start.stamp)
    if before is None or start.body.after is None:
        segment = Segment(first=first, last=first - FAST_NS, began=start.sequence)
        if start.body.tells:
            segment.add(start)
        return segment
    before.last = max(before.last, start.body.after)
    first = max(first, before.last + FAST_NS)
    segment = Segment(first=first, last=first - FAST_NS, before=before)
    segment.add(start)
    return segment
