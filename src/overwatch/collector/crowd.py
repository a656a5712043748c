"""Connections that must not crowd out others: how many there are, and how long each may take to ask.

Rules: a connection beyond the caps is closed at once; one whose request does not begin, or does not end, in
time is cut, whatever trickles in. One that has not said a line costs next to nothing. Runs in the event loop
only. Must not know what is asked.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

import msgspec
from aiohttp import web

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HANDSHAKE_S: Final = 10.0
_BACKLOG: Final = 512
_LONGEST_WORD: Final = 1 << 10
"""So many bytes without the end of a line are for the web server to refuse."""
LINGER_S: Final = 2.0
"""How long open requests may take to end when an application is taken down, in seconds."""


class CrowdConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`connections` of a listener."""

    max_connections: int = 1024
    """Most open connections."""
    max_connections_per_peer: int = 256
    """Most open connections from one address."""
    read_header_timeout_s: float = 10.0
    """Longest time from a request's first byte, or from the connection, to its last header, in seconds."""
    request_timeout_s: float | None = None
    """Longest time from the last header to the answer, in seconds; no limit if left out."""
    write_timeout_s: float = 30.0
    """Longest time for a client to read an answer, in seconds."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} {value} is not positive")


class Crowd:
    """All connections of one listener."""

    def __init__(self, config: CrowdConfig) -> None:
        self.config = config
        self._by_peer: Counter[str] = Counter()
        self._watched: dict[asyncio.BaseTransport, _Watched] = {}
        self.turned_away = 0
        """Connections beyond the caps."""
        self.cut = 0
        """Connections that took too long."""

    @property
    def size(self) -> int:
        """Open connections."""
        return len(self._watched)

    def watch(self, application: web.Application) -> None:
        """Hear when requests begin and end."""

        @web.middleware
        async def mark(request: web.Request, handler: _Handler) -> web.StreamResponse:
            watched = None if request.transport is None else self._watched.get(request.transport)
            if watched is None:
                return await handler(request)
            watched.begin(self.config.request_timeout_s)
            try:
                return await handler(request)
            finally:
                watched.end()

        application.middlewares.insert(0, mark)

    def around(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """A factory of the same protocols, watched; each is made once its connection has said something."""
        return lambda: _Watched(self, make)

    def enter(self, transport: asyncio.BaseTransport, peer: str, watched: "_Watched") -> bool:
        """Whether there is room for one more of a peer."""
        full = len(self._watched) >= self.config.max_connections
        if full or self._by_peer[peer] >= self.config.max_connections_per_peer:
            self.turned_away += 1
            return False
        self._by_peer[peer] += 1
        self._watched[transport] = watched
        return True

    def settle(self, transport: asyncio.BaseTransport) -> None:
        """A connection of many requests has asked its first; from here on others keep its time."""
        watched = self._watched.get(transport)
        if watched is not None:
            watched.begin(None)

    def begin(self, transport: asyncio.BaseTransport) -> None:
        """The headers of a request are here."""
        watched = self._watched.get(transport)
        if watched is not None:
            watched.begin(self.config.request_timeout_s)

    def end(self, transport: asyncio.BaseTransport) -> None:
        """The answer to it is made."""
        watched = self._watched.get(transport)
        if watched is not None:
            watched.end()

    def close_silent(self) -> None:
        """End the connections that have not asked anything."""
        for watched in tuple(self._watched.values()):
            watched.close_silent()

    def leave(self, transport: asyncio.BaseTransport, peer: str) -> None:
        """A connection of a peer ended."""
        if self._watched.pop(transport, None) is not None:
            self._by_peer[peer] -= 1
            if not self._by_peer[peer]:
                del self._by_peer[peer]


def _peer(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else ""


class _Watched(asyncio.Protocol):
    """One connection: passes everything on, and keeps the time. There are many, so it is small."""

    __slots__ = (
        "_asked",
        "_asking",
        "_crowd",
        "_early",
        "_inner",
        "_make",
        "_peer",
        "_reading",
        "_transport",
    )

    def __init__(self, crowd: Crowd, make: Callable[[], asyncio.Protocol]) -> None:
        self._crowd = crowd
        self._make = make
        self._inner: asyncio.Protocol | None = None
        """Who answers, from the first line on."""
        self._early = b""
        """What came before."""
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        self._peer = _peer(stream)
        if not self._crowd.enter(stream, self._peer, self):
            stream.abort()
            return
        self._transport = stream
        self._limit(self._crowd.config.read_header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._asking)
        self._asking = None
        _cancel(self._reading)
        self._reading = None
        if self._transport is not None:
            self._crowd.leave(self._transport, self._peer)
            if self._inner is not None:
                self._inner.connection_lost(exc)
            self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if not self._asked and self._asking is None:
            self._limit(self._crowd.config.read_header_timeout_s)
        if self._inner is None:
            self._early += data
            if b"\n" not in data and len(self._early) <= _LONGEST_WORD:
                return
            self._inner, data, self._early = self._make(), self._early, b""
            self._inner.connection_made(self._transport)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def close_silent(self) -> None:
        """End the connection, if nothing was asked."""
        if self._inner is None and self._transport is not None:
            self._transport.close()

    def begin(self, within_s: float | None) -> None:
        """The headers are here; the answer must follow within so many seconds."""
        self._asked = True
        _cancel(self._asking)
        self._asking = None
        _cancel(self._reading)
        self._reading = None
        if within_s is not None:
            self._limit(within_s)

    def end(self) -> None:
        """The answer is made; what is left is that the client reads it."""
        self._asked = False
        _cancel(self._asking)
        self._asking = None
        if self._transport is not None:
            loop = asyncio.get_running_loop()
            self._reading = loop.call_later(self._crowd.config.write_timeout_s, self._cut_unread)

    def _limit(self, seconds: float) -> None:
        _cancel(self._asking)
        self._asking = asyncio.get_running_loop().call_later(seconds, self._cut)

    def _cut(self) -> None:
        if self._transport is not None:
            self._crowd.cut += 1
            self._transport.abort()

    def _cut_unread(self) -> None:
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._cut()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class Ahead(Protocol):
    """What stands before a web server's connections and may answer by itself."""

    def before(self, inner: asyncio.Protocol, crowd: Crowd) -> asyncio.Protocol:
        """Stand before one connection."""
        ...

    async def rest(self, within_s: float) -> None:
        """Return once no request is being answered here, or after so many seconds."""
        ...


class CrowdedSite(web.SockSite):
    """A site whose connections are watched."""

    def __init__(
        self,
        runner: web.AppRunner,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        crowd: Crowd,
        ahead: Ahead | None = None,
    ) -> None:
        super().__init__(runner, sock, ssl_context=context, backlog=_BACKLOG)
        self._watching = crowd
        self._ahead = ahead

    async def start(self) -> None:
        """Accept connections."""
        await web.BaseSite.start(self)
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner was not set up")
        self._server = await asyncio.get_running_loop().create_server(
            self._watching.around(lambda: self._stand_before(server())),
            sock=self._sock,
            ssl=self._ssl_context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if self._ssl_context is None else _HANDSHAKE_S,
        )

    async def stop(self) -> None:
        """Accept no more; what is being answered before the web server is answered."""
        await super().stop()
        self._watching.close_silent()
        if self._ahead is not None:
            await self._ahead.rest(LINGER_S)

    def _stand_before(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        return inner if self._ahead is None else self._ahead.before(inner, self._watching)
