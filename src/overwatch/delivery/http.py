"""Requests over HTTP with protobuf bodies.

Rules: a connection is kept while it is good; a reply is judged by OTLP's rules. Must not know queues or
retries.
"""

import gzip
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Final

from overwatch import __version__
from overwatch.delivery.connection import Connection, Request, TooLongError
from overwatch.delivery.destination import Destination, Origin
from overwatch.delivery.reply import CLOSED, TOO_LONG, judge
from overwatch.delivery.request import Answer, Parcel, Verdict
from overwatch.journal import Signal

_LEVEL: Final = 1
"""Of gzip: the training job needs the processor more than the network needs the last tenth."""


class HttpTransport:
    """One request after the other, over one kept connection a server."""

    def __init__(self, destinations: Mapping[Signal, Destination]) -> None:
        self._destinations = dict(destinations)
        self._connections: dict[Origin, Connection] = {
            to.origin: Connection(to.origin) for to in destinations.values()
        }
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._packed: tuple[Parcel, bytes] | None = None

    def send(self, request: Parcel, deadline: float) -> Answer:
        """Try once; answers by `deadline` (monotonic seconds) or the destination's own timeout."""
        to = self._destinations.get(request.signal)
        if to is None:
            return Answer(verdict=Verdict.REFUSED, code="signal", detail="no destination for this signal")
        with self._sending:
            if self._closed.is_set():
                return CLOSED
            until = min(deadline, time.monotonic() + to.timeout_s)
            try:
                reply = self._connections[to.origin].exchange(self._encoded(to, request), until)
            except TooLongError:
                return TOO_LONG
            except OSError as error:
                return CLOSED if self._closed.is_set() else _failure(error)
            return judge(reply, time.time())

    def close(self) -> None:
        """From any thread: the try in flight ends at once, and no other begins."""
        self._closed.set()
        for connection in self._connections.values():
            connection.cut()
        with self._sending:
            for connection in self._connections.values():
                connection.close()

    def _encoded(self, to: Destination, request: Parcel) -> Request:
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
