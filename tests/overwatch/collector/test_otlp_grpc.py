"""OTLP over gRPC at a real collector: the same meaning as over HTTP, in gRPC's words."""

import gc
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from overwatch.collector import Service
from overwatch.collector.intake import RefusedError
from overwatch.collector.signals import METRICS, TRACES, WIRES
from overwatch.journal import Signal
from tests.overwatch.collector.raw_http2 import begin_call
from tests.overwatch.collector.running import eventually, fill, run_started, running, told, update

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
    methods = [f"/{WIRES[signal].service}/Export" for signal in (Signal.LOGS, METRICS.signal, TRACES.signal)]

    assert [send(channel, b"", method) for method in methods] == [b"", b"", b""]


def test_gzip_is_taken(service: Service, channel: grpc.Channel) -> None:
    """A gzipped request is accepted and counted."""
    labels = {"receiver": "otlp", "transport": "grpc"}
    before = service.context.tally.get("otelcol_receiver_accepted_log_records", **labels)
    answer = send(channel, told("run-grpc", [run_started(), update(0.01)]), packed=True)

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
        return sum(type(one) in (RefusedError, grpc.aio.AbortError) for one in gc.get_objects())

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
    """With no room, senders are told when to come back."""
    hung = fill(service, leave=1000)
    try:
        with pytest.raises(grpc.RpcError) as caught:
            send(channel, told("run-full", [update(0.01, index) for index in range(40)]))
    finally:
        hung.wait(0)

    trailing = dict(caught.value.trailing_metadata() or ())
    retry = error_details_pb2.RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"])
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert retry.retry_delay.seconds == 2
    assert status_pb2.Status.FromString(trailing["grpc-status-details-bin"]).code == 14


def test_calls_that_never_speak_block_no_one(tmp_path: Path) -> None:
    """Calls without a message, more than there are workers, leave the door open to others, and are cut."""
    with running(tmp_path, "receivers.otlp.protocols.grpc.read_timeout_s=1") as service:
        address = str(service.endpoints.otlp_grpc).removeprefix("http://")
        host, _, port = address.rpartition(":")
        stalled = [begin_call(host, int(port), LOGS) for _ in range(12)]
        try:
            with grpc.insecure_channel(address) as channel:
                assert send(channel, b"") == b""
            answers = [_read_until(connection, b"grpc-status") for connection in stalled]
        finally:
            for connection in stalled:
                connection.close()
    assert all(b"grpc-status" in answer for answer in answers)


def _read_until(connection: socket.socket, word: bytes) -> bytes:
    """What comes up to a word, or up to the end."""
    said = b""
    while word not in said:
        piece = connection.recv(4096)
        if not piece:
            break
        said += piece
    return said


def test_a_crowd_of_calls_is_asked_to_come_back(tmp_path: Path) -> None:
    """While as many calls as allowed are on their way, others get `UNAVAILABLE` with a delay."""
    with running(tmp_path, "receivers.otlp.protocols.grpc.max_concurrent_calls=1") as service:
        address = str(service.endpoints.otlp_grpc).removeprefix("http://")
        host, _, port = address.rpartition(":")
        with begin_call(host, int(port), LOGS), grpc.insecure_channel(address) as channel:
            trailing = eventually(lambda: _refusal(channel))
        retry = error_details_pb2.RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"])
        assert retry.retry_delay.seconds == 2


def _refusal(channel: grpc.Channel) -> dict[str, bytes]:
    """The trailing metadata of a call that was not available; nothing where it was."""
    try:
        send(channel, b"")
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return dict(error.trailing_metadata() or ())
        raise
    return {}
