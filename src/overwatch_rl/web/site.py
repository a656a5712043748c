"""Where the server listens: TLS, and how many connections there may be.

Rules: a connection beyond the cap is answered with 503 once it asks, and counted; one that asks nothing, or
does not end the head of its request, is closed by the web server in `idle_s`. Must not
know what is asked.
"""

import asyncio
import json
import logging
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

HANDSHAKE_S: Final = 10.0
"""So long a client may take to agree on TLS."""
LINGER_S: Final = 2.0
"""So long a refused connection may take to ask and to read its answer."""
_BACKLOG: Final = 512
_QUIET_S: Final = 30.0
"""Between two lines of the log about refused connections."""
_HANDLING: Final[dict[str, Any]] = {"auto_decompress": False, "access_log": None}
"""Of connections: bodies stay packed, and no line is logged a request."""
_REFUSED: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b"
)

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


class Site(web.TCPSite):
    """A listening address whose connections are limited."""

    def __init__(
        self,
        runner: web.AppRunner,
        host: str,
        port: int,
        limits: ConnectionLimits,
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(runner, host, port, ssl_context=context)
        self.refused = 0
        """Connections beyond the cap."""
        self._at = (host, port)
        self._most, self._idle_s = limits.most, limits.idle_s
        self._answering: set[asyncio.Transport] = set()
        self._quiet_until = 0.0

    @property
    def where(self) -> str:
        """The address that was given."""
        return f"{self._at[0]}:{self._at[1]}"

    async def start(self) -> None:
        """Accept connections."""
        await web.BaseSite.start(self)
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol,
            *self._at,
            backlog=_BACKLOG,
            ssl=self._ssl_context,
            ssl_handshake_timeout=None if self._ssl_context is None else HANDSHAKE_S,
        )

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner was not set up")
        if len(server.connections) < self._most:
            loop = asyncio.get_running_loop()
            return _Connection(server, loop=loop, keepalive_timeout=self._idle_s, **_HANDLING)
        self.refused += 1
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_S
            _log.warning("%s; %d were refused until now", self._full, self.refused)
        return _Refusal(self._full, self._answering, self._most)

    @property
    def _full(self) -> str:
        return f"{self._most} connections are open: raise --max-connections, or close some"


class _Connection(web.RequestHandler):
    """One connection; the answer to what is no HTTP repeats nothing of it: a header may be a secret."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer with what is wrong, and the fix, as any other answer."""
        answer = super().handle_error(request, status, exc, message)
        if message is None or not isinstance(answer, web.Response):
            return answer
        error = "the request is no HTTP that can be read; send HTTP/1.1"
        if isinstance(exc, LineTooLong):
            error = f"the address or a header has more than {exc.args[1]} bytes; send a shorter one"
        answer.text = json.dumps({"error": error})
        answer.content_type = "application/json"
        return answer


class _Refusal(asyncio.Protocol):
    """Answers once it is asked: a client may take no answer before."""

    def __init__(self, why: str, others: set[asyncio.Transport], most: int) -> None:
        body = b'{"error":"%b"}' % why.encode()
        self._answer = _REFUSED % (len(body), body)
        self._others, self._most = others, most
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the question, for a while."""
        self._transport = cast("asyncio.Transport", transport)
        if len(self._others) >= self._most:
            self._transport.abort()
            return
        self._others.add(self._transport)
        asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def data_received(self, _: bytes) -> None:
        """Answer; what else comes is read on, so that the client is not reset before it reads the answer."""
        if self._answer and self._transport is not None:
            self._transport.write(self._answer)
            self._answer = b""
            if self._transport.can_write_eof():
                self._transport.write_eof()

    def connection_lost(self, _: Exception | None) -> None:
        """It has ended."""
        if self._transport is not None:
            self._others.discard(self._transport)
