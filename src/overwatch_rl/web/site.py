"""Where a server listens: uvicorn, with TLS, and with limits of its connections.

Rules: a connection beyond the cap is answered with 503 once it asks; one that asks nothing, or does not end
the head of its request, is closed in `idle_s`; what is no HTTP is answered with JSON, which repeats nothing
of it, as a header may be a secret. Must not know what is asked.
"""

import asyncio
import contextlib
import json
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from overwatch_rl.web.process import AddressError

LINGER_S: Final = 2.0
"""So long a connection beyond the cap may take to ask."""
MOST_HEAD: Final = 1 << 14
"""Bytes of the head of a request."""
_LONG: Final = f"the address or a header has more than {MOST_HEAD} bytes; send a shorter one"
CLOSE_S: Final = 5
"""So long requests that are being answered may take at the end."""
_BACKLOG: Final = 512
_TICK_S: Final = 0.002
SWEEP_S: Final = 1.0
"""Between two looks at what time has ended."""

_log = logging.getLogger("overwatch_rl.web")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What connections may cost."""

    most: int = 1024
    """Open at a time."""
    read_s: float = 60.0
    """For the body of a request to arrive."""
    idle_s: float = 300.0
    """Between two requests, and for the head of one."""


def tls_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """TLS 1.2 and above with these PEM files, `None` without; raises `ValueError` where they are no pair."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise ValueError("a certificate and its key belong together: use both --tls-cert and --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # An empty password: a key that has one must fail here, not ask at the terminal.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        why = error.reason or error
        raise ValueError(f"{cert}, {key}: {why}; use PEM files that belong together") from error
    return context


class Connection(HttpToolsProtocol):
    """One connection; handlers find it as `scope["state"]["connection"]`."""

    limits: ConnectionLimits
    is_over = False
    """Whether it is beyond the cap."""
    is_cut = False
    """Whether it ended before the kernel had all that was written."""

    @property
    def most(self) -> int:
        """The cap."""
        return self.limits.most

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.app_state = {"connection": self}
        self.is_over = len(self.connections) > self.limits.most
        self._await_head()

    def _await_head(self) -> None:
        seconds = LINGER_S if self.is_over else self.limits.idle_s
        self._head, self._timer = 0, self.loop.call_later(seconds, self.transport.close)

    def data_received(self, data: bytes) -> None:
        """Take what came; a head beyond its limit ends the connection."""
        self._head += len(data)
        super().data_received(data)
        if self._head > MOST_HEAD and not self._timer.cancelled():
            self._refuse(_LONG)

    def on_headers_complete(self) -> None:
        """Wait no longer; raise where the head is too long, which the parser takes as no HTTP."""
        self._timer.cancel()
        self._head = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._head > MOST_HEAD:
            raise ValueError(_LONG)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._timer.cancel()
        if not self.transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note whether something was not handed over."""
        self._timer.cancel()
        self.is_cut = self.flow.write_paused
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 uvicorn's words
        """Answer what is no HTTP."""
        is_long = self._head > MOST_HEAD
        self._refuse(_LONG if is_long else "the request is no HTTP that can be read; send HTTP/1.1")

    def _refuse(self, error: str) -> None:
        body = json.dumps({"error": error}).encode()
        head = (
            f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        )
        self.transport.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        self.transport.close()


class _Server(uvicorn.Server):
    """A server of a process that has its own signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them as they are."""
        yield


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(cast("tuple[str, int]", where[:2]), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        message = f"{host}:{port}: {why}; choose another address with --listen"
        raise AddressError(error.errno, message) from error


@contextlib.asynccontextmanager
async def listening(
    app: Any, host: str, port: int, limits: ConnectionLimits, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve an ASGI application until the context ends, and yield its URL; raise `AddressError`."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    with _bound(host, port) as line:
        port = line.getsockname()[1]
        config = uvicorn.Config(
            app, http=type("LimitedConnection", (Connection,), {"limits": limits}), ws="none", lifespan="off",
            log_config=None, access_log=False, server_header=False, backlog=_BACKLOG,
            timeout_keep_alive=int(limits.idle_s) + 1, timeout_graceful_shutdown=CLOSE_S,
        )  # fmt: skip
        config.load()
        config.ssl = tls
        server = _Server(config)
        serving = asyncio.ensure_future(server.serve([line]))
        while not server.started and not serving.done():  # noqa: ASYNC110 uvicorn has no event for it
            await asyncio.sleep(_TICK_S)
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        where = f"[{host}]" if ":" in host else host
        try:
            yield f"{'http' if tls is None else 'https'}://{where}:{port}"
        finally:
            server.should_exit = True
            await serving


@contextlib.asynccontextmanager
async def repeated(work: Callable[[], Awaitable[None]], every_s: float = SWEEP_S) -> AsyncIterator[None]:
    """Do a piece of work again and again until the context ends: the border of a task that must not end."""

    async def repeat() -> None:
        """Until it is cancelled."""
        while True:
            try:
                await work()
            except Exception:  # noqa: BLE001 logged, and tried again
                _log.exception("%s failed", getattr(work, "__qualname__", work))
            await asyncio.sleep(every_s)

    task = asyncio.ensure_future(repeat())
    try:
        yield
    finally:
        task.cancel()
