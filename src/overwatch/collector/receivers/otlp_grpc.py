"""OTLP over gRPC: the three `Export` methods as raw bytes, so that a body is parsed once and kept as sent.

Rules: the same meaning as over HTTP in gRPC's words; success is answered after the journal has the bytes.
Must not know HTTP or what a body means.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NoReturn, assert_never

import grpc
import msgspec

from overwatch.collector.intake import RETRY_AFTER_S, Intake, Reason, RefusedError
from overwatch.collector.net import Address, AddressError, Listening, listen
from overwatch.collector.receivers import status
from overwatch.collector.receivers.status import Code
from overwatch.collector.signals import WIRES, response
from overwatch.journal import Signal

TRANSPORT: Final = "grpc"


class GrpcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`receivers.otlp.protocols.grpc`."""

    endpoint: str
    """`host:port` to listen at."""
    max_recv_msg_size_mib: int = 4
    """Largest message in MiB, after decompression."""
    workers: int = 4
    """Threads that take requests in."""
    max_concurrent_streams: int = 128
    """Most requests in flight on one connection."""
    max_connection_age_s: float | None = None
    """Connections are asked to reconnect after this many seconds, which rebalances them; never if unset."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_recv_msg_size_mib <= 64:
            raise ValueError(f"max_recv_msg_size_mib {self.max_recv_msg_size_mib} is not in 1..64")
        if not 1 <= self.workers <= 64:
            raise ValueError(f"workers {self.workers} is not in 1..64")
        if self.max_concurrent_streams < 1:
            raise ValueError(f"max_concurrent_streams {self.max_concurrent_streams} is not positive")
        if self.max_connection_age_s is not None and self.max_connection_age_s <= 0:
            raise ValueError(f"max_connection_age_s {self.max_connection_age_s} is not positive")


class OtlpGrpc:
    """The gRPC server of the OTLP receiver."""

    def __init__(self, config: GrpcConfig, intake: Intake, signals: frozenset[Signal]) -> None:
        self._config = config
        self._intake = intake
        self._signals = signals
        self._pool: ThreadPoolExecutor | None = None
        self._server: grpc.Server | None = None
        for signal in signals:
            intake.know(signal, TRANSPORT)

    def open(self, wanted: Address) -> Listening:
        """Serve at an address or, where its port is busy, at the next free one; raises `AddressError`."""
        # gRPC binds by itself: a socket of ours finds the free port and names who holds a busy one.
        probe = listen(wanted)
        probe.sock.close()
        self._pool = ThreadPoolExecutor(self._config.workers, thread_name_prefix="otlp-grpc")
        server = grpc.server(
            self._pool,
            handlers=tuple(self._handler(signal) for signal in self._signals),
            options=self._options(),
            compression=grpc.Compression.NoCompression,
        )
        try:
            server.add_insecure_port(str(probe.address))
        except RuntimeError as error:
            self._pool.shutdown()
            raise AddressError(f"cannot listen at {probe.address} for gRPC: {error}") from error
        server.start()
        self._server = server
        return probe

    def close(self, grace_s: float) -> None:
        """Stop accepting and let requests in flight end within `grace_s` seconds."""
        if self._server is not None:
            self._server.stop(grace_s).wait()
            self._server = None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _options(self) -> list[tuple[str, int]]:
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self._config.max_recv_msg_size_mib << 20),
            ("grpc.max_concurrent_streams", self._config.max_concurrent_streams),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
        ]
        if self._config.max_connection_age_s is not None:
            options.append(("grpc.max_connection_age_ms", int(self._config.max_connection_age_s * 1000)))
        return options

    def _handler(self, signal: Signal) -> grpc.GenericRpcHandler:
        method = grpc.unary_unary_rpc_method_handler(self._export(signal))
        return grpc.method_handlers_generic_handler(WIRES[signal].service, {"Export": method})

    def _export(self, signal: Signal) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def export(body: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                accepted = self._intake.accept(signal, body, TRANSPORT)
            except RefusedError as error:
                _abort(context, error)
            return response(signal, accepted.rejected, accepted.message).SerializeToString()

        return export


def _abort(context: grpc.ServicerContext, error: RefusedError) -> NoReturn:
    said = str(error)
    match error.reason:
        case Reason.MALFORMED:
            details = status.protobuf(Code.INVALID_ARGUMENT, said)
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, said)
        case Reason.TOO_LARGE:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, said)
        case Reason.FULL | Reason.STOPPING | Reason.BUSY:
            details = status.protobuf(Code.UNAVAILABLE, said, RETRY_AFTER_S)
            context.set_trailing_metadata(
                (
                    ("grpc-status-details-bin", details),
                    ("google.rpc.retryinfo-bin", status.retry_info(RETRY_AFTER_S)),
                )
            )
            context.abort(grpc.StatusCode.UNAVAILABLE, said)
        case _:
            assert_never(error.reason)
    raise AssertionError("abort does not return")
