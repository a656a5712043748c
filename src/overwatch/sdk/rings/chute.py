"""A ring with what waits beside it: the way in that never waits and never loses count.

Rules: `put` may be called from any thread and from a signal handler. Where another writes just then, the
record goes aside and whoever writes takes it along. Facts that find no room are held, bounded; updates are
folded into one; other numbers are dropped. Everything handed in is published, folded, waiting or counted as
dropped. Must not know what happens to records once they are published.
"""

import itertools
import operator
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from overwatch.sdk.conflate import Conflator, Count
from overwatch.sdk.rings.layout import INDEXED, W_FOLDED, W_RELEASED, Kind
from overwatch.sdk.rings.records import Forms, folded_entry, frame_update, spans
from overwatch.sdk.rings.tally import Tally
from overwatch.sdk.rings.writer import Entry, RingWriter, dropped

ASIDE_BYTES: Final = 8 << 20
"""What may lie aside while another writes."""
FOLD_EVERY: Final = 512
"""Updates that are folded at once: one of so many calls pays for all."""
FOLD_EVERY_BY_HAND: Final = 16
"""The same where NumPy is not loaded: more at once would stall that call longer."""
TALLY_EVERY: Final = 16
"""So many updates of one form in a row, and those that follow are folded in place."""
_RESERVED: Final = 8
"""Such a part of the largest record stays free of what is only offered."""
_UPDATE: Final = int(Kind.UPDATE)
_NO_MARK: Final = (1 << 64) - 1
_COST: Final = 128
"""Memory of a record besides its payload, about."""

Aside: TypeAlias = Entry | str
"""A record that someone was in the way of, or the reason of a drop."""


class Chute(ABC):
    """The way into one ring; `wake` is called when something waits for room."""

    def __init__(self, ring: RingWriter, wake: Callable[[], None]) -> None:
        self.ring = ring
        self.aside: deque[Aside] = deque()
        self._aside_bytes = 0
        """About what lies aside; only ever a bound."""
        self.missed: Callable[[], None] = lambda: None
        """Called for each record that comes when the ring is closed."""
        self._wake = wake
        self._backlog: deque[Entry] = deque()
        self._backlog_bytes = 0
        self._is_holding = False
        """Something may wait for room."""
        self._trying: int | None = None
        """How many were published before the first of the backlog was tried."""
        self.stuck = memoryview(bytearray(16)).cast("Q")
        """The reader's mark when the ring last refused a record, and the bytes of the smallest refused there;
        0 bytes while others wait before it. Compiled code reads it."""
        self.stuck[0] = _NO_MARK

    def put(self, entry: Entry) -> None:
        """Hand in one record."""
        token = self.ring.token
        try:
            del token[0]
        except IndexError:
            self.set_aside(entry)
            return
        try:
            self.take(entry)
        except BaseException:
            self.recover()
            raise
        finally:
            token.append(None)
        if self.aside:
            self.flush()

    def offer(self, entry: Entry) -> bool:
        """Write a large record where that leaves room for others; whether it is done with."""
        token, ring = self.ring.token, self.ring
        try:
            del token[0]
        except IndexError:
            return False
        try:
            self._take_aside()
            if ring.closed:
                self.missed()
                return True
            if entry.size > ring.largest:
                ring.drop("too_large")
                return True
            if self.waits or not ring.make_room(entry.size + ring.largest // _RESERVED):
                return False
            return self._append(entry, entry.size)
        except BaseException:
            self.recover()
            raise
        finally:
            token.append(None)

    def set_aside(self, entry: Aside) -> None:
        """Leave a record, or the reason of a drop, to whoever writes."""
        if self.ring.closed:
            self.missed()
            return
        if isinstance(entry, Entry):
            if self._aside_bytes > ASIDE_BYTES:
                entry = "contended"
            else:
                self._aside_bytes += len(entry.payload) + _COST
        self.aside.append(entry)
        if self.ring.token:
            self.flush()

    def count_drop(self, reason: str) -> None:
        """Count a record that could not even be made."""
        self.set_aside(reason)

    def flush(self) -> bool:
        """Write what waits as far as there is room; whether nothing waits any more."""
        token = self.ring.token
        while self.waits:
            try:
                del token[0]
            except IndexError:
                return False
            try:
                self._take_aside()
                if not self._drain():
                    return False
            except BaseException:
                self.recover()
                raise
            finally:
                token.append(None)
        return True

    @property
    def waits(self) -> bool:
        """Whether anything waits for room or for its turn."""
        return bool(self.aside or self._backlog)

    def take(self, entry: Entry) -> None:
        """Write a record, or do with it what is done without room. Needs the token."""
        if self.aside:
            self._take_aside()
        self._write(entry)

    def _write(self, entry: Entry) -> None:
        if self.ring.closed:
            return
        size = entry.size
        if size > self.ring.largest:
            self.ring.drop("too_large")
        elif self.is_stuck(size):
            self._full(entry)
        elif (self._is_holding and not self._drain()) or not self._append(entry, size):
            self._is_holding = True
            self._full(entry)

    def is_stuck(self, size: int) -> bool:
        """Whether the reader has not moved since there was no room for so many bytes. Needs the token."""
        mark, least = self.stuck
        return self.ring.words[W_RELEASED] == mark and size >= least

    def _append(self, entry: Entry, size: int) -> bool:
        if self.ring.append(entry):
            return True
        mark = self.ring.words[W_RELEASED]
        if self._backlog:
            size = 0
        elif mark == self.stuck[0]:
            size = min(size, self.stuck[1])
        self.stuck[0], self.stuck[1] = mark, size
        self.ring.limit = 0
        return False

    def _take_aside(self) -> None:
        while self.aside:
            found = self.aside.popleft()
            if isinstance(found, Entry):
                self._write(found)
            else:
                self.ring.drop(found)
        self._aside_bytes = 0

    def _drain(self) -> bool:
        """Write what waits for room as far as there is some; whether nothing is left of it."""
        while self._backlog or self._refill():
            self._trying = self.ring.published
            if not self._append(self._backlog[0], self._backlog[0].size):
                self._trying = None
                return False
            self._sent()
        self._is_holding = False
        return True

    def _refill(self) -> bool:
        """Put into the backlog what waits in another shape; whether there was any."""
        return False

    def _sent(self) -> None:
        """The first of the backlog is published."""
        self._backlog_bytes -= self._backlog[0].size
        del self._backlog[0]
        self._trying = None

    def recover(self) -> None:
        """After an interruption: go on from what is in the file. Needs the token."""
        self.ring.resync()
        if self._trying is not None and self.ring.published != self._trying:
            self._sent()
        self._trying = None

    @abstractmethod
    def _full(self, entry: Entry) -> None:
        """What becomes of a record that found no room."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Records that were handed in and are neither published nor dropped."""

    @property
    @abstractmethod
    def accepted(self) -> int:
        """Records handed in so far: what is published, waits, or was dropped."""

    def give_up(self) -> None:
        """Count what still waits as not sent. Needs the token."""
        self._take_aside()
        if self.waiting:
            self.ring.drop("not_sent", self.waiting)
        self._backlog.clear()

    def dropped(self) -> dict[str, int]:
        """What was dropped, by reason."""
        return dropped(self.ring.file)


class FactChute(Chute):
    """Facts: held while the ring is full, up to a bound."""

    def __init__(self, ring: RingWriter, wake: Callable[[], None], backlog_bytes: int) -> None:
        super().__init__(ring, wake)
        self._limit = backlog_bytes

    def _full(self, entry: Entry) -> None:
        if self._backlog_bytes + entry.size > self._limit:
            self.ring.drop("backlog_full")
            return
        self._backlog.append(entry)
        self._backlog_bytes += entry.size
        self.stuck[1] = 0
        self._wake()

    @property
    def waiting(self) -> int:
        """Facts held."""
        return len(self._backlog) + len(self.aside)

    @property
    def accepted(self) -> int:
        """Records handed in so far."""
        return self.ring.published + self.waiting + sum(self.dropped().values())


class NumberChute(Chute):
    """Numbers: of a full ring updates are folded into one, many at a time, and columns are dropped."""

    def __init__(
        self, ring: RingWriter, wake: Callable[[], None], conflator: Conflator, forms: Forms
    ) -> None:
        super().__init__(ring, wake)
        self._conflator = conflator
        self._forms = forms
        self._unfolded: list[Entry] = []
        """Updates that are to be folded."""
        self._tallies: dict[int, Tally] = {}
        self._tally: Tally | None = None
        """The open one; then nothing is unfolded."""
        self._folds = 0
        """Folded records published."""
        self._told = 0
        """Updates in them."""

    @property
    def folded(self) -> int:
        """Updates that were ever folded."""
        return self.ring.words[W_FOLDED]

    @property
    def waits(self) -> bool:
        """Whether anything waits for room or for its turn."""
        return bool(self.aside or self._backlog or self._unfolded or self._tally or self._conflator.n)

    def tally(self, form: int) -> Tally:
        """Where updates of this form are folded in place while the ring is full; opened when it is."""
        if form not in self._tallies:
            names = self._forms(form).names
            self._tallies[form] = Tally(names, [self._conflator.bounds(name) for name in names])
        return self._tallies[form]

    def _refill(self) -> bool:
        self._fold()
        folded = self._conflator.flush()
        if folded is None:
            return False
        self._backlog.append(folded_entry(folded, self.folded))
        self._backlog_bytes += self._backlog[0].size
        return True

    def _sent(self) -> None:
        self._folds += 1
        self._told = self._backlog[0].index
        super()._sent()

    def _full(self, entry: Entry) -> None:
        if self._tally is not None:
            self._fold()
        if entry.kind & ~INDEXED == _UPDATE:
            self._unfolded.append(entry)
            if len(self._unfolded) % TALLY_EVERY == 0:
                self._open_tally(entry)
            if len(self._unfolded) >= (FOLD_EVERY if "numpy" in sys.modules else FOLD_EVERY_BY_HAND):
                self._fold()
        elif (update := frame_update(entry)) is not None:
            self._fold()
            self._conflator.add(update.at, update.values, update.index)
        else:
            self.ring.drop("ring_full")
            return
        self.ring.words[W_FOLDED] += 1
        self._wake()

    def refused(self, size: int) -> bool:
        """Whether columns of so many bytes were dropped, for there is surely no room. Needs the token."""
        if size > self.ring.largest or self.aside or not self.is_stuck(size):
            return False
        self.ring.drop("ring_full")
        return True

    def _open_tally(self, entry: Entry) -> None:
        """Have updates of this form folded in place from now on, if only such came lately."""
        tally, size = self._tallies.get(entry.form), entry.size
        lately = self._unfolded[-TALLY_EVERY:]
        if tally is not None and self.is_stuck(size) and all(one.form == entry.form for one in lately):
            self._fold()
            tally.open()
            self._tally = tally

    def _fold(self) -> None:
        """Fold what lies there: updates of one form that follow one another at once."""
        tally, self._tally = self._tally, None
        if tally is not None:
            at, count, told = tally.close()
            if tally.count:
                self._conflator.add_many(at, tally.names, told, count)
        entries, self._unfolded = self._unfolded, []
        for number, group in itertools.groupby(entries, key=operator.attrgetter("form")):
            same = list(group)
            names = self._forms(number).names
            count = Count.of([one.index if one.kind & INDEXED else None for one in same])
            self._conflator.add_many(same[-1].at, names, spans(same, len(names)), count)

    @property
    def waiting(self) -> int:
        """Numbers that lie aside, and folded updates that are not published."""
        return len(self.aside) + self.folded - self._told

    @property
    def accepted(self) -> int:
        """Records handed in so far, each folded update counted as one."""
        plain = self.ring.published - self._folds
        return plain + self._told + self.waiting + sum(self.dropped().values())

    def give_up(self) -> None:
        """Count what still waits as not sent. Needs the token."""
        super().give_up()
        self._fold()
        self.ring.words[W_FOLDED] = self._told
        self._conflator.flush()
