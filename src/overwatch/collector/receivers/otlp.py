"""The OTLP receiver: both transports over one intake.

Owns their order: opened last when the collector starts, closed first when it stops.
"""

from dataclasses import replace
from typing import Final

import msgspec

from overwatch.collector.auth import Role
from overwatch.collector.context import Context
from overwatch.collector.guard import Entry, Listener
from overwatch.collector.limits import LimitsConfig, Room
from overwatch.collector.net import parse
from overwatch.collector.receivers.otlp_grpc import GrpcConfig, OtlpGrpc
from overwatch.collector.receivers.otlp_http import HttpConfig, OtlpHttp, denied

GRACE_S: Final = 2.0
"""How long requests in flight may take to end when the collector stops, in seconds."""


_ENTRY: Final = Entry(name="otlp_http", reads=Role.INGEST, acts=Role.INGEST, answer=denied, bodies=True)


class Protocols(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`receivers.otlp.protocols`."""

    grpc: GrpcConfig
    """OTLP over gRPC."""
    http: HttpConfig
    """OTLP over HTTP, protobuf and JSON."""


class OtlpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`receivers.otlp`."""

    protocols: Protocols
    """Both transports; they answer alike."""
    limits: LimitsConfig = LimitsConfig()
    """What requests may cost."""

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The addresses of both transports."""
        return tuple(
            Listener(
                path=f"protocols.{name}.endpoint",
                endpoint=one.endpoint,
                tls=one.tls,
                role=Role.INGEST,
                takes_min_version=name != "grpc",
            )
            for name, one in (("http", self.protocols.http), ("grpc", self.protocols.grpc))
        )


class OtlpReceiver:
    """The component `otlp` of `receivers`."""

    def __init__(self, config: OtlpConfig, context: Context, _: str = "otlp") -> None:
        self._config = config.protocols
        self._context = context
        in_flight = config.limits.queue_bytes(config.limits.max_in_flight_mib)
        largest = max(self._config.http.max_request_body_size, self._config.grpc.max_recv_msg_size_mib << 20)
        # Two of the largest bodies fit a peer's half, so that who may send one is never refused for good.
        room = Room(in_flight, max(in_flight // 2, 2 * largest))
        self._grpc = OtlpGrpc(self._config.grpc, context, room)
        http = OtlpHttp(self._config.http, context.intake, context.signals, room)
        entry = replace(_ENTRY, connections=self._config.http.connections)
        self._http = context.web_listener(
            self._config.http.endpoint, http.app(), entry, self._config.http.tls
        )

    def start(self) -> None:
        """Open both transports and accept."""
        self._context.intake.open()
        self._http.start()
        endpoint = self._config.grpc.endpoint
        listening = self._grpc.open(parse(endpoint), may_move=endpoint not in self._context.fixed)
        self._context.listens("otlp_grpc", "http", listening, secure=self._grpc.secure)

    def stop(self) -> None:
        """Refuse what comes, let what is in flight end, close."""
        self._context.intake.close()
        self._http.stop()
        self._grpc.close(GRACE_S)
