"""The collector's one event loop, in a thread of its own, and the web applications it hosts.

Must not know what the applications answer.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from aiohttp import hdrs, web

from overwatch.collector.connections import (
    HANDLING,
    LINGER_S,
    SERVER,
    ConnectionLimiter,
    ConnectionsConfig,
    LimitedConnection,
)
from overwatch.collector.net import Address, Listening, listen
from overwatch.collector.tls import Certificates

T = TypeVar("T")

_CALL_S: Final = 30.0
_HANDSHAKE_S: Final = 10.0
_BACKLOG: Final = 512


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
