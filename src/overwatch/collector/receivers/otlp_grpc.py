"""OTLP over gRPC: the three `Export` methods as raw bytes, so that a body is parsed once and kept as sent.

Rules: the same meaning as over HTTP in gRPC's words; success is answered after the journal has the bytes; a
call whose message does not come costs no thread, and is cut. Must not know HTTP or what a body means.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias, assert_never

import grpc
import grpc.aio
import msgspec

from overwatch.collector.context import Context
from overwatch.collector.crowd import CrowdConfig
from overwatch.collector.intake import RETRY_AFTER_S, Body, Reason, RefusedError
from overwatch.collector.net import Address, AddressError, Listening, listen
from overwatch.collector.receivers import status
from overwatch.collector.receivers.otlp_grpc_front import Front
from overwatch.collector.receivers.otlp_grpc_guard import GrpcGuard
from overwatch.collector.receivers.status import Code
from overwatch.collector.signals import WIRES, response
from overwatch.collector.start_errors import described
from overwatch.collector.tls import TlsConfig
from overwatch.journal import Signal

Call: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Export: TypeAlias = Callable[[AsyncIterator[bytes], Call], Awaitable[bytes]]

TRANSPORT: Final = "grpc"
_MOST_OF_GRPC: Final = 2**31 - 1
"""The largest setting that gRPC takes; its times are milliseconds."""
_MOST_S: Final = _MOST_OF_GRPC // 1000

_log = logging.getLogger("overwatch.collector")


class GrpcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`receivers.otlp.protocols.grpc`."""

    endpoint: str
    """`host:port` to listen at."""
    max_recv_msg_size_mib: int = 4
    """Largest message in MiB, after decompression."""
    max_concurrent_streams: int = 32
    """Most requests in flight on one connection; a client keeps the others back."""
    max_concurrent_calls: int = 1024
    """Most requests in flight on all connections; beyond it senders are told to come back."""
    read_timeout_s: float = 10.0
    """Longest time for a whole message to arrive, in seconds."""
    connections: CrowdConfig = CrowdConfig(max_connections=2048)
    """How many connections there may be, and how long each may take to ask its first."""
    max_connection_idle_s: float | None = None
    """Connections without a call are closed after this many seconds; never if unset."""
    max_connection_age_s: float | None = None
    """Connections are asked to reconnect after this many seconds, which rebalances them; never if unset."""

    tls: TlsConfig | None = None
    """TLS of this listener; that of `service.security` if left out."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_recv_msg_size_mib <= 64:
            raise ValueError(f"max_recv_msg_size_mib {self.max_recv_msg_size_mib} is not in 1..64")
        if not 1 <= self.max_concurrent_streams <= _MOST_OF_GRPC:
            raise ValueError(
                f"max_concurrent_streams {self.max_concurrent_streams} is not in 1..{_MOST_OF_GRPC}"
            )
        if self.max_concurrent_calls < 1:
            raise ValueError(f"max_concurrent_calls {self.max_concurrent_calls} is not positive")
        for name in ("read_timeout_s", "max_connection_idle_s", "max_connection_age_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= _MOST_S:
                raise ValueError(f"{name} {value} is not more than 0 and at most {_MOST_S}")


class OtlpGrpc:
    """The gRPC server of the OTLP receiver; it runs in the collector's loop."""

    def __init__(self, config: GrpcConfig, context: Context, guard: GrpcGuard, front: Front) -> None:
        self._config = config
        self._intake = context.intake
        self._signals = context.signals
        self._loop = context.loop
        self._guard = guard
        self.front = front
        """Its port."""
        self._calls = 0
        self._server: grpc.aio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        for signal in self._signals:
            self._intake.know(signal, TRANSPORT)

    @property
    def secure(self) -> bool:
        """Whether the port speaks TLS."""
        return self.front.secure

    def open(self, wanted: Address, *, may_move: bool = True) -> Listening:
        """Serve at an address, or as `listen` does where its port is busy; raises `AddressError`."""
        listening = listen(wanted, may_move=may_move)
        try:
            self.front.prepare()
            self._loop.call(self._serve(listening))
        except OSError as error:
            listening.sock.close()
            self.front.end()
            raise AddressError(f"cannot serve gRPC at {listening.address}: {described(error)}") from error
        return listening

    def close(self, grace_s: float) -> None:
        """Stop accepting and let requests in flight end within `grace_s` seconds."""
        if self._server is not None:
            self._loop.call(self._end(grace_s))
            self.front.end()

    async def _serve(self, listening: Listening) -> None:
        self._server = await self._begin()
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        await self.front.open(listening)

    async def _begin(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            handlers=[self._handler(signal) for signal in self._signals],
            interceptors=(self._guard,),
            options=self._options(),
            compression=grpc.Compression.NoCompression,
        )
        try:
            server.add_insecure_port(self.front.address)
        except RuntimeError as error:
            raise OSError(str(error)) from error
        await server.start()
        return server

    async def _watch(self) -> None:
        """Begin again whenever gRPC's server takes no connections any more: clients must find a server."""
        while self._server is not None:
            await self.front.refused.wait()
            self.front.refused.clear()
            if self._server is None:
                return
            _log.error("the gRPC server ended by itself; another one takes its place")
            self._intake.refuse(Reason.FAULT, "", TRANSPORT)
            # What ended it has no end of its own: its open calls are cut.
            await self._server.stop(0)
            try:
                self._server = await self._begin()
            except OSError:
                _log.exception("no gRPC server can take its place; the next client makes another try")

    async def _end(self, grace_s: float) -> None:
        await self.front.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_s)
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _options(self) -> list[tuple[str, int]]:
        options = [
            ("grpc.max_receive_message_length", self._config.max_recv_msg_size_mib << 20),
            ("grpc.max_concurrent_streams", self._config.max_concurrent_streams),
            ("grpc.server_handshake_timeout_ms", int(self._config.read_timeout_s * 1000)),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            # A client that vanished between two calls is let go, too.
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.ping_timeout_ms", 10_000),
        ]
        for name in ("max_connection_idle", "max_connection_age"):
            seconds = getattr(self._config, f"{name}_s")
            if seconds is not None:
                options.append((f"grpc.{name}_ms", int(seconds * 1000)))
        return options

    def _handler(self, signal: Signal) -> grpc.GenericRpcHandler:
        # On the wire a stream of one message is a unary call; a stream may be given up while it waits.
        method = grpc.stream_unary_rpc_method_handler(self._export(signal))
        return grpc.method_handlers_generic_handler(WIRES[signal].service, {"Export": method})

    def _export(self, signal: Signal) -> Export:
        async def export(messages: AsyncIterator[bytes], call: Call) -> bytes:
            self._calls += 1
            try:
                return await self._answer(signal, messages, call)
            except RefusedError as error:
                return _refused(call, error)
            except Exception:  # noqa: BLE001 the door's border: a fault of ours is told in gRPC's words and counted
                _log.exception("a call of %s failed", WIRES[signal].service)
                said = "the collector failed; its log says why"
                return _refused(call, self._intake.refuse(Reason.FAULT, said, TRANSPORT))
            finally:
                self._calls -= 1

        return export

    async def _answer(self, signal: Signal, messages: AsyncIterator[bytes], call: Call) -> bytes:
        """The answer to one call; raises `RefusedError`."""
        self._intake.admit(TRANSPORT, TRANSPORT)
        if self._calls > self._config.max_concurrent_calls:
            said = f"{self._calls - 1} requests are being taken in already"
            raise self._intake.refuse(Reason.BUSY, said, TRANSPORT)
        try:
            async with asyncio.timeout(self._config.read_timeout_s):
                data = await anext(messages)
        except TimeoutError:
            said = f"the message did not arrive within {self._config.read_timeout_s:g} s"
            return _ended(call, grpc.StatusCode.DEADLINE_EXCEEDED, said)
        except StopAsyncIteration:
            said = "a call has exactly one message; it had none"
            return _ended(call, grpc.StatusCode.UNIMPLEMENTED, said)
        # Who is at the other end of gRPC's server is not known here: its clients share one turn.
        body = Body(signal=signal, data=data, transport=TRANSPORT, peer=TRANSPORT)
        accepted = await self._intake.take(body)
        return response(signal, accepted.rejected, accepted.message).SerializeToString()


def _ended(
    call: Call, code: grpc.StatusCode, said: str, trailing: tuple[tuple[str, bytes], ...] = ()
) -> bytes:
    """Refuse a call; what is returned takes the place of its answer, and is not sent.

    Nothing is raised: gRPC keeps with the call what `abort` raises, and so all that its frames held, a body
    among it, until garbage is collected.
    """
    call.set_code(code)
    call.set_details(said)
    call.set_trailing_metadata(trailing)
    return b""


def _refused(call: Call, error: RefusedError) -> bytes:
    said = str(error)
    match error.reason:
        case Reason.MALFORMED:
            details = status.protobuf(Code.INVALID_ARGUMENT, said)
            trailing = (("grpc-status-details-bin", details),)
            return _ended(call, grpc.StatusCode.INVALID_ARGUMENT, said, trailing)
        case Reason.TOO_LARGE:
            return _ended(call, grpc.StatusCode.RESOURCE_EXHAUSTED, said)
        case Reason.FAULT:
            return _ended(call, grpc.StatusCode.INTERNAL, said)
        case Reason.FULL | Reason.STOPPING | Reason.BUSY | Reason.MEMORY:
            details = status.protobuf(Code.UNAVAILABLE, said, RETRY_AFTER_S)
            retry = ("google.rpc.retryinfo-bin", status.retry_info(RETRY_AFTER_S))
            both = (("grpc-status-details-bin", details), retry)
            return _ended(call, grpc.StatusCode.UNAVAILABLE, said, both)
        case _:
            assert_never(error.reason)
