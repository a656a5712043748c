"""Requests over HTTP with protobuf bodies.

Rules: a connection is kept while it is good; a redirect is never followed, so headers go to the named
server only; a reply is read up to its cap and a whole exchange up to its deadline. Must not know queues
or retries.
"""

import gzip
import http.client
import io
import ssl
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from overwatch import __version__
from overwatch.delivery.destination import Destination, Origin
from overwatch.delivery.line import Line, Stream, TooLongError
from overwatch.delivery.reply import CLOSED, MAX_REPLY, TOO_LONG, Reply, judge
from overwatch.delivery.request import Answer, Parcel, Verdict
from overwatch.journal import Signal

_MAX_HEAD: Final = 32 << 10
"""Bytes of status line and headers."""
_MAX_WIRE: Final = MAX_REPLY + (64 << 10)
"""Bytes of a body as it comes, with what chunking adds."""
_MAX_REFUSAL: Final = 64 << 10
"""Bytes of a refusal's explanation that are read."""
_PIECE: Final = 64 << 10
_LEVEL: Final = 1
"""Of gzip: the training job needs the processor more than the network needs the last tenth."""


@dataclass(slots=True)
class _Echo:
    """The last reply on a line that took a request and kept the line; one like it says the same."""

    came: bytes = b""
    answer: Answer | None = None


class HttpOutlet:
    """One request after the other, over one kept connection a server."""

    def __init__(self, destinations: Mapping[Signal, Destination]) -> None:
        self._destinations = dict(destinations)
        self._lines: dict[Origin, Line] = {to.origin: Line(to.origin) for to in destinations.values()}
        self._echoes = {origin: _Echo() for origin in self._lines}
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._packed: tuple[Parcel, bytes] | None = None

    def send(self, request: Parcel, deadline: float) -> Answer:
        """Try once; answers by `deadline` (monotonic seconds) or the destination's own timeout."""
        to = self._destinations.get(request.signal)
        if to is None:
            return Answer(verdict=Verdict.REFUSED, code="signal", detail="no destination for this signal")
        line = self._lines[to.origin]
        with self._sending:
            if self._closed.is_set():
                return CLOSED
            try:
                return self._exchange(line, to, request, min(deadline, time.monotonic() + to.timeout_s))
            except TooLongError:
                line.close()
                return TOO_LONG
            except (OSError, http.client.HTTPException, zlib.error, EOFError) as error:
                line.close()
                return CLOSED if self._closed.is_set() else _failure(error)

    def close(self) -> None:
        """From any thread: the try in flight ends within a moment, and no other begins."""
        self._closed.set()
        for line in self._lines.values():
            line.cut()
        with self._sending:
            for line in self._lines.values():
                line.close()

    def _exchange(self, line: Line, to: Destination, request: Parcel, deadline: float) -> Answer:
        body, echo = self._body(to, request), self._echoes[to.origin]
        is_kept = line.open(deadline)
        try:
            return _ask(line, to, body, echo)
        except ConnectionError:
            if not is_kept:
                raise
        # A kept connection may end at the very moment it is used again; that says nothing of the collector.
        line.close()
        line.open(deadline)
        return _ask(line, to, body, echo)

    def _body(self, to: Destination, request: Parcel) -> bytes:
        if not to.gzip:
            return request.body
        if self._packed is None or self._packed[0] is not request:
            self._packed = (request, gzip.compress(request.body, _LEVEL, mtime=0))
        return self._packed[1]


def _ask(line: Line, to: Destination, body: bytes, echo: _Echo) -> Answer:
    trouble: ConnectionError | None = None
    was_sent = False
    try:
        was_sent = line.send(_head(to, len(body)) + body)
    except ConnectionError as error:
        # A collector may refuse a long body and hang up before it has all; its answer may be here already.
        trouble = error
    stream = Stream(line, _MAX_HEAD)
    try:
        if was_sent and line.peek() == echo.came and echo.answer is not None:
            line.pass_over()
            return echo.answer
        reply, is_kept = _read(stream)
    except (OSError, http.client.HTTPException):
        if trouble is not None:
            raise trouble from None
        raise
    if not is_kept or not was_sent:
        line.close()
    answer = judge(reply, time.time())
    if is_kept and was_sent and 200 <= reply.status < 300:
        echo.came, echo.answer = bytes(stream.heard), answer
    return answer


def _head(to: Destination, length: int) -> bytes:
    via = to.origin.via if to.origin.tls is None else None
    secret = None if via is None else via.authorization
    path = to.path if via is None else f"{to.shown}{to.path}"
    headers = {
        "host": to.origin.authority,
        "user-agent": f"Overwatch-OTLP-Exporter-Python/{__version__}",
        **dict(to.headers_now),
        "content-type": "application/x-protobuf",
        "content-length": str(length),
        **({"content-encoding": "gzip"} if to.gzip else {}),
        **({} if secret is None else {"proxy-authorization": secret}),
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _read(stream: Stream) -> tuple[Reply, bool]:
    """The reply, and whether the connection is fit to be kept."""
    response = http.client.HTTPResponse(_Ear(stream), method="POST")  # type: ignore[arg-type]
    with response:
        response.begin()
        stream.is_head, stream.allowance = False, _MAX_WIRE
        is_good = 200 <= response.status < 300
        is_whole = True
        try:
            body = _content(response, MAX_REPLY if is_good else _MAX_REFUSAL)
        except (OSError, http.client.HTTPException, zlib.error, TooLongError):
            if is_good:
                raise
            body, is_whole = b"", False
        location = response.headers.get("location") if 300 <= response.status < 400 else None
        reply = Reply(
            status=response.status,
            reason=response.reason,
            body=body,
            is_protobuf=response.headers.get_content_type() == "application/x-protobuf",
            location=location,
            retry_after=response.headers.get("retry-after"),
            date=response.headers.get("date"),
        )
        return reply, is_whole and not response.will_close


def _content(response: http.client.HTTPResponse, limit: int) -> bytes:
    """The body, unpacked; raises `TooLongError` where it is longer than `limit`."""
    packed = response.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip")
    unpack = zlib.decompressobj(wbits=31) if packed else None
    found = bytearray()
    while piece := response.read(_PIECE):
        found += piece if unpack is None else unpack.decompress(piece, limit + 1 - len(found))
        if len(found) > limit:
            raise TooLongError("the reply is too long")
    if response.length:
        raise http.client.IncompleteRead(bytes(found), response.length)
    return bytes(found)


class _Ear:
    """As much of a socket as reading a reply needs."""

    def __init__(self, stream: Stream) -> None:
        self._reader = io.BufferedReader(stream)

    def makefile(self, _mode: str) -> io.BufferedIOBase:
        """The one reader."""
        return self._reader


def _failure(error: Exception) -> Answer:
    """What went wrong below HTTP: it may be right another time."""
    match error:
        case TimeoutError():
            code, detail = "timeout", "no answer in time"
        case ssl.SSLError():
            code, detail = "tls", f"TLS: {error.reason or type(error).__name__}"
        case _:
            code, detail = "connection", type(error).__name__
    return Answer(verdict=Verdict.AGAIN, code=code, detail=detail)
