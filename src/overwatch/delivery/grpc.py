"""Requests over gRPC as raw bytes.

Rules: one channel a server, shared by the signals; a channel that failed is replaced, since what it is
connected to may be gone without a word; keepalive pings are not sent, every try has its deadline. Must
not know queues or retries.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc

from overwatch import __version__
from overwatch.delivery.connection import MAX_REPLY
from overwatch.delivery.destination import Destination, Origin, Tls
from overwatch.delivery.proxy import is_here
from overwatch.delivery.reply import CLOSED, retry_info_s, taken, told
from overwatch.delivery.request import Answer, Parcel, Verdict
from overwatch.journal import Signal

_PATHS: Final = {
    Signal.LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    Signal.METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    Signal.TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
}
_RETRYABLE: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_REPLY),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 16 << 10),
    # Trying again is the sender's business.
    ("grpc.enable_retries", 0),
    # A new channel is to be a new connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.primary_user_agent", f"Overwatch-OTLP-Exporter-Python/{__version__}"),
)


class GrpcTransport:
    """One request after the other."""

    def __init__(self, destinations: Mapping[Signal, Destination]) -> None:
        self._destinations = {signal: to for signal, to in destinations.items() if signal in _PATHS}
        self._channels: dict[Origin, grpc.Channel] = {}
        self._sending = threading.Lock()
        self._state = threading.Lock()
        self._call: Any = None
        self._closed = False

    def send(self, request: Parcel, deadline: float) -> Answer:
        """Try once; answers by `deadline` (monotonic seconds) or the destination's own timeout."""
        to = self._destinations.get(request.signal)
        if to is None:
            return Answer(verdict=Verdict.REFUSED, code="signal", detail="no destination for this signal")
        with self._sending:
            try:
                call = self._begin(to, request, min(deadline, time.monotonic() + to.timeout_s))
            except OSError as error:
                return Answer(verdict=Verdict.AGAIN, code="tls", detail=f"certificates: {error.strerror}")
            if call is None:
                return CLOSED
            answer = _answer(call)
            self._end(to, answer)
            return CLOSED if self._closed and answer.verdict is Verdict.AGAIN else answer

    def close(self) -> None:
        """From any thread: the try in flight ends at once, and no other begins."""
        with self._state:
            self._closed = True
            call = self._call
        if call is not None:
            call.cancel()
        with self._sending:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def _begin(self, to: Destination, request: Parcel, deadline: float) -> Any:
        with self._state:
            if self._closed:
                return None
            channel = self._channels.get(to.origin)
            if channel is None:
                channel = self._channels[to.origin] = _channel(to.origin)
            call = channel.unary_unary(_PATHS[request.signal]).future(
                request.body,
                timeout=max(deadline - time.monotonic(), 0.001),
                metadata=_metadata(to),
                compression=grpc.Compression.Gzip if to.gzip else None,
            )
            self._call = call
            return call

    def _end(self, to: Destination, answer: Answer) -> None:
        with self._state:
            self._call = None
        if answer.verdict is Verdict.AGAIN and answer.retry_after_s is None:
            self._channels.pop(to.origin).close()


def _channel(origin: Origin) -> grpc.Channel:
    options = (*_OPTIONS, ("grpc.enable_http_proxy", 0 if is_here(origin.host) else 1))
    if origin.tls is None:
        return grpc.insecure_channel(origin.authority, options=options)
    return grpc.secure_channel(origin.authority, _credentials(origin.tls), options=options)


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=_bytes(tls.authorities),
        private_key=_bytes(tls.key),
        certificate_chain=_bytes(tls.certificate),
    )


def _bytes(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _metadata(to: Destination) -> tuple[tuple[str, str | bytes], ...]:
    """The headers; names that belong to gRPC itself are left out."""
    pairs = [(name, value) for name, value in to.headers_now if not name.startswith("grpc-")]
    return tuple((name, value.encode() if name.endswith("-bin") else value) for name, value in pairs)


def _answer(call: Any) -> Answer:
    """Wait for the call and judge it."""
    code = call.code()
    if code is grpc.StatusCode.OK:
        return taken(call.result())
    wait_s = _retry_info_s(call.trailing_metadata() or ())
    is_exhausted = code is grpc.StatusCode.RESOURCE_EXHAUSTED
    again = code in _RETRYABLE or (is_exhausted and wait_s is not None)
    return Answer(
        verdict=Verdict.AGAIN if again else Verdict.REFUSED,
        code=code.name.lower(),
        detail=told(f"gRPC {code.name} {call.details() or ''}".rstrip()),
        retry_after_s=wait_s if again else None,
    )


def _retry_info_s(trailers: Iterable[tuple[str, str | bytes]]) -> float | None:
    for name, value in trailers:
        if name == "grpc-status-details-bin" and isinstance(value, bytes):
            return retry_info_s(value)
    return None
