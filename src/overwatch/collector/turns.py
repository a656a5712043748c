"""Whose body is taken in next: peers in turn, so that who sends much waits for itself, not others for it.

Owns the order in which bodies are decoded, by deficit round robin over peers. Rules: one small body at a
time, with a look at the sockets after each; beside it one body that threads decode; of each of both kinds a
peer's bodies keep their order. Runs in the event loop only. Must not know what bodies hold.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

QUANTUM: Final = 64 << 10
"""Bytes that a peer may have taken in before the next one's turn, one body more or less."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A body on its way in."""

    size: int
    heavy: bool
    granted: asyncio.Future[None]


@dataclass(slots=True)
class _Line:
    """A peer's bodies that wait."""

    bodies: deque[_Waiting]
    credit: int = 0
    """Bytes that it may still have taken in this round."""


class Turns:
    """The bodies that wait, by peer."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, bool], _Line] = {}
        """By peer and kind in the order of turns, the next one first; those of nobody are left out."""
        self._busy: set[bool] = set()
        """Whether a small body (`False`), and one of a thread's (`True`), is being taken in."""

    @asynccontextmanager
    async def turn(self, peer: str, size: int, *, heavy: bool) -> AsyncIterator[None]:
        """Wait for a turn, and hold it in the block; `heavy` is what threads decode."""
        waiting = _Waiting(size, heavy, asyncio.get_running_loop().create_future())
        self._lines.setdefault((peer, heavy), _Line(deque())).bodies.append(waiting)
        self._grant()
        try:
            await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.done() and not waiting.granted.cancelled():
                self._end(heavy=heavy)
            raise
        try:
            yield
        finally:
            self._end(heavy=heavy)

    @property
    def is_free(self) -> bool:
        """Whether a small body would have its turn at once."""
        return False not in self._busy and all(heavy for _, heavy in self._lines)

    def pass_by(self) -> None:
        """Have a small body's turn, where it is free; it ends by itself once the sockets were looked at."""
        self._busy.add(False)
        self._end(heavy=False)

    def _end(self, *, heavy: bool) -> None:
        """The next one's turn, once the sockets were looked at: who came meanwhile is in it too."""

        def free() -> None:
            self._busy.discard(heavy)
            self._grant()

        asyncio.get_running_loop().call_soon(free)

    def _grant(self) -> None:
        while len(self._busy) < 2:
            waiting = self._next()
            if waiting is None:
                return
            self._busy.add(waiting.heavy)
            waiting.granted.set_result(None)

    def _next(self) -> _Waiting | None:
        """The body in turn of those that may go now; it is taken out."""
        able = {key for key in list(self._lines) if self._may_go(key)}
        while able:
            for key in [key for key in self._lines if key in able]:
                line = self._lines[key]
                if line.credit > 0:
                    return self._take(key, line)
                # What a large body took beyond its round is paid for by rounds in which its peer waits.
                line.credit += QUANTUM
                self._lines[key] = self._lines.pop(key)
        return None

    def _may_go(self, key: tuple[str, bool]) -> bool:
        """Whether the first body of a line may be taken in now; who waits no more is forgotten."""
        bodies = self._lines[key].bodies
        while bodies and bodies[0].granted.cancelled():
            bodies.popleft()
        if not bodies:
            del self._lines[key]
            return False
        return bodies[0].heavy not in self._busy

    def _take(self, key: tuple[str, bool], line: _Line) -> _Waiting:
        waiting = line.bodies.popleft()
        line.credit -= waiting.size
        if not line.bodies:
            del self._lines[key]
        return waiting
