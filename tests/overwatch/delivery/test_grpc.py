"""Requests over gRPC: what each code means, and what no collector can do to us."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from overwatch.delivery import Destination, destination
from overwatch.delivery.answer import Answer, Verdict
from overwatch.delivery.transport import OtlpTransport
from overwatch.journal import Signal
from overwatch.sdk.exporter.queues import Request
from tests.overwatch.delivery.evil import SOON_S, Call, evil
from tests.overwatch.sdk.sink import grpc_sink, partial_success
from tests.ports import free_port

LONG_S = 30.0
GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
FINAL = [
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
    "INTERNAL",
    "RESOURCE_EXHAUSTED",
]
Behaviour = Callable[[bytes, grpc.ServicerContext], bytes]


def request(body: bytes = b"", signal: Signal = Signal.LOGS) -> Request:
    """A request with a body."""
    return Request(order=1, signal=signal, body=body, is_fact=False, records=1, last_seq=1)


def to(endpoint: str, env: dict[str, str] | None = None, signal: Signal = Signal.LOGS) -> Destination:
    """A signal to an endpoint."""
    words = GRPC | (env or {})
    return destination(signal, endpoint, words)


def query(
    endpoint: str, *, env: dict[str, str] | None = None, body: bytes = b"", within_s: float = LONG_S
) -> Answer:
    """One request to an endpoint."""
    transport = OtlpTransport({Signal.LOGS: to(endpoint, env)})
    try:
        return transport.send(request(body), time.monotonic() + within_s)
    finally:
        transport.close()


class _Any(grpc.GenericRpcHandler):
    """Every method answers alike, and remembers how it was called."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.calls: list[tuple[str, dict[str, str | bytes]]] = []
        self._behaviour = behaviour

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        self.calls.append((handler_call_details.method, dict(handler_call_details.invocation_metadata)))
        return grpc.unary_unary_rpc_method_handler(self._behaviour)


@contextlib.contextmanager
def serving(behaviour: Behaviour) -> Iterator[tuple[str, _Any]]:
    """A server whose methods all behave so; its URL."""
    handler = _Any(behaviour)
    with ThreadPoolExecutor(4) as pool:
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        server = grpc.server(pool, (handler,), options=options, compression=grpc.Compression.Gzip)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"http://127.0.0.1:{port}", handler
        finally:
            server.stop(None).wait()


def failing(code: grpc.StatusCode, retry: Duration | None = None) -> Behaviour:
    """Every call fails so."""

    def behave(_: bytes, context: grpc.ServicerContext) -> bytes:
        if retry is not None:
            detail = AnyMessage()
            detail.Pack(RetryInfo(retry_delay=retry))
            status = Status(code=code.value[0], message="no", details=[detail])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, "no")
        raise AssertionError

    return behave


def test_the_three_signals_have_their_services_and_share_a_channel() -> None:
    """Bodies go as they were encoded, with the metadata that the environment names."""
    env = {
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc,grpc-timeout=1n",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    bodies: list[bytes] = []
    peers: set[str] = set()

    def behave(body: bytes, context: grpc.ServicerContext) -> bytes:
        bodies.append(body)
        peers.add(context.peer())
        return b""

    with serving(behave) as (endpoint, handler):
        signals = (Signal.LOGS, Signal.METRICS, Signal.TRACES)
        transport = OtlpTransport({signal: to(endpoint, env, signal) for signal in signals})
        for signal in signals:
            answer = transport.send(request(signal.value.encode() * 500, signal), time.monotonic() + LONG_S)
            assert answer == Answer(verdict=Verdict.TAKEN)
        transport.close()
        prefix = "/opentelemetry.proto.collector"
        assert [method for method, _ in handler.calls] == [
            f"{prefix}.logs.v1.LogsService/Export",
            f"{prefix}.metrics.v1.MetricsService/Export",
            f"{prefix}.trace.v1.TraceService/Export",
        ]
        assert bodies == [signal.value.encode() * 500 for signal in signals]
        assert len(peers) == 1
        assert all(metadata["authorization"] == "Bearer abc" for _, metadata in handler.calls)


def test_partial_success_is_taken_with_its_count() -> None:
    """What the collector did not keep is reported, and is no reason to send again."""
    with grpc_sink() as sink:
        sink.reply = partial_success(3)
        answer = query(sink.endpoint)
        assert (answer.verdict, answer.rejected, answer.detail) == (Verdict.TAKEN, 3, "too many")
        assert sink.requests == 1


@pytest.mark.parametrize(
    "code", ["CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"]
)
def test_what_otlp_calls_retryable_may_be_sent_again(code: str) -> None:
    """Six codes."""
    with serving(failing(grpc.StatusCode[code])) as (endpoint, handler):
        answer = query(endpoint)
        assert (answer.verdict, answer.code) == (Verdict.AGAIN, code.lower())
        assert len(handler.calls) == 1


@pytest.mark.parametrize("code", FINAL)
def test_every_other_code_is_final(code: str) -> None:
    """`RESOURCE_EXHAUSTED` too, where the collector does not state when to come back."""
    with serving(failing(grpc.StatusCode[code])) as (endpoint, handler):
        answer = query(endpoint)
        assert (answer.verdict, answer.code) == (Verdict.REFUSED, code.lower())
        assert answer.detail == f"gRPC {code} no"
        assert len(handler.calls) == 1


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "UNAVAILABLE"])
def test_retry_info_states_when(code: str) -> None:
    """With it an exhausted collector may be asked again; a minute at most."""
    with serving(failing(grpc.StatusCode[code], Duration(seconds=1, nanos=500_000_000))) as (endpoint, _):
        answer = query(endpoint)
        assert (answer.verdict, answer.retry_after_s) == (Verdict.AGAIN, 1.5)
    with serving(failing(grpc.StatusCode[code], Duration(seconds=10**9))) as (endpoint, _):
        assert query(endpoint).retry_after_s == 60.0


@pytest.mark.parametrize("size", [5 << 20, 64 << 20])
def test_a_reply_is_read_up_to_its_cap(size: int) -> None:
    """Unpacked size counts; such a request is not sent again."""
    with serving(lambda *_: bytes(size)) as (endpoint, _):
        answer = query(endpoint)
    assert (answer.verdict, answer.code) == (Verdict.REFUSED, "resource_exhausted")


def hung(call: Call) -> None:
    """Takes the connection, and never answers."""
    call.hold()


def slow(call: Call) -> None:
    """A valid settings frame, then pings a byte at a time."""
    call.emit(bytes.fromhex("000000040000000000"))
    call.dribble(bytes.fromhex("0000080600000000000000000000000000") * 1000, 0.02)


@pytest.mark.parametrize("script", [hung, slow], ids=lambda script: script.__name__)
def test_the_deadline_is_of_the_whole_exchange(script: Callable[[Call], None]) -> None:
    """However a collector drags on, the try ends when it should, and may be made again."""
    with evil(script) as server:
        begun = time.monotonic()
        answer = query(server.endpoint, within_s=0.5, body=bytes(1 << 20))
        took = time.monotonic() - begun
    assert answer.verdict is Verdict.AGAIN
    assert took < SOON_S


@pytest.mark.parametrize("script", [hung, slow], ids=lambda script: script.__name__)
def test_closing_ends_a_try_in_flight(script: Callable[[Call], None]) -> None:
    """From another thread, long before the deadline."""
    with evil(script) as server:
        transport = OtlpTransport({Signal.LOGS: to(server.endpoint)})
        closer = threading.Thread(target=lambda: (server.wait(lambda it: it.connections), transport.close()))
        closer.start()
        begun = time.monotonic()
        answer = transport.send(request(), time.monotonic() + LONG_S)
        closer.join()
        assert time.monotonic() - begun < SOON_S
        assert (answer.verdict, answer.code) == (Verdict.AGAIN, "closed")
        assert transport.send(request(), time.monotonic() + LONG_S).code == "closed"


def test_a_closed_port_is_no_refusal_and_its_return_is_seen_at_once() -> None:
    """A new try is a new connection: no back-off of the channel's own hides that the collector is back."""
    port = free_port()
    transport = OtlpTransport({Signal.LOGS: to(f"http://127.0.0.1:{port}")})
    for _ in range(6):
        answer = transport.send(request(), time.monotonic() + LONG_S)
        assert (answer.verdict, answer.code) == (Verdict.AGAIN, "unavailable")
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, (_Any(lambda *_: b""),))
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        assert transport.send(request(), time.monotonic() + LONG_S).verdict is Verdict.TAKEN
        transport.close()
        server.stop(None).wait()
