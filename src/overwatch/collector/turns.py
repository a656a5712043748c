"""Whose body is taken in next: who had least, so that who sends much waits for itself, not others for it.

Owns the order in which bodies are decoded: start-time fair queueing by bytes over peers. A peer that asks
seldom is next whatever waits of others; of two that always wait, each has half. Rules: one small body at a
time, with a look at the sockets after each; beside it one body that threads decode; of each of both kinds a
peer's bodies keep their order. Runs in the event loop only. Must not know what bodies hold.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

_MOST_PEERS: Final = 4096
"""Peers remembered; beyond them those are forgotten who owe nothing."""


@dataclass(slots=True, order=True)
class _Waiting:
    """A body on its way in."""

    start: int
    """What its peer had in bytes when its turn is due, or what everybody had when it came."""
    number: int
    granted: asyncio.Future[None] = field(compare=False)


class _Kind:
    """Bodies of one kind, one at a time."""

    def __init__(self) -> None:
        self.busy = False
        self.waiting: list[_Waiting] = []
        """A heap; those who wait no more are passed over when they come up."""
        self._ends: dict[str, int] = {}
        """What each peer had, the bodies that wait among it."""
        self._reached = 0
        """What a peer that always waits had."""
        self._number = 0

    def charge(self, peer: str, size: int) -> int:
        """A peer has a body more; returns where that begins."""
        start = max(self._reached, self._ends.get(peer, 0))
        self._ends[peer] = start + size
        if len(self._ends) > _MOST_PEERS:
            self._ends = {peer: end for peer, end in self._ends.items() if end > self._reached}
        return start

    def is_next(self, peer: str) -> bool:
        """Whether a peer had no more than one that always waits, and nobody waits who had as little."""
        return self._ends.get(peer, 0) <= self._reached and not (
            self.waiting and self.waiting[0].start <= self._reached
        )

    def add(self, peer: str, size: int) -> asyncio.Future[None]:
        """A body waits; the future is its turn."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        heappush(self.waiting, _Waiting(self.charge(peer, size), self._number, granted))
        self.grant()
        return granted

    def grant(self) -> None:
        """Let the next one in, if there is one."""
        while self.waiting and not self.busy:
            waiting = heappop(self.waiting)
            if not waiting.granted.cancelled():
                self.enter(waiting.start)
                waiting.granted.set_result(None)

    def enter(self, start: int) -> None:
        """A body that begins there is being taken in."""
        self._reached = max(self._reached, start)
        self.busy = True

    def end(self) -> None:
        """The next one's turn, once the sockets were looked at: who came meanwhile is in it too."""

        def free() -> None:
            self.busy = False
            self.grant()

        asyncio.get_running_loop().call_soon(free)


class Turns:
    """The bodies that wait, by peer."""

    def __init__(self) -> None:
        self._small, self._heavy = _Kind(), _Kind()

    @asynccontextmanager
    async def turn(self, peer: str, size: int, *, heavy: bool) -> AsyncIterator[None]:
        """Wait for a turn, and hold it in the block; `heavy` is what threads decode."""
        kind = self._heavy if heavy else self._small
        granted = kind.add(peer, size)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                kind.end()
            raise
        try:
            yield
        finally:
            kind.end()

    @property
    def is_free(self) -> bool:
        """Whether a small body would have its turn at once."""
        return not self._small.busy and not self._small.waiting

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a turn or waits for one."""
        return self.is_free and not self._heavy.busy and not self._heavy.waiting

    def is_next(self, peer: str) -> bool:
        """Whether a peer that owes nothing would go before all that wait."""
        return self._small.is_next(peer)

    def pass_by(self, peer: str, size: int) -> None:
        """Have a small body's turn at once; it ends by itself once the sockets were looked at."""
        start = self._small.charge(peer, size)
        if not self._small.busy:
            self._small.enter(start)
            self._small.end()
