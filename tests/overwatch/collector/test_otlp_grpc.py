"""OTLP over gRPC at a real collector: the same meaning as over HTTP, in gRPC's words."""

import contextlib
import gc
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from overwatch.collector import Service, StartError
from overwatch.collector.intake import RefusedError
from overwatch.collector.receivers.otlp_grpc import GrpcConfig, GrpcConnectionsConfig
from overwatch.collector.signals import WIRES
from overwatch.journal import Signal
from tests.overwatch.collector import raw_http2 as h2
from tests.overwatch.collector.raw_http2 import begin_call
from tests.overwatch.collector.running import config, eventually, fill, reported, run_started, running, update

LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One collector for this module."""
    with running(
        tmp_path_factory.mktemp("grpc"),
        "receivers.otlp.protocols.grpc.max_recv_msg_size_mib=1",
        "exporters.aggregator.journal_size_mib=1",
    ) as started:
        yield started


@pytest.fixture
def channel(service: Service) -> Iterator[grpc.Channel]:
    """A client of the collector."""
    with grpc.insecure_channel(str(service.endpoints.otlp_grpc).removeprefix("http://")) as opened:
        yield opened


def send(channel: grpc.Channel, body: bytes, method: str = LOGS, *, packed: bool = False) -> bytes:
    """One raw call."""
    compression = grpc.Compression.Gzip if packed else None
    answer: bytes = channel.unary_unary(method)(body, timeout=10, compression=compression)
    return answer


def test_all_three_methods_answer(channel: grpc.Channel) -> None:
    """Empty requests of each signal succeed with empty answers."""
    methods = [f"/{WIRES[signal].service}/Export" for signal in (Signal.LOGS, Signal.METRICS, Signal.TRACES)]

    assert [send(channel, b"", method) for method in methods] == [b"", b"", b""]


def test_gzip_is_taken(service: Service, channel: grpc.Channel) -> None:
    """A gzipped request is accepted and counted."""
    labels = {"receiver": "otlp", "transport": "grpc"}
    before = service.context.tally.get("otelcol_receiver_accepted_log_records", **labels)
    answer = send(channel, reported("run-grpc", [run_started(), update(0.01)]), packed=True)

    assert not ExportLogsServiceResponse.FromString(answer).HasField("partial_success")
    assert service.context.tally.get("otelcol_receiver_accepted_log_records", **labels) == before + 2


def test_garbage_is_an_invalid_argument(channel: grpc.Channel) -> None:
    """A body that is no protobuf is refused for good."""
    with pytest.raises(grpc.RpcError) as caught:
        send(channel, b"\xff\xff\xff")

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_what_is_refused_leaves_nothing_for_the_garbage_collector(channel: grpc.Channel) -> None:
    """Who sends garbage all day costs no memory."""

    def kept() -> int:
        # By `type` alone: some objects of other libraries answer `isinstance` with a warning.
        return sum(type(one) is RefusedError for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            with pytest.raises(grpc.RpcError):
                send(channel, b"\xff\xff\xff")
        assert eventually(lambda: kept() < 5)
    finally:
        gc.enable()


@pytest.mark.parametrize("packed", [False, True])
def test_too_large_is_exhausted_without_a_retry(channel: grpc.Channel, *, packed: bool) -> None:
    """A message beyond the limit, also one that only grows when inflated, is refused for good."""
    with pytest.raises(grpc.RpcError) as caught:
        send(channel, bytes(2 << 20), packed=packed)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "google.rpc.retryinfo-bin" not in dict(caught.value.trailing_metadata() or ())


def test_an_unknown_method_is_unimplemented(channel: grpc.Channel) -> None:
    """A service that is not OTLP is refused by name."""
    with pytest.raises(grpc.RpcError) as caught:
        send(channel, b"", "/some.Service/Export")

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_full_journal_is_unavailable_with_a_delay(service: Service, channel: grpc.Channel) -> None:
    """With no room, senders are answered when to retry."""
    hung = fill(service, leave=1000)
    try:
        with pytest.raises(grpc.RpcError) as caught:
            send(channel, reported("run-full", [update(0.01, index) for index in range(40)]))
    finally:
        hung.wait(0)

    trailing = dict(caught.value.trailing_metadata() or ())
    retry = error_details_pb2.RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"])
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert retry.retry_delay.seconds == 2
    assert status_pb2.Status.FromString(trailing["grpc-status-details-bin"]).code == 14


def test_calls_that_never_speak_block_no_one(tmp_path: Path) -> None:
    """Calls without a message, up to the share of an address, leave room for others, and are cut."""
    sets = [f"receivers.otlp.protocols.grpc.{key}" for key in ("read_timeout_s=1", "max_concurrent_calls=26")]
    sets.append("receivers.otlp.protocols.grpc.max_concurrent_calls_per_peer=13")
    with running(tmp_path, *sets) as service:
        address = str(service.endpoints.otlp_grpc).removeprefix("http://")
        host, _, port = address.rpartition(":")
        stalled = [begin_call(host, int(port), LOGS) for _ in range(12)]
        try:
            with grpc.insecure_channel(address) as channel:
                assert send(channel, b"") == b""
            answers = [_kinds(connection, h2.RST_STREAM) for connection in stalled]
        finally:
            for connection in stalled:
                connection.close()
    assert all(h2.RST_STREAM in answer for answer in answers)


def _kinds(connection: socket.socket, last: int) -> list[int]:
    """The kinds of frames that come, up to one of a kind, or up to the end."""
    received = b""
    while last not in h2.kinds(received):
        piece = connection.recv(4096)
        if not piece:
            break
        received += piece
    return h2.kinds(received)


@pytest.mark.parametrize("cap", ["max_concurrent_calls", "max_concurrent_calls_per_peer"])
def test_calls_beyond_a_cap_are_asked_to_come_back(tmp_path: Path, cap: str) -> None:
    """While as many calls as allowed are on their way, others get `RESOURCE_EXHAUSTED` with a delay."""
    with running(tmp_path, f"receivers.otlp.protocols.grpc.{cap}=1") as service:
        address = str(service.endpoints.otlp_grpc).removeprefix("http://")
        host, _, port = address.rpartition(":")
        with _place_held(host, int(port)) as trailing:
            pass
        retry = error_details_pb2.RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"])
        assert retry.retry_delay.seconds == 2


@contextlib.contextmanager
def _place_held(host: str, port: int) -> Iterator[dict[str, bytes]]:
    """A call without a message holds the only place; gives the trailing metadata of a call beyond it.

    Where the held call came second, or was cut, another one takes its place.
    """
    held = begin_call(host, port, LOGS)

    def refused() -> dict[str, bytes] | None:
        nonlocal held
        trailing = _refusal(channel)
        if not _is_over(held):
            return trailing
        held.close()
        held = begin_call(host, port, LOGS)
        return None

    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            yield eventually(refused)
        finally:
            held.close()


def _is_over(call: socket.socket) -> bool:
    """Whether the only call of a connection was answered or cut."""
    has_come = bool(select.select([call], [], [], 0)[0])
    received = call.recv(1 << 16, socket.MSG_PEEK) if has_come else b""
    return bool({h2.HEADERS, h2.RST_STREAM} & set(h2.kinds(received)))


def _refusal(channel: grpc.Channel) -> dict[str, bytes]:
    """The trailing metadata of a call that was beyond a cap; nothing where it was answered."""
    try:
        send(channel, b"")
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return dict(error.trailing_metadata() or ())
        raise
    return {}


def test_one_address_leaves_calls_to_others(tmp_path: Path) -> None:
    """An address has half of all calls unless a setting changes it."""
    with running(tmp_path, "receivers.otlp.protocols.grpc.max_concurrent_calls=2") as service:
        address = str(service.endpoints.otlp_grpc).removeprefix("http://")
        host, _, port = address.rpartition(":")
        with (
            _place_held(host, int(port)),
            socket.create_connection((host, int(port)), 10, ("127.0.0.2", 0)) as other,
        ):
            other.sendall(h2.whole_call(LOGS, b""))
            received = b""
            while b"grpc-status" not in received:
                received += other.recv(4096) or pytest.fail("the connection ended")
    assert b"grpc-status\x010" in received


@pytest.mark.parametrize("path", [b"/\xff\xfe", b"\xff\xfe", LOGS.encode() + b"\xff"])
def test_a_path_that_is_no_text_ends_its_call_alone(service: Service, path: bytes) -> None:
    """It is no method; the next good call is answered, on a connection of before and on a new one."""
    address = str(service.endpoints.otlp_grpc).removeprefix("http://")
    host, _, port = address.rpartition(":")
    good = h2.whole_call(LOGS, b"")
    bad = good.replace(bytes((len(LOGS),)) + LOGS.encode(), bytes((len(path),)) + path)
    # The frame's length is that of its head.
    head_at = good.index(h2.frame(h2.SETTINGS, 0, 0, b"")) + 9
    size = int.from_bytes(good[head_at : head_at + 3]) + len(path) - len(LOGS)
    bad = bad[:head_at] + size.to_bytes(3) + bad[head_at + 3 :]
    with grpc.insecure_channel(address) as before:
        assert send(before, b"") == b""
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(bad)
            assert {h2.HEADERS, h2.RST_STREAM} & set(_kinds(connection, h2.HEADERS))
        assert send(before, b"") == b""
    with socket.create_connection((host, int(port)), 10) as after:
        after.sendall(good)
        received = b""
        while b"grpc-status" not in received:
            received += after.recv(4096) or pytest.fail("the connection ended")
    assert b"grpc-status\x010" in received


def test_a_busy_port_is_named_or_the_next_one_taken(service: Service, tmp_path: Path) -> None:
    """As at the other listeners: an endpoint that a person named is an error, the default moves on."""
    busy = str(service.endpoints.otlp_grpc).removeprefix("http://")
    endpoint = f"receivers.otlp.protocols.grpc.endpoint={busy}"
    with running(tmp_path, endpoint) as moved:
        assert moved.endpoints.otlp_grpc != service.endpoints.otlp_grpc
        with grpc.insecure_channel(str(moved.endpoints.otlp_grpc).removeprefix("http://")) as channel:
            assert send(channel, b"") == b""
    with pytest.raises(StartError, match="the port is held by"):
        Service(config(tmp_path, endpoint), fixed=frozenset({busy})).start()


@pytest.mark.parametrize(
    "keys",
    [
        {"max_concurrent_calls": 0}, {"max_concurrent_calls_per_peer": 0}, {"max_concurrent_streams": 0},
        {"max_recv_msg_size_mib": 65}, {"read_timeout_s": 0.0}, {"max_connection_idle_s": -1.0},
        {"max_connection_age_s": 3e6},
    ],
)  # fmt: skip
def test_limits_that_cannot_hold_are_refused(keys: dict[str, float]) -> None:
    """Each names its key and the value."""
    with pytest.raises(ValueError, match=next(iter(keys))):
        GrpcConfig(endpoint="127.0.0.1:0", **keys)  # type: ignore[arg-type] # the keys of a test


@pytest.mark.parametrize("keys", [{"max_connections": 0}, {"read_header_timeout_s": 0.0}])
def test_limits_of_connections_are_positive(keys: dict[str, float]) -> None:
    """No cap and no deadline is 0."""
    with pytest.raises(ValueError, match=next(iter(keys))):
        GrpcConnectionsConfig(**keys)  # type: ignore[arg-type] # the keys of a test


def test_connections_beyond_the_cap_are_closed(tmp_path: Path) -> None:
    """One that ends makes room."""
    with running(tmp_path, "receivers.otlp.protocols.grpc.connections.max_connections=2") as service:
        host, _, port = str(service.endpoints.otlp_grpc).removeprefix("http://").rpartition(":")

        def is_served(connection: socket.socket) -> bool:
            with contextlib.suppress(ConnectionError):
                connection.sendall(h2.whole_call(LOGS, b""))
                received = b""
                while b"grpc-status" not in received:
                    piece = connection.recv(4096)
                    if not piece:
                        return False
                    received += piece
                return True
            return False

        opened = [socket.create_connection((host, int(port)), 10) for _ in range(2)]
        assert all(is_served(one) for one in opened)
        with socket.create_connection((host, int(port)), 10) as beyond:
            assert not is_served(beyond)
        for one in opened:
            one.close()

        def is_next_served() -> bool:
            with socket.create_connection((host, int(port)), 10) as another:
                return is_served(another)

        assert eventually(is_next_served)
