"""OTLP over gRPC: the three `Export` methods as raw bytes, so that a body is parsed once and kept as sent.

A pool of threads answers, one for each call in flight. `grpc.server` lives through what ends gRPC's server
for event loops for all clients: a path that is no text.

Rules: the same meaning as over HTTP, as gRPC has it; a call is judged by its metadata before its message is
read; success is answered after the journal has the bytes; a call whose message does not come is cut. Calls in
flight are capped, and those of one address; connections by gRPC's own limits. Must not know HTTP or what a
body means.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, assert_never

import grpc
import msgspec

from overwatch.background import Periodic
from overwatch.collector.auth import Denial, Role
from overwatch.collector.connections import most_connections
from overwatch.collector.context import Context
from overwatch.collector.guard import Guard, stated
from overwatch.collector.intake import RETRY_AFTER_S, Body, Reason, RefusedError
from overwatch.collector.limits import NoRoomError, Room
from overwatch.collector.net import Address, AddressError, Listening, listen
from overwatch.collector.setting_types import bounded
from overwatch.collector.signals import WIRES, Code, response, retry_info, status
from overwatch.collector.tls import Certificates, TlsConfig
from overwatch.journal import Signal

Call: TypeAlias = grpc.ServicerContext
Export: TypeAlias = Callable[[Iterator[bytes], Call], bytes]

TRANSPORT: Final = "grpc"
LISTENER: Final = "otlp_grpc"
_SPARE_THREADS: Final = 8
"""Threads beyond those of calls in flight: they answer that others must retry."""
_MOST_WAITING: Final = 8
"""So many times the calls in flight may wait for a thread; gRPC itself refuses more."""
_LOOK_S: Final = 0.25
_MOST_OF_GRPC: Final = 2**31 - 1
"""The largest setting that gRPC takes; its times are milliseconds."""
_MOST_S: Final = _MOST_OF_GRPC // 1000

_log = logging.getLogger("overwatch.collector")


class GrpcConnectionsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`connections` of the gRPC listener."""

    max_connections: int = 2048
    """Most open connections, others are closed; fewer where the system's limit of open files is too small."""
    read_header_timeout_s: float = 10.0
    """Longest time for a new connection's TLS and first settings, in seconds."""

    def __post_init__(self) -> None:
        bounded(self, "max_connections", least=1, most=_MOST_OF_GRPC)
        bounded(self, "read_header_timeout_s", most=_MOST_S)


class GrpcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`receivers.otlp.protocols.grpc`."""

    endpoint: str
    """`host:port` to listen at."""
    max_recv_msg_size_mib: int = 4
    """Largest message in MiB, after decompression."""
    max_concurrent_streams: int = 32
    """Most requests in flight on one connection; a client keeps the others back."""
    max_concurrent_calls: int = 256
    """Most requests in flight on all connections, a thread each; beyond it senders must retry."""
    max_concurrent_calls_per_peer: int | None = None
    """Most of them from one address; half if left out."""
    read_timeout_s: float = 10.0
    """Longest time for a whole message to arrive, in seconds."""
    connections: GrpcConnectionsConfig = GrpcConnectionsConfig()
    """How many connections there may be, and how long each may take to begin."""
    max_connection_idle_s: float | None = None
    """Connections without a call are closed after this many seconds; never if unset."""
    max_connection_age_s: float | None = None
    """Connections are asked to reconnect after this many seconds, which rebalances them; never if unset."""

    tls: TlsConfig | None = None
    """TLS of this listener; that of `service.security` if left out."""

    def __post_init__(self) -> None:
        bounded(self, "max_recv_msg_size_mib", least=1, most=64)
        bounded(self, "max_concurrent_streams", least=1, most=_MOST_OF_GRPC)
        bounded(self, "max_concurrent_calls", "max_concurrent_calls_per_peer")
        bounded(self, "read_timeout_s", "max_connection_idle_s", "max_connection_age_s", most=_MOST_S)

    @property
    def calls_of_a_peer(self) -> int:
        """Most calls in flight from one address."""
        half = max(1, self.max_concurrent_calls // 2)
        return half if self.max_concurrent_calls_per_peer is None else self.max_concurrent_calls_per_peer

    def options(self) -> list[tuple[str, int]]:
        """The limits that are gRPC's own."""
        options = [
            # A busy port is an error, not shared.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.max_recv_msg_size_mib << 20),
            ("grpc.max_concurrent_streams", self.max_concurrent_streams),
            (
                "grpc.max_allowed_incoming_connections",
                most_connections(self.connections.max_connections),
            ),
            ("grpc.server_handshake_timeout_ms", int(self.connections.read_header_timeout_s * 1000)),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            # A client that vanished between two calls is let go, too.
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.ping_timeout_ms", 10_000),
        ]
        for name in ("max_connection_idle", "max_connection_age"):
            seconds = getattr(self, f"{name}_s")
            if seconds is not None:
                options.append((f"grpc.{name}_ms", int(seconds * 1000)))
        return options


class OtlpGrpc:
    """The gRPC server of the OTLP receiver."""

    def __init__(self, config: GrpcConfig, context: Context, room: Room) -> None:
        """`room` is what bodies on their way in may take."""
        self._config = config
        self._intake = context.intake
        self._signals = context.signals
        self._guard = context.guard
        self._certificates = context.guard.certificates(config.tls)
        self._room = room
        self._calls = Room(config.max_concurrent_calls, config.calls_of_a_peer)
        self._waiting: dict[Call, float] = {}
        """Calls whose message did not come yet, and when it must have."""
        self._waits = threading.Lock()
        self._cutting = Periodic("otlp-grpc-late", _LOOK_S, self._cut_late)
        self._pool: ThreadPoolExecutor | None = None
        self._server: grpc.Server | None = None
        for signal in self._signals:
            self._intake.know(signal, TRANSPORT)

    @property
    def secure(self) -> bool:
        """Whether the port speaks TLS."""
        return self._certificates is not None

    def open(self, wanted: Address, *, may_move: bool = True) -> Listening:
        """Serve at an address, or as `listen` does where its port is busy; raises `AddressError`."""
        most = self._config.max_concurrent_calls
        self._pool = ThreadPoolExecutor(most + _SPARE_THREADS, "otlp-grpc")
        self._server = grpc.server(
            self._pool,
            handlers=[self._handler(signal) for signal in self._signals],
            interceptors=(_TokenGuard(self._guard),),
            options=self._config.options(),
            maximum_concurrent_rpcs=most * _MOST_WAITING,
        )
        # gRPC takes no socket of ours: it takes the port once ours has let go of it.
        listening = listen(wanted, may_move=may_move)
        place = Address(host=listening.sock.getsockname()[0], port=listening.address.port)
        listening.sock.close()
        try:
            if self._certificates is None:
                self._server.add_insecure_port(str(place))
            else:
                self._server.add_secure_port(str(place), _credentials(self._certificates))
        except RuntimeError as error:
            self.close(0)
            raise AddressError(f"cannot serve gRPC at {listening.address}: {error}") from error
        self._cutting.start()
        self._server.start()
        return listening

    def close(self, grace_s: float) -> None:
        """Stop accepting and let requests in flight end within `grace_s` seconds."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(grace_s).wait()
        self._cutting.stop()
        if self._pool is not None:
            self._pool.shutdown()

    def _handler(self, signal: Signal) -> grpc.GenericRpcHandler:
        # On the wire a stream of one message is a unary call; a stream may be given up while it waits.
        method = grpc.stream_unary_rpc_method_handler(self._export(signal))
        return grpc.method_handlers_generic_handler(WIRES[signal].service, {"Export": method})

    def _export(self, signal: Signal) -> Export:
        def export(messages: Iterator[bytes], call: Call) -> bytes:
            peer = _address(call)
            if not self._calls.take(1, peer):
                wanted = "requests are being taken in already, in all or from your address"
                return _refused(call, self._intake.refuse(Reason.BUSY, f"as many {wanted}", TRANSPORT))
            try:
                return self._answer(signal, messages, call, peer)
            except RefusedError as error:
                return _refused(call, error)
            except grpc.RpcError:
                # The call has ended before its message came.
                raise
            except Exception:  # noqa: BLE001 the border of a call: a fault of ours is answered and counted
                _log.exception("a call of %s failed", WIRES[signal].service)
                why = "the collector failed; its log has the cause"
                return _refused(call, self._intake.refuse(Reason.FAULT, why, TRANSPORT))
            finally:
                self._calls.give(1, peer)

        return export

    def _answer(self, signal: Signal, messages: Iterator[bytes], call: Call, peer: str) -> bytes:
        """The answer to one call; raises `RefusedError`."""
        self._intake.admit(TRANSPORT)
        with self._waits:
            self._waiting[call] = time.monotonic() + self._config.read_timeout_s
        try:
            data = next(messages, None)
        finally:
            with self._waits:
                del self._waiting[call]
        if data is None:
            return _ended(call, grpc.StatusCode.UNIMPLEMENTED, "a call has exactly one message; it had none")
        with self._room.hold(peer) as grow:
            try:
                grow(len(data))
            except NoRoomError as error:
                raise self._intake.refuse(Reason.BUSY, str(error), TRANSPORT) from error
            body = Body(signal=signal, data=data, transport=TRANSPORT, peer=peer)
            accepted = self._intake.take_blocking(body)
        return response(signal, accepted.rejected, accepted.message).SerializeToString()

    def _cut_late(self) -> None:
        """End the calls whose message does not come in time."""
        now = time.monotonic()
        with self._waits:
            late = [call for call, due in self._waiting.items() if due < now]
        for call in late:
            call.cancel()


class _TokenGuard(grpc.ServerInterceptor):  # type: ignore[misc] # grpc has no types
    """Stands before all methods of a server, those that do not exist among them."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """The handler of a call, or one that refuses it."""
        metadata = handler_call_details.invocation_metadata
        tokens = [value for key, value in metadata if key == "authorization" and isinstance(value, str)]
        denial = self._guard.tokens.judge(Role.INGEST, tokens)
        if denial is None:
            return continuation(handler_call_details)
        self._guard.count(LISTENER, "authorization")
        guard = self._guard

        def refuse(_: object, call: Call) -> bytes:
            """End a call that shows no right token."""
            wait_s = guard.wrong(denial, _address(call), tokens)
            code = grpc.StatusCode.RESOURCE_EXHAUSTED if wait_s else _CODES[denial]
            return _ended(call, code, stated(denial, Role.INGEST, wait_s))

        # A handler of a stream is called before any message is read; that of a single message, after it.
        return grpc.stream_unary_rpc_method_handler(refuse)


_CODES: Final = {
    Denial.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Denial.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
}


def _credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """TLS with the certificates of each handshake's moment."""
    shown = certificates.pem

    def changed() -> Any:
        """What is new since the last handshake; `None` for nothing."""
        nonlocal shown
        certificates.look()
        if certificates.pem is shown:
            return None
        shown = certificates.pem
        return _configuration(certificates)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(certificates),
        changed,
        require_client_authentication=certificates.config.client_ca_file is not None,
    )


def _configuration(certificates: Certificates) -> Any:
    pem = certificates.pem
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.chain)], pem.authorities)


def _address(call: Call) -> str:
    """The address at the other end of a call, without its port."""
    return str(call.peer()).rpartition(":")[0]


def _ended(
    call: Call, code: grpc.StatusCode, why: str, trailing: tuple[tuple[str, bytes], ...] = ()
) -> bytes:
    """Refuse a call; what is returned takes the place of its answer.

    Nothing is raised, as `abort` does: a traceback would keep all that its frames hold, a body among it.
    """
    call.set_code(code)
    call.set_details(why)
    call.set_trailing_metadata(trailing)
    return b""


def _refused(call: Call, error: RefusedError) -> bytes:
    why = str(error)
    match error.reason:
        case Reason.MALFORMED:
            details = status(Code.INVALID_ARGUMENT, why).SerializeToString()
            trailing = (("grpc-status-details-bin", details),)
            return _ended(call, grpc.StatusCode.INVALID_ARGUMENT, why, trailing)
        case Reason.TOO_LARGE:
            return _ended(call, grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        case Reason.FAULT:
            return _ended(call, grpc.StatusCode.INTERNAL, why)
        case Reason.BUSY:
            return _later(call, grpc.StatusCode.RESOURCE_EXHAUSTED, Code.RESOURCE_EXHAUSTED, why)
        case Reason.FULL | Reason.STOPPING | Reason.MEMORY:
            return _later(call, grpc.StatusCode.UNAVAILABLE, Code.UNAVAILABLE, why)
        case _:
            assert_never(error.reason)


def _later(call: Call, code: grpc.StatusCode, canonical: Code, why: str) -> bytes:
    """Ask the sender to come back: OTLP's clients send again where there is a `RetryInfo`."""
    details = status(canonical, why, RETRY_AFTER_S).SerializeToString()
    retry = ("google.rpc.retryinfo-bin", retry_info(RETRY_AFTER_S).SerializeToString())
    return _ended(call, code, why, (("grpc-status-details-bin", details), retry))
