"""Many records at once: a stretch of updates and columns, each checked, sorted by their tags.

In a stretch tags come for the last time in the order in which they came for the first time. So whoever takes
the records of one tag after all those of another comes to what taking each in its turn comes to, wherever
only the first and the last of something count, and how many there were.

Rules: a record is checked here as `reader` checks it; before one that does not pass, or is of another kind,
the stretch ends, and the reader has the word. What is found lies in the ring, valid until it is released.
Must not know forms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count as counting
from typing import TYPE_CHECKING, Final

from overwatch.sdk.rings.file import RingFile
from overwatch.sdk.rings.layout import (
    ALIGN,
    HEAD,
    INDEXED,
    ONE,
    PRIME,
    Kind,
    mark,
    padded,
    sequence_of,
    summing,
    untagged,
)
from overwatch.sdk.rings.stamped import covered, place_of_index, room

if TYPE_CHECKING:
    import numpy as np

LEAST: Final = 16
"""Records of the shortest stretch; fewer are sooner read one by one."""
MOST_TAGS: Final = 8
"""Tags that a stretch tells apart."""
_MOST_CUTS: Final = 16
"""How many ends are tried that look as if tags came last as they came first."""


@dataclass(slots=True, eq=False)
class Group:
    """The records of one tag, in their order."""

    which: int
    """The tag."""
    length: int
    """Of each, with head."""
    index_at: int | None
    """Where in a record the index lies, where it is behind the head."""
    sums: Callable[[memoryview, int], int]
    places: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    """As the heads say them."""
    moments: list[int] = field(default_factory=list)
    """As the heads say them."""

    @property
    def at(self) -> int:
        """Moment of the last, as its head says it."""
        return self.moments[-1]

    def payloads(self, view: memoryview) -> "np.ndarray":
        """The payloads as bytes, one a row."""
        import numpy as np

        count, width = len(self.places), self.length - HEAD.size
        first, last = self.places[0], self.places[-1]
        step = (last - first) // max(count - 1, 1) or width
        if self.places == list(range(first, last + 1, step)):
            return np.ndarray((count, width), "u1", view, first + HEAD.size, (step, 1))
        whole = b"".join([view[place + HEAD.size : place + self.length] for place in self.places])
        return np.frombuffer(whole, "u1").reshape(count, width)

    def last(self, view: memoryview) -> bytes:
        """The last payload."""
        return bytes(view[self.places[-1] + HEAD.size : self.places[-1] + self.length])


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records that follow one another."""

    mark: int
    """Of the last."""
    count: int
    groups: Sequence[Group]
    """In the order in which they came first, which is that in which they came last."""


def stretch(file: RingFile, begin: int, read: int, limit: int) -> Stretch | None:
    """What lies from `begin` on, of at most `limit` records, all published; `None` where that is not much.

    `read` is the mark of the record before.
    """
    order = _walked(file, begin, read, limit)
    groups = list(dict.fromkeys(order))
    count = _end(order, groups)
    if count < LEAST:
        return None
    for group in reversed(order[count:]):
        del group.places[-1], group.indices[-1], group.moments[-1]
    told = [group for group in groups if group.places]
    last = told[-1]
    end = last.places[-1] + padded(last.length)
    return Stretch(mark(sequence_of(read) + count, end - file.data), count, told)


def _walked(file: RingFile, begin: int, read: int, limit: int) -> list[Group]:
    """The group of each record, as far as they are whole and of kinds for here."""
    view, size, unpack = file.view, file.size, HEAD.unpack_from
    head = HEAD.size
    word = mark(sequence_of(read), begin - file.data)
    groups: dict[int, Group] = {}
    order: list[Group] = []
    while len(order) < limit and begin + head <= size:
        length, found, at_mark, at, index, which = unpack(view, begin)
        group = groups.get(which)
        if group is None:
            if len(groups) == MOST_TAGS or (group := _group(which, length)) is None:
                break
            groups[which] = group
        taken = padded(length)
        word += ONE + taken // ALIGN
        if at_mark != word or length != group.length or begin + taken > size:
            break
        if group.index_at is None:
            stop, first = begin + length, at + index + which
        else:
            stop, first = begin + group.index_at, which
            stop += covered(view[stop])
        if group.sums(view[begin + head : stop], first % PRIME) != found:
            break
        group.places.append(begin)
        group.indices.append(index)
        group.moments.append(at)
        order.append(group)
        begin += taken
    return order


def _group(which: int, length: int) -> Group | None:
    """For records of this tag and length; `None` for those that are no numbers of a form."""
    kind, _, rows = untagged(which)
    width = length - HEAD.size
    index_at = None
    if kind == Kind.STAMPED:
        if not 0 < rows < 1 << 16 or width != room(rows):
            return None
        index_at = HEAD.size + place_of_index(rows)
    elif kind & ~INDEXED not in (Kind.UPDATE, Kind.COLUMNS) or width <= 0:
        return None
    return Group(which, length, index_at, summing(width))


def _end(order: Sequence[Group], groups: Sequence[Group]) -> int:
    """The most records after which tags have come last in the order in which they came first."""
    firsts = [next(i for i in counting() if order[i] is group) for group in groups]
    known, tried = len(groups), 0
    for end in range(len(order), 0, -1):
        while known and firsts[known - 1] >= end:
            known -= 1
        if order[end - 1] is groups[known - 1]:
            if _is_sorted(order, end, groups[:known]):
                return end
            tried += 1
            if tried == _MOST_CUTS:
                break
    return 0


def _is_sorted(order: Sequence[Group], end: int, groups: Sequence[Group]) -> bool:
    """Whether these groups come last, before `end`, in their order."""
    seen: set[Group] = set()
    expected = len(groups)
    for place in range(end - 1, -1, -1):
        group = order[place]
        if group in seen:
            continue
        expected -= 1
        if group is not groups[expected]:
            return False
        if not expected:
            return True
        seen.add(group)
    return True
