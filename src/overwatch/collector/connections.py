"""The one event loop and its web applications: how many connections there may be, and how long each may take.

Rules: a connection beyond a cap gets an answer that names the cap, and ends; a cap that takes effect is
reported when it begins and when it ends. A connection whose request does not begin, or does not end, in time
is cut, whatever trickles in. Runs in the event loop only. Must not know what is asked.
"""

import asyncio
import resource
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

import msgspec
from aiohttp import hdrs, web

from overwatch import platform
from overwatch.collector.net import Address, Listening, listen
from overwatch.collector.setting_types import bounded
from overwatch.collector.tls import Certificates

T = TypeVar("T")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CALM_S: Final = 30.0
"""A cap that refused nothing for so many seconds takes effect no more."""
_SPARE_FILES: Final = 128
"""Descriptors that are not for connections."""
_FEWEST: Final = 8
"""Connections that are taken whatever the system's limit is."""
_WANTED_FILES: Final = 1 << 16
_CALL_S: Final = 30.0
_HANDSHAKE_S: Final = 10.0
_BACKLOG: Final = 512
_MOST_REFUSALS: Final = 2048
"""Refused connections that wait for their answer; more are closed without one."""
LINGER_S: Final = 2.0
"""How long open requests may take to end when an application is taken down, in seconds."""
UNREAD_S: Final = 1.0
"""How long the rest of a refused body is read on, so that its sender sees the answer, in seconds."""
SERVER: Final = "overwatch"
"""The header `Server`: versions are for clients that are let in."""
HANDLING: Final[Mapping[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": 75.0,
    "lingering_time": UNREAD_S,
}
"""How aiohttp handles a connection."""


class ConnectionsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`connections` of a listener."""

    max_connections: int = 4096
    """Most open connections; fewer where the system's limit of open files is too small for them."""
    max_connections_per_peer: int | None = None
    """Most open connections from one address; all if left out."""
    read_header_timeout_s: float = 10.0
    """Longest time from a request's first byte, or from the connection, to its last header, in seconds."""
    request_timeout_s: float | None = None
    """Longest time from the last header to the answer, in seconds; no limit if left out."""
    write_timeout_s: float = 30.0
    """Longest time for a client to read an answer, in seconds."""

    def __post_init__(self) -> None:
        bounded(self, *self.__struct_fields__)


def raise_file_limit() -> None:
    """Let this process open as many files as the system lets it, within reason."""
    platform.raise_file_limit(_WANTED_FILES)


def most_connections(wanted: int) -> int:
    """As many of the wanted connections as half of the process's open files are enough for."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max((limit - _SPARE_FILES) // 2, _FEWEST))


class ConnectionLimiter:
    """All connections of one listener."""

    def __init__(self, config: ConnectionsConfig) -> None:
        self.config = config
        self.most = most_connections(config.max_connections)
        """Most open connections."""
        self._most_refusals = most_connections(_MOST_REFUSALS)
        self.report: Callable[[str | None], None] = lambda _: None
        """Gets the cap that takes effect, and `None` once none does any more."""
        self._refused_at = 0.0
        self._calming: asyncio.TimerHandle | None = None
        self._by_peer: Counter[str] = Counter()
        self._refusals = 0
        self.turned_away = 0
        """Connections beyond the caps."""
        self.cut = 0
        """Connections that took too long."""

    @property
    def is_short_of_files(self) -> bool:
        """Whether the system's limit of open files is smaller than the cap."""
        return self.most < self.config.max_connections

    @property
    def size(self) -> int:
        """Open connections."""
        return self._by_peer.total()

    def watch(self, application: web.Application) -> None:
        """Learn when requests begin and end."""

        @web.middleware
        async def mark(request: web.Request, handler: _Handler) -> web.StreamResponse:
            connection = request.protocol
            if not isinstance(connection, LimitedConnection):
                return await handler(request)
            connection.begin()
            try:
                return await handler(request)
            finally:
                connection.end()

        application.middlewares.insert(0, mark)

    def enter(self, transport: asyncio.Transport, peer: str) -> bool:
        """Whether there is room for one more of a peer; one without room is answered."""
        cap = self._cap(peer)
        if cap is None:
            self._by_peer[peer] += 1
            return True
        self.turned_away += 1
        self._takes_effect(cap)
        self._refuse(transport, cap)
        return False

    def leave(self, peer: str) -> None:
        """A connection of a peer ended."""
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]

    def _cap(self, peer: str) -> str | None:
        """The cap that one more connection of a peer is beyond."""
        of_peer, mine = self.config.max_connections_per_peer, self._by_peer[peer]
        if of_peer is not None and mine >= of_peer:
            return f"{mine} connections are open from {peer}, of at most {of_peer} (max_connections_per_peer)"
        if self.size < self.most:
            return None
        found = f"{self.size} connections are open, of at most {self.most}"
        if self.is_short_of_files:
            return f"{found} (the system's limit of open files; raise it: ulimit -n, LimitNOFILE)"
        return f"{found} (max_connections)"

    def _refuse(self, transport: asyncio.Transport, cap: str) -> None:
        if self._refusals >= self._most_refusals:
            transport.abort()
            return
        self._refusals += 1
        transport.set_protocol(_Refusal(transport, cap))
        asyncio.get_running_loop().call_later(LINGER_S, self._end_refusal, transport)

    def _end_refusal(self, transport: asyncio.Transport) -> None:
        self._refusals -= 1
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


class _Refusal(asyncio.Protocol):
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


class LimitedConnection(web.RequestHandler):
    """One connection: aiohttp's, within the limits of its listener; its errors repeat no input."""

    __slots__ = ("_deadline", "_is_begun", "_limiter", "_peer")

    def __init__(
        self, limiter: ConnectionLimiter, server: web.Server, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(server, loop=loop, **HANDLING)
        self._limiter = limiter
        self._peer: str | None = None
        """Its address, while it has a place."""
        self._deadline: asyncio.TimerHandle | None = None
        self._is_begun = True
        """A request has begun, or the connection, and is not answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, if there is one."""
        stream = cast("asyncio.Transport", transport)
        name = stream.get_extra_info("peername")
        peer = str(name[0]) if isinstance(name, tuple) and name else ""
        if self._limiter.enter(stream, peer):
            self._peer = peer
            super().connection_made(transport)
            self._cut_after(self._limiter.config.read_header_timeout_s)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the place back."""
        self._cut_after(None)
        if self._peer is not None:
            self._limiter.leave(self._peer)
            self._peer = None
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A request begins, or goes on."""
        if not self._is_begun:
            self._is_begun = True
            self._cut_after(self._limiter.config.read_header_timeout_s)
        super().data_received(data)

    def begin(self) -> None:
        """The headers of a request are here; the answer must follow in time."""
        self._cut_after(self._limiter.config.request_timeout_s)

    def end(self) -> None:
        """The answer is made; what is left is that the client reads it."""
        self._is_begun = False
        self._cut_after(None)
        if self._peer is not None:
            self._deadline = self._loop.call_later(self._limiter.config.write_timeout_s, self._cut_unread)

    def _cut_after(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = self._loop.call_later(seconds, self._cut)

    def _cut(self) -> None:
        if self.transport is not None:
            self._limiter.cut += 1
            self.transport.abort()

    def _cut_unread(self) -> None:
        self._deadline = None
        if self.transport is not None and self.transport.get_write_buffer_size():
            self._cut()

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


class LoopThread:
    """An event loop in a thread; start once, stop once."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="listeners", daemon=True)
        self._hosted: dict[web.AppRunner, asyncio.Server] = {}

    def start(self) -> None:
        """Begin to run the loop."""
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    async def host(
        self,
        runner: web.AppRunner,
        listening: Listening,
        context: ssl.SSLContext | None,
        limiter: ConnectionLimiter,
    ) -> None:
        """Serve an application at a socket, in plain text without a `context`; runs in the loop."""
        await runner.setup()
        server, loop = runner.server, asyncio.get_running_loop()
        if server is None:
            raise RuntimeError("the runner was not set up")
        self._hosted[runner] = await loop.create_server(
            lambda: LimitedConnection(limiter, server, loop),
            sock=listening.sock,
            ssl=context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if context is None else _HANDSHAKE_S,
        )

    async def drop(self, runner: web.AppRunner) -> None:
        """Stop accepting, let open requests end, close; runs in the loop."""
        self._hosted.pop(runner).close()
        await runner.cleanup()

    def stop(self) -> None:
        """Drop what is still hosted, end the loop and its thread."""
        # An event loop with an open server in it may never close.
        for runner in tuple(self._hosted):
            self.call(self.drop(runner))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _without_version(_: web.Request, answer: web.StreamResponse) -> None:
    answer.headers[hdrs.SERVER] = SERVER


class WebListener:
    """A web application at an address; made by `Context.web_listener`, which guards it."""

    def __init__(
        self,
        loop: LoopThread,
        wanted: Address,
        app: web.Application,
        certificates: Certificates | None,
        connections: ConnectionsConfig | None = None,
    ) -> None:
        self._loop = loop
        self.may_move = True
        """Whether another port will do where the wanted one is busy; set before `start`."""
        self.announce: Callable[[Listening, bool], None] = lambda _, __: None
        """Gets where it listens, and whether with TLS."""
        self._wanted = wanted
        self._certificates = certificates
        self.limiter = ConnectionLimiter(connections or ConnectionsConfig())
        """Its connections."""
        self.limiter.watch(app)
        app.on_response_prepare.append(_without_version)
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,
            shutdown_timeout=LINGER_S,
            **HANDLING,
        )
        self._opened = False

    def start(self) -> None:
        """Listen and serve; raises `AddressError` when no port can be had."""
        listening = listen(self._wanted, may_move=self.may_move)
        try:
            context = None if self._certificates is None else self._certificates.context()
            hosted = self._loop.host(self._runner, listening, context, self.limiter)
            self._loop.call(hosted)
        except BaseException:
            listening.sock.close()
            raise
        self._opened = True
        self.announce(listening, self._certificates is not None)

    def stop(self) -> None:
        """Stop accepting, let open requests end, close; a second call does nothing."""
        if self._opened:
            self._opened = False
            self._loop.call(self._loop.drop(self._runner))
