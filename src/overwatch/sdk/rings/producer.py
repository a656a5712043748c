"""A ring with what waits beside it: the way in that never waits and never loses count.

Rules: `put` may be called from any thread and from a signal handler. Where another writes just then, the
record goes aside and the next writer takes it along. Facts that find no room are held, bounded; updates are
folded into one; other numbers are dropped. Everything handed in is published, folded, waiting or counted as
dropped. `writer` explains why taking the token is safe. Must not know what happens to records once they are
published.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from overwatch.sdk.conflate import Conflator
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.file import W_FOLDED, W_RELEASED, Kind, untagged
from overwatch.sdk.rings.records import Forms, content_of, folded_entry, row_of
from overwatch.sdk.rings.writer import Entry, RingWriter

ASIDE_BYTES: Final = 8 << 20
"""What may lie aside while another writes."""
_RESERVED: Final = 8
"""Such a part of the largest record stays free of what is only offered."""
_COST: Final = 128
"""Memory of a record besides its payload, about."""

Aside: TypeAlias = Entry | str
"""A record that someone was in the way of, or the reason of a drop."""


class RingProducer:
    """The way into one ring; what finds no room is held up to a bound. `wake` is called when something is."""

    def __init__(self, ring: RingWriter, wake: Callable[[], None], backlog_bytes: int = 0) -> None:
        self.ring = ring
        self.aside: deque[Aside] = deque()
        self._token = ring.token
        self._aside_bytes = 0
        """About what lies aside; only ever a bound."""
        self.missed: Callable[[], None] = lambda: None
        """Called for each record that comes when the ring is closed."""
        self._wake = wake
        self._limit = backlog_bytes
        self._backlog: deque[Entry] = deque()
        self._backlog_bytes = 0
        self._is_holding = False
        """Something may wait for room."""
        self._full_at: int | None = None
        """The reader's mark when the first of what waits found no room: until it moves there is none."""
        self._trying: int | None = None
        """How many were published before the first of the backlog was tried."""

    def put(self, tag: int, payload: bytes) -> None:
        """Hand in one record."""
        token = self._token
        try:
            del token[0]
        except IndexError:
            self.set_aside(Entry(tag, payload))
            return
        # No call may stand between `del` and this `try`: a signal handler that raises runs behind calls, and
        # the token would never come back.
        try:
            if self._is_holding or not self.ring.append(tag, payload):
                self._take(Entry(tag, payload))
        except BaseException:
            self.recover()
            raise
        finally:
            token.append(None)
        # Whoever found no token while this one was out has left its record aside, and has gone.
        if self.aside:
            self.flush()

    def offer(self, entry: Entry) -> bool:
        """Write a large record where that leaves room for others; whether it is done with."""
        token, ring = self._token, self.ring
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
            return ring.append(entry.tag, entry.payload)
        except BaseException:
            self.recover()
            raise
        finally:
            token.append(None)

    def set_aside(self, entry: Aside) -> None:
        """Leave a record, or the reason of a drop, to the next writer."""
        if self.ring.closed:
            self.missed()
            return
        if isinstance(entry, Entry):
            if self._aside_bytes > ASIDE_BYTES:
                entry = "contended"
            else:
                self._aside_bytes += len(entry.payload) + _COST
        self.aside.append(entry)
        # The holder may have looked for the last time before the append: then the token is back.
        if self._token:
            self.flush()

    def flush(self) -> bool:
        """Write what waits as far as there is room; whether nothing waits any more."""
        token = self._token
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

    def _take(self, entry: Entry) -> None:
        """Write a record behind all that wait, or do with it what is done without room. Needs the token."""
        if self.aside:
            self._take_aside()
        self._write(entry)

    def _write(self, entry: Entry) -> None:
        ring = self.ring
        if ring.closed:
            return
        if entry.size > ring.largest:
            ring.drop("too_large")
        elif (self._is_holding and not self._drain()) or not ring.append(entry.tag, entry.payload):
            if not self._is_holding:
                self._is_holding, self._full_at = True, ring.seen
            self._full(entry)

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
        if self.ring.words[W_RELEASED] == self._full_at:
            return False
        while self._backlog or self._refill():
            first = self._backlog[0]
            self._trying = self.ring.published
            if not self.ring.append(first.tag, first.payload):
                self._trying, self._full_at = None, self.ring.seen
                return False
            self._sent()
        self._is_holding, self._full_at = False, None
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

    def _full(self, entry: Entry) -> None:
        """Hold a record that found no room."""
        if self._backlog_bytes + entry.size > self._limit:
            self.ring.drop("backlog_full")
            return
        self._backlog.append(entry)
        self._backlog_bytes += entry.size
        self._wake()

    @property
    def waiting(self) -> int:
        """Records that were handed in and are neither published nor dropped."""
        return len(self._backlog) + len(self.aside)

    @property
    def accepted(self) -> int:
        """Records handed in so far: what is published, waits, or was dropped."""
        return self.ring.published + self.waiting + self.ring.file.dropped().total()

    def give_up(self) -> None:
        """Count what still waits as not sent. Needs the token."""
        self._take_aside()
        if self.waiting:
            self.ring.drop("not_sent", self.waiting)
        self._backlog.clear()


class NumberProducer(RingProducer):
    """Numbers: of a full ring updates are folded into one, and columns are dropped."""

    def __init__(
        self, ring: RingWriter, wake: Callable[[], None], conflator: Conflator, forms: Forms
    ) -> None:
        super().__init__(ring, wake)
        self._conflator = conflator
        self._forms = forms
        self._folds = 0
        """Folded records published."""
        self._sent_updates = 0
        """Updates in them."""
        self._pending = 0
        """The same once the folded record in the backlog is published."""

    @property
    def folded(self) -> int:
        """Updates that were ever folded."""
        return self.ring.words[W_FOLDED]

    @property
    def waits(self) -> bool:
        """Whether anything waits for room or for its turn."""
        return bool(self.aside or self._backlog or self._conflator.n)

    def _refill(self) -> bool:
        folded = self._conflator.flush()
        if folded is None:
            return False
        self._backlog.append(folded_entry(folded, self.folded))
        self._backlog_bytes += self._backlog[0].size
        self._pending = self.folded
        return True

    def _sent(self) -> None:
        self._folds += 1
        self._sent_updates = self._pending
        super()._sent()

    def _full(self, entry: Entry) -> None:
        kind, form = untagged(entry.tag)
        content = content_of(entry, self._forms)[0] if kind == Kind.FRAME else None
        if kind == Kind.UPDATE:
            values, at, index = row_of(entry.payload)
            self._conflator.add_row(self._forms(form).names, values, at, index)
        elif isinstance(content, Update):
            self._conflator.add(content.at, content.values, content.index)
        else:
            self.ring.drop("ring_full")
            return
        self.ring.words[W_FOLDED] += 1
        self._wake()

    @property
    def waiting(self) -> int:
        """Numbers that lie aside, and folded updates that are not published."""
        return len(self.aside) + self.folded - self._sent_updates

    @property
    def accepted(self) -> int:
        """Records handed in so far, each folded update counted as one."""
        plain = self.ring.published - self._folds
        return plain + self._sent_updates + self.waiting + self.ring.file.dropped().total()

    def give_up(self) -> None:
        """Count what still waits as not sent. Needs the token."""
        super().give_up()
        self.ring.words[W_FOLDED] = self._sent_updates
        self._conflator.flush()
