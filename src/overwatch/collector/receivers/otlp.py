"""The OTLP receiver: both transports over one intake.

Owns their order: opened last when the collector starts, closed first when it stops.
"""

from typing import Final

import msgspec

from overwatch.collector.context import Context
from overwatch.collector.loop import Door
from overwatch.collector.net import parse
from overwatch.collector.receivers.otlp_grpc import GrpcConfig, OtlpGrpc
from overwatch.collector.receivers.otlp_http import HttpConfig, OtlpHttp

GRACE_S: Final = 2.0
"""How long requests in flight may take to end when the collector stops, in seconds."""


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


class OtlpReceiver:
    """The component `otlp` of `receivers`."""

    def __init__(self, config: OtlpConfig, context: Context) -> None:
        self._config = config.protocols
        self._context = context
        self._grpc = OtlpGrpc(self._config.grpc, context.intake, context.signals, context.loop)
        http = OtlpHttp(self._config.http, context.intake, context.signals)
        self._http = Door(context.loop, parse(self._config.http.endpoint), http.app())

    def start(self) -> None:
        """Open both transports and accept."""
        self._context.intake.open()
        self._context.board.note("otlp_http", "http", self._http.open())
        self._context.board.note("otlp_grpc", "http", self._grpc.open(parse(self._config.grpc.endpoint)))

    def stop(self) -> None:
        """Refuse what comes, let what is in flight end, close."""
        self._context.intake.close()
        self._http.close()
        self._grpc.close(GRACE_S)
