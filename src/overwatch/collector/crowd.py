"""Connections that must not crowd out others: how many there are, and how long each may take to ask.

Rules: a connection beyond the caps gets an answer that names the cap, and ends. One address may have all
connections while no other needs one: at the total cap the address with the most gives one up, idle ones
first, to an address with fewer. A cap that takes effect is reported when it begins and when it ends. One
whose request does not begin, or does not end, in time is cut, whatever trickles in. One that has not begun a
line costs next to nothing. Runs in the event loop only. Must not know what is asked.
"""

import asyncio
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

import msgspec
from aiohttp import hdrs, web

from overwatch import platform

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HANDSHAKE_S: Final = 10.0
_BACKLOG: Final = 512
_LONGEST_WORD: Final = 1 << 10
"""So many bytes without the end of a line are for the web server to refuse."""
CALM_S: Final = 30.0
"""A cap that refused nothing for so many seconds takes effect no more."""
_SPARE_FILES: Final = 128
"""Descriptors that are not for connections."""
_FEWEST: Final = 8
"""Connections that are taken whatever the system's limit is."""
_WANTED_FILES: Final = 1 << 16
_MOST_REFUSALS: Final = 2048
"""Refused connections that wait for their answer; more are closed without one."""
LINGER_S: Final = 2.0
"""How long open requests may take to end when an application is taken down, in seconds."""


class CrowdConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`connections` of a listener."""

    max_connections: int = 4096
    """Most open connections; fewer where the system's limit of open files is too small for them."""
    max_connections_per_peer: int | None = None
    """Most open connections from one address; all, where no other address needs one, if left out."""
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


def raise_file_limit() -> None:
    """Let this process open as many files as the system lets it, within reason."""
    platform.raise_file_limit(_WANTED_FILES)


def most_connections(wanted: int, files_each: int) -> int:
    """As many of the wanted connections as half of the process's open files are enough for."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max((limit - _SPARE_FILES) // (2 * files_each), _FEWEST))


class Refusing(Protocol):
    """Makes the answer to a refused connection."""

    def __call__(self, transport: asyncio.Transport, reason: str) -> asyncio.Protocol:
        """The protocol that answers with the reason, and closes."""
        ...


class Crowd:
    """All connections of one listener."""

    def __init__(
        self,
        config: CrowdConfig,
        report: Callable[[str | None], None] = lambda _: None,
        *,
        refusing: Refusing | None = None,
        files_each: int = 1,
    ) -> None:
        """`report` gets the cap that takes effect, and `None` once none does any more."""
        self.config = config
        self.most = most_connections(config.max_connections, files_each)
        """Most open connections."""
        self._most_refusals = most_connections(_MOST_REFUSALS, 4)
        self.report = report
        """Gets the cap that takes effect, and `None` once none does any more."""
        self._refusing = refusing or HttpRefusal
        self._refused_at = 0.0
        self._calming: asyncio.TimerHandle | None = None
        self._by_peer: Counter[str] = Counter()
        self._watched: dict[asyncio.BaseTransport, _Watched] = {}
        self._answering: set[asyncio.Transport] = set()
        self.turned_away = 0
        """Connections beyond the caps."""
        self.displaced = 0
        """Connections that were given up for those of other addresses."""
        self.cut = 0
        """Connections that took too long, or broke the rules of their protocol in a way that costs others."""

    @property
    def is_short_of_files(self) -> bool:
        """Whether the system's limit of open files is smaller than the cap."""
        return self.most < self.config.max_connections

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

    def enter(self, transport: asyncio.Transport, peer: str, watched: "_Watched") -> bool:
        """Whether there is room for one more of a peer; one without room is answered."""
        cap = self._cap(peer)
        if cap is not None:
            self._takes_effect(cap)
            if not self._make_room(peer):
                self.turned_away += 1
                self._refuse(transport, cap)
                return False
        self._by_peer[peer] += 1
        self._watched[transport] = watched
        return True

    def _cap(self, peer: str) -> str | None:
        """The cap that one more connection of a peer is beyond."""
        of_peer, mine = self.config.max_connections_per_peer, self._by_peer[peer]
        if of_peer is not None and mine >= of_peer:
            return f"{mine} connections are open from {peer}, of at most {of_peer} (max_connections_per_peer)"
        if len(self._watched) < self.most:
            return None
        found = f"{len(self._watched)} connections are open, of at most {self.most}"
        if self.is_short_of_files:
            return f"{found} (the system's limit of open files; raise it: ulimit -n, LimitNOFILE)"
        return f"{found} (max_connections)"

    def _make_room(self, peer: str) -> bool:
        """Take a connection from the address with the most, where this one would still have fewer."""
        of_peer = self.config.max_connections_per_peer
        if of_peer is not None and self._by_peer[peer] >= of_peer:
            return False
        most, count = max(self._by_peer.items(), key=lambda one: one[1], default=("", 0))
        if count <= self._by_peer[peer] + 1:
            return False
        given_up = min((one for one in self._watched.values() if one.peer == most), key=_Watched.rank)
        self.displaced += 1
        given_up.give_up()
        return True

    def _refuse(self, transport: asyncio.Transport, cap: str) -> None:
        if len(self._answering) >= self._most_refusals:
            transport.abort()
            return
        self._answering.add(transport)
        transport.set_protocol(self._refusing(transport, cap))
        asyncio.get_running_loop().call_later(LINGER_S, self._end_refusal, transport)

    def _end_refusal(self, transport: asyncio.Transport) -> None:
        self._answering.discard(transport)
        transport.abort()

    def _takes_effect(self, cap: str) -> None:
        loop = asyncio.get_running_loop()
        self._refused_at = loop.time()
        if self._calming is None:
            self.report(cap)
            self._calming = loop.call_later(CALM_S, self._look_again)

    def _look_again(self) -> None:
        """Whether the cap takes effect still."""
        loop = asyncio.get_running_loop()
        left = self._refused_at + CALM_S - loop.time()
        self._calming = loop.call_later(left, self._look_again) if left > 0 else None
        if self._calming is None:
            self.report(None)

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
        """A connection of a peer ended; a second call does nothing."""
        if self._watched.pop(transport, None) is not None:
            self._by_peer[peer] -= 1
            if not self._by_peer[peer]:
                del self._by_peer[peer]


class HttpRefusal(asyncio.Protocol):
    """Answers a connection beyond a cap once it asks: a client may take no answer before."""

    def __init__(self, transport: asyncio.Transport, reason: str) -> None:
        self._transport = transport
        body = f"{reason}\n".encode()
        self._answer = (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Retry-After: 2\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )

    def data_received(self, _: bytes) -> None:
        """Answer; what else comes is read on, so that the client is not reset before it reads the answer."""
        if self._answer and not self._transport.is_closing():
            self._transport.write(self._answer)
            self._answer = b""
            if self._transport.can_write_eof():
                self._transport.write_eof()


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address at the other end."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else ""


class _Watched(asyncio.Protocol):
    """One connection: passes everything on, and keeps the time. There are many, so it is small."""

    __slots__ = (
        "_active",
        "_asked",
        "_asking",
        "_crowd",
        "_early",
        "_inner",
        "_make",
        "_reading",
        "_transport",
        "peer",
    )

    def __init__(self, crowd: Crowd, make: Callable[[], asyncio.Protocol]) -> None:
        self._crowd = crowd
        self._make = make
        self._inner: asyncio.Protocol | None = None
        """Who answers, from the first line on."""
        self._early = b""
        """What came before."""
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        """Its address."""
        self._active = 0.0
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        self.peer = peer_of(stream)
        if not self._crowd.enter(stream, self.peer, self):
            return
        self._transport = stream
        self._active = asyncio.get_running_loop().time()
        self._limit(self._crowd.config.read_header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._asking)
        self._asking = None
        _cancel(self._reading)
        self._reading = None
        if self._transport is not None:
            self._crowd.leave(self._transport, self.peer)
            if self._inner is not None:
                self._inner.connection_lost(exc)
            self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._active = asyncio.get_running_loop().time()
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

    def rank(self) -> tuple[bool, float]:
        """The smallest one is given up first: one between requests, then the longest silent."""
        return self._asked or self._asking is not None, self._active

    def give_up(self) -> None:
        """End the connection, for the sake of another one's."""
        if self._transport is None:
            return
        self._crowd.leave(self._transport, self.peer)
        if self.rank()[0]:
            self._transport.abort()
        else:
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


SERVER: Final = "overwatch"
"""The header `Server`: versions are for clients that are let in."""


UNREAD_S: Final = 1.0
"""How long the rest of a refused body is read on, so that its sender sees the answer, in seconds."""
HANDLING: Final[Mapping[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": 75.0,
    "lingering_time": UNREAD_S,
}
"""How aiohttp handles a connection."""


class _WebEnd(web.RequestHandler):
    """The web server's end of a connection; its errors repeat nothing of what came."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no HTTP, and to a fault of ours."""
        if message is not None:
            message = f"{HTTPStatus(status).phrase}\n"
        answer = super().handle_error(request, status, exc, message)
        answer.headers[hdrs.SERVER] = SERVER
        return answer


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
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._watching.around(lambda: self._stand_before(_WebEnd(server, loop=loop, **HANDLING))),
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
