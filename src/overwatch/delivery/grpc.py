"""Requests over gRPC as raw bytes.

Rules: a channel that failed is replaced, since what it is connected to may be gone with no sign of it;
keepalive pings are not sent, every try has its deadline. Must not know queues or retries.
"""

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import grpc

from overwatch import __version__
from overwatch.delivery.answer import CLOSED, Answer, Outgoing, Verdict, retry_info_s, shown, taken
from overwatch.delivery.connection import MAX_REPLY
from overwatch.delivery.destination import Destination, Origin, Tls, is_here
from overwatch.journal import Signal
from overwatch.regular import read_regular

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


class GrpcLine:
    """One channel at a time to a server."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._channel: grpc.Channel | None = None
        self._state = threading.Lock()
        self._call: Any = None
        self._is_cut = False

    def send(self, to: Destination, request: Outgoing, deadline: float) -> Answer:
        """Try once; answers by `deadline` (monotonic seconds)."""
        if request.signal not in _PATHS:
            return Answer(verdict=Verdict.REFUSED, code="signal", detail="no destination for this signal")
        try:
            call = self._begin(to, request, deadline)
        except OSError as error:
            return Answer(verdict=Verdict.AGAIN, code="tls", detail=f"certificates: {error.strerror}")
        if call is None:
            return CLOSED
        answer = _answer(call)
        with self._state:
            self._call = None
        if answer.verdict is Verdict.AGAIN and answer.retry_after_s is None:
            self.close()
        return answer

    def cut(self) -> None:
        """From any thread: the try in flight ends at once, and no other begins."""
        with self._state:
            self._is_cut = True
            call = self._call
        if call is not None:
            call.cancel()

    def close(self) -> None:
        """Let go of the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _begin(self, to: Destination, request: Outgoing, deadline: float) -> Any:
        with self._state:
            if self._is_cut:
                return None
            if self._channel is None:
                self._channel = _channel(self._origin)
            self._call = self._channel.unary_unary(_PATHS[request.signal]).future(
                request.body,
                timeout=max(deadline - time.monotonic(), 0.001),
                metadata=_metadata(to),
                compression=grpc.Compression.Gzip if to.gzip else None,
            )
            return self._call


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
    return None if path is None else read_regular(Path(path))


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
        detail=shown(f"gRPC {code.name} {call.details() or ''}".rstrip()),
        retry_after_s=wait_s if again else None,
    )


def _retry_info_s(trailers: Iterable[tuple[str, str | bytes]]) -> float | None:
    for name, value in trailers:
        if name == "grpc-status-details-bin" and isinstance(value, bytes):
            return retry_info_s(value)
    return None
