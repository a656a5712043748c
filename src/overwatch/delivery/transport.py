"""Requests over OTLP to the servers of some signals, and the one place that knows which protocols there are.

Rules: a transport tries once and reports what became of it; it never raises for what a collector does. A
connection is kept while it is good, one a server, shared by the signals. Must not know queues or retries.
"""

import gzip
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

from overwatch import __version__
from overwatch.delivery.answer import CLOSED, TOO_LONG, Answer, Outgoing, Verdict, judge
from overwatch.delivery.connection import Connection, Request, TooLongError
from overwatch.delivery.destination import Destination, Origin
from overwatch.journal import Signal

_LEVEL: Final = 1
"""Of gzip: the training job needs the processor more than the network needs the last tenth."""


class Line(Protocol):
    """A connection to one server over one protocol."""

    def send(self, to: Destination, request: Outgoing, deadline: float) -> Answer:
        """Try once; answers by `deadline` (monotonic seconds)."""

    def cut(self) -> None:
        """From any thread: the try in flight ends at once, and no other begins."""

    def close(self) -> None:
        """Let go of the connection; not while a try is in flight."""


class OtlpTransport:
    """Gives requests to a collector, one at a time."""

    def __init__(self, destinations: Mapping[Signal, Destination]) -> None:
        """A request of a signal without a destination is refused."""
        self._destinations = dict(destinations)
        self._lines: dict[tuple[str, Origin], Line] = {
            (to.protocol, to.origin): _line(to) for to in destinations.values()
        }
        self._sending = threading.Lock()
        self._closed = threading.Event()

    def send(self, request: Outgoing, deadline: float) -> Answer:
        """Try once; answers by `deadline` (monotonic seconds) or the destination's own timeout."""
        to = self._destinations.get(request.signal)
        if to is None:
            return Answer(verdict=Verdict.REFUSED, code="signal", detail="no destination for this signal")
        with self._sending:
            if self._closed.is_set():
                return CLOSED
            until = min(deadline, time.monotonic() + to.timeout_s)
            answer = self._lines[to.protocol, to.origin].send(to, request, until)
            return CLOSED if self._closed.is_set() and answer.verdict is Verdict.AGAIN else answer

    def close(self) -> None:
        """From any thread: a try in flight ends at once as `AGAIN`, and so does every later one."""
        self._closed.set()
        for line in self._lines.values():
            line.cut()
        with self._sending:
            for line in self._lines.values():
                line.close()


def _line(to: Destination) -> Line:
    if to.protocol == "grpc":
        from overwatch.delivery.grpc import GrpcLine

        return GrpcLine(to.origin)
    return HttpLine(to.origin)


class HttpLine:
    """Requests over HTTP with protobuf bodies."""

    def __init__(self, origin: Origin) -> None:
        self._connection = Connection(origin)
        self.cut, self.close = self._connection.cut, self._connection.close
        self._packed: tuple[Outgoing, bytes] | None = None

    def send(self, to: Destination, request: Outgoing, deadline: float) -> Answer:
        """Try once; a reply is judged by OTLP's rules."""
        try:
            reply = self._connection.exchange(self._encoded(to, request), deadline)
        except TooLongError:
            return TOO_LONG
        except OSError as error:
            return _failure(error)
        return judge(reply, time.time())

    def _encoded(self, to: Destination, request: Outgoing) -> Request:
        headers = {
            "user-agent": f"Overwatch-OTLP-Exporter-Python/{__version__}",
            **dict(to.headers_now),
            "content-type": "application/x-protobuf",
        }
        if not to.gzip:
            return Request(method="POST", path=to.path, headers=headers, body=request.body)
        if self._packed is None or self._packed[0] is not request:
            self._packed = (request, gzip.compress(request.body, _LEVEL, mtime=0))
        headers["content-encoding"] = "gzip"
        return Request(method="POST", path=to.path, headers=headers, body=self._packed[1])


def _failure(error: OSError) -> Answer:
    """What went wrong below HTTP: it may be right another time."""
    match error:
        case TimeoutError():
            code, detail = "timeout", "no answer in time"
        case ssl.SSLError():
            code, detail = "tls", f"TLS: {error.reason or type(error).__name__}"
        case _:
            code, detail = "connection", type(error).__name__
    return Answer(verdict=Verdict.AGAIN, code=code, detail=detail)
