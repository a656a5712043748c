"""One HTTP/1.1 connection on which no wait outlives its deadline: `http.client` over sockets of our own.

Rules: the deadline is of a whole exchange (addresses, connect, tunnel, TLS, request, reply), so a peer that
sends a byte a second gains nothing; a reply is read up to a number of bytes, and one whose head is cut off is
an error, where `http.client` takes it as whole; another thread may cut the connection at any time. A redirect
is not followed. `urllib3` and its like have timeouts of single reads only, and none of a look-up.
Must not know what a request is for.
"""

import contextlib
import http.client
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from overwatch.delivery.destination import Origin, Proxy, Tls, origin_of
from overwatch.regular import read_regular

MAX_REPLY: Final = 4 << 20
"""Bytes of a reply that are read, after decompression; what OTLP 1.11 recommends."""
_MAX_REFUSAL: Final = 64 << 10
"""Bytes of a refusal's explanation that are read."""
_OVERHEAD: Final = 96 << 10
"""Bytes of status line, headers and chunk sizes."""
_BLOCKED_S: Final = 0.05
"""A send that waits so long looks whether the peer has replied already."""
_PIECE: Final = 64 << 10
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class CutError(OSError):
    """The connection was cut from this side."""


class TooLongError(OSError):
    """The reply is longer than we read."""


class MalformedReplyError(OSError):
    """The reply is no HTTP; its text is the kind of error."""


class _EarlyReplyError(ConnectionError):
    """The peer replied before it had the whole request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a server."""

    path: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server replied."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes
    """Not compressed."""


class _Socket(socket.socket):
    """A socket with one deadline for all it does, and a number of bytes that it may receive."""

    deadline = 0.0
    allowance = 0
    is_head = False
    """A stream that ends now is cut off."""
    _early = b""

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all; raises `_EarlyReplyError` where the peer reads no further and has replied."""
        rest = memoryview(data)
        while rest:
            self.settimeout(min(self.left_s(), _BLOCKED_S))
            try:
                rest = rest[self.send(rest[:_PIECE], flags) :]
            except TimeoutError:
                if self.has_received():
                    raise _EarlyReplyError from None

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Wait for bytes until the deadline; 0 at the end of the stream."""
        if self._early:
            count = min(len(self._early), len(buffer))
            buffer[:count], self._early = self._early[:count], self._early[count:]
        else:
            self.settimeout(self.left_s())
            count = super().recv_into(buffer, nbytes, flags)
        if count == 0 and self.is_head:
            raise ConnectionResetError("the peer has closed the connection")
        self.allowance -= count
        if self.allowance < 0:
            raise TooLongError("the reply is too long")
        return count

    def has_received(self) -> bool:
        """Whether bytes are here already, which stay; raises `OSError` where the peer has closed."""
        self.settimeout(0)
        try:
            self._early = self.recv(_PIECE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if not self._early:
            raise ConnectionResetError("the peer has closed the connection")
        return True

    def left_s(self) -> float:
        """Seconds to the deadline; raises `TimeoutError` where there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left


class _TlsSocket(_Socket, ssl.SSLSocket):  # type: ignore[misc]  # `SSLSocket` spells `recv_into` otherwise
    """The same inside TLS."""


class Connection(http.client.HTTPConnection):
    """A connection to an origin, kept while it is good; one thread exchanges, any thread may cut."""

    sock: _Socket | None

    def __init__(self, origin: Origin) -> None:
        super().__init__(origin.host, origin.port)
        self._origin = origin
        self._deadline = 0.0
        self._is_cut = False
        self._dial: Future[socket.socket] | None = None
        """A connection under way; one that is not there in time goes on, and is the next try's."""
        self._unsent: list[bytes] = []

    def cut(self) -> None:
        """From any thread: whatever the connection waits for fails at once, and so does every later use."""
        self._is_cut = True
        if (dial := self._dial) is not None:
            dial.cancel()
        if (live := self.sock) is not None:
            # Below TLS, whose state belongs to the other thread; a socket that is just closed is cut, too.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(live, socket.SHUT_RDWR)

    def exchange(self, request: Request, deadline: float, most: int = MAX_REPLY) -> Reply:
        """Send a request and read its reply, of `most` bytes, by `deadline` (monotonic seconds).

        Raises `OSError`. The connection stays open where it is good for another request.
        """
        self._deadline = deadline
        try:
            is_kept = self._is_ready()
            try:
                return self._once(request, most)
            except ConnectionError:
                if not is_kept:
                    raise
            # A kept connection may end as it is used again; that is no sign of the server's state.
            self.close()
            return self._once(request, most)
        except (http.client.HTTPException, zlib.error) as error:
            self.close()
            if isinstance(error, OSError):
                raise
            # Of a head `http.client` itself reads so many lines, each of so many bytes.
            is_long = isinstance(error, http.client.LineTooLong) or "more than" in str(error)
            raise (TooLongError if is_long else MalformedReplyError)(type(error).__name__) from error
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Connect by the deadline of the exchange; raises `OSError`."""
        self._check()
        plain = _Socket(fileno=self._dialled().detach())
        self._use(plain)
        if (tls := self._origin.tls) is None:
            return
        if self._origin.via is not None:
            self._open_tunnel(plain, self._origin.via)
        context = tls_context(tls)
        context.sslsocket_class = _TlsSocket
        secured = context.wrap_socket(plain, server_hostname=self._origin.host, do_handshake_on_connect=False)
        assert isinstance(secured, _TlsSocket)  # noqa: S101 narrows the type
        self._use(secured)
        secured.settimeout(secured.left_s())
        secured.do_handshake()

    def _dialled(self) -> socket.socket:
        """A new connection to the server or its proxy, once; raises `OSError`."""
        dial = self._dial = self._dial or _dial(self._origin, self._deadline)
        self._check()
        try:
            made = dial.result(max(self._deadline - time.monotonic(), 0.0))
        except CancelledError:
            raise CutError("cut") from None
        except TimeoutError:
            if not dial.done():
                raise TimeoutError("no answer in time") from None
            self._dial = None
            raise
        except OSError:
            self._dial = None
            raise
        self._dial = None
        return made

    def close(self) -> None:
        """Let go of the connection, and of one that was cut while it was under way."""
        super().close()
        if self._is_cut and (dial := self._dial) is not None and not dial.cancel() and not dial.exception():
            dial.result().close()

    def send(self, data: Any) -> None:
        """Keep a part of a request: head and body go out together."""
        self._unsent.append(data)

    def _use(self, made: _Socket) -> None:
        made.deadline = self._deadline
        made.allowance, made.is_head = _OVERHEAD, True
        self.sock = made
        self._check()

    def _check(self) -> None:
        if self._is_cut:
            raise CutError("cut")

    def _is_ready(self) -> bool:
        """Whether a kept connection neither ended nor received what was not asked for; else it is closed."""
        self._check()
        try:
            if self.sock is not None and not self.sock.has_received():
                return True
        except OSError:
            pass
        self.close()
        return False

    def _open_tunnel(self, plain: _Socket, via: Proxy) -> None:
        """Ask the proxy for the server itself."""
        there = self._origin.authority
        secret = "" if via.authorization is None else f"Proxy-Authorization: {via.authorization}\r\n"
        plain.sendall(f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{secret}\r\n".encode())
        try:
            with http.client.HTTPResponse(plain, method="CONNECT") as response:
                response.begin()
        except (TooLongError, http.client.HTTPException) as error:
            raise ConnectionRefusedError("the proxy's answer is no HTTP") from error
        if response.status != http.client.OK:
            raise ConnectionRefusedError("the proxy gives no tunnel")

    def _connected(self) -> _Socket:
        if self.sock is None:
            self.connect()
        assert self.sock is not None  # noqa: S101 `connect` raises where there is none
        return self.sock

    def _once(self, request: Request, most: int) -> Reply:
        live = self._connected()
        live.deadline, live.allowance, live.is_head = self._deadline, most + _OVERHEAD, True
        self._write(request)
        trouble: ConnectionError | None = None
        try:
            live.sendall(b"".join(self._unsent))
        except ConnectionError as error:
            # A server may refuse a long body and close before it has all; its reply may be here already.
            trouble = error
        try:
            response = self.getresponse()
        except (OSError, http.client.HTTPException):
            if trouble is not None:
                raise trouble from None
            raise
        live.is_head = False
        with response:
            reply, is_whole = _reply(response, most)
        if trouble is not None or not is_whole:
            self.close()
        return reply

    def _write(self, request: Request) -> None:
        """The request as it goes out; a proxy that reads it, which is no tunnel, gets the whole URL."""
        via = self._origin.via if self._origin.tls is None else None
        path = request.path if via is None else f"http://{self._origin.authority}{request.path}"
        self._unsent.clear()
        self.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        headers = {"host": self._origin.authority, **request.headers}
        if request.method != "GET":
            headers["content-length"] = str(len(request.body))
        if via is not None and via.authorization is not None:
            headers["proxy-authorization"] = via.authorization
        for name, value in headers.items():
            self.putheader(name, value)
        self.endheaders(request.body)


def _dial(origin: Origin, until: float) -> Future[socket.socket]:
    """A connection made on a thread of its own: the system's resolver knows no deadline."""
    first, found = origin.via or origin, Future[socket.socket]()

    def run() -> None:
        made: socket.socket | None = None
        try:
            made = _connected(first.host, first.port, until)
            found.set_result(made)
        except InvalidStateError:  # it was cut
            if made is not None:
                made.close()
        except (OSError, UnicodeError) as error:
            with contextlib.suppress(InvalidStateError):
                is_name = isinstance(error, UnicodeError)
                found.set_exception(OSError("the name of the server is no name") if is_name else error)

    threading.Thread(target=run, name="overwatch-connect", daemon=True).start()
    return found


def _connected(host: str, port: int, until: float) -> socket.socket:
    """By the first address that answers; each has its share of the time."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found = [(str(address[0]), int(address[1])) for *_, address in entries]
    trouble = OSError("the name has no address")
    for left in range(len(found), 0, -1):
        share_s = max((until - time.monotonic()) / left, _BLOCKED_S)
        try:
            made = socket.create_connection(found[-left], share_s)
        except OSError as error:
            trouble = error
        else:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
    raise trouble


def _reply(response: http.client.HTTPResponse, most: int) -> tuple[Reply, bool]:
    """The reply, and whether it was read whole; what explains a refusal need not be."""
    is_good, is_whole = 200 <= response.status < 300, True
    try:
        body = _content(response, most if is_good else min(most, _MAX_REFUSAL))
    except (OSError, http.client.HTTPException, zlib.error):
        if is_good:
            raise
        body, is_whole = b"", False
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status=response.status, reason=response.reason, headers=headers, body=body), is_whole


def _content(response: http.client.HTTPResponse, most: int) -> bytes:
    """The body, unpacked; raises `TooLongError` where it is longer than `most`."""
    packed = response.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip")
    unpack = zlib.decompressobj(wbits=31) if packed else None
    found = bytearray()
    while piece := response.read(_PIECE):
        found += piece if unpack is None else unpack.decompress(piece, most + 1 - len(found))
        if len(found) > most:
            raise TooLongError("the reply is too long")
    if response.length:
        raise http.client.IncompleteRead(bytes(found), response.length)
    return bytes(found)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """What a connection is secured with. Raises `OSError` when a file cannot be used."""
    # OpenSSL opens them by their names, and waits for what is no regular file.
    for file in (tls.authorities, tls.certificate, tls.key):
        if file is not None:
            read_regular(Path(file))
    made = ssl.create_default_context(cafile=tls.authorities)
    made.minimum_version = _VERSIONS[tls.min_version]
    if tls.certificate is not None:
        # An empty password: a key that has one must fail here, not ask at the terminal.
        made.load_cert_chain(tls.certificate, tls.key, password="")
    return made


def http_request(
    url: str,
    body: bytes | None = None,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    most: int = MAX_REPLY,
    env: Mapping[str, str] = os.environ,
) -> Reply:
    """The reply to a GET, or to a POST of `body`, within `timeout_s` in all and of `most` bytes.

    Over a connection of its own. A redirect is a reply. `env` may name a proxy; `{}` is the direct way.

    Raises `OSError`, and `ValueError` for what is no URL of a server.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http:// or https:// URL of a server")
    connection = Connection(origin_of(parts, Tls(), env))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    method = "GET" if body is None else "POST"
    try:
        request = Request(method=method, path=path, headers=headers or {}, body=body or b"")
        return connection.exchange(request, time.monotonic() + timeout_s, most)
    finally:
        connection.cut()
        connection.close()
