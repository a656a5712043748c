"""OTLP over HTTP at a real collector: what is taken in, what is refused, and in which words."""

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.rpc import status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from overwatch.collector import Service
from overwatch.journal import Signal
from overwatch.otlp.jsonl import to_json
from tests.overwatch.collector.running import (
    Reply,
    eventually,
    fill,
    http,
    reported,
    run_started,
    running,
    update,
)

PROTOBUF = "application/x-protobuf"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One collector for this module."""
    with running(
        tmp_path_factory.mktemp("http"), "receivers.otlp.protocols.http.max_request_body_size=65536"
    ) as s:
        yield s


def post(service: Service, body: bytes, path: str = "/v1/logs", **headers: str) -> Reply:
    """POST to the collector's OTLP/HTTP door."""
    headers.setdefault("Content_Type", PROTOBUF)
    return http(f"{service.endpoints.otlp_http}{path}", body, "POST", **headers)


def broken() -> bytes:
    """Two records, one of which no event can be made of."""
    request = ExportLogsServiceRequest.FromString(reported("run-partial", [run_started(), update(0.01)]))
    log = request.resource_logs[0].scope_logs[0].log_records[1]
    log.event_name = "overwatch.early_stopped"
    del log.attributes[:]
    return request.SerializeToString()


def test_success_leaves_partial_success_unset(service: Service) -> None:
    """A request that is taken in whole is answered with an empty message."""
    reply = post(service, reported("run-a", [run_started(), update(0.01)]))

    assert (reply.status, reply.body, reply.headers["Content-Type"]) == (200, b"", PROTOBUF)


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/metrics", "/v1/traces"])
def test_an_empty_request_succeeds(service: Service, path: str) -> None:
    """An empty request is a success for each signal, in both encodings."""
    binary = post(service, b"", path)
    text = post(service, b"{}", path, Content_Type="application/json; charset=utf-8")

    assert (binary.status, binary.body) == (200, b"")
    assert (text.status, text.body, text.headers["Content-Type"]) == (200, b"{}", "application/json")


def test_json_and_gzip_reach_the_snapshot(service: Service) -> None:
    """Events sent as gzipped JSON are folded like any other."""
    body = to_json(Signal.LOGS, reported("run-json", [run_started(), update(0.0123)]))
    reply = post(service, gzip.compress(body), Content_Type="application/json", Content_Encoding="gzip")

    assert reply.status == 200
    view = str(service.endpoints.view).replace("ws:", "http:")
    snapshot = eventually(
        lambda: (
            (found := http(f"{view}/api/v1/snapshot?run=run-json")).status == 200 and json.loads(found.body)
        )
    )
    assert snapshot["policy"]["kl_divergence"]["value"] == 0.0123


def test_partial_success_counts_exactly(service: Service) -> None:
    """One bad record of two is reported as one, and its neighbour is kept."""
    reply = post(service, broken())
    text = post(service, to_json(Signal.LOGS, broken()), Content_Type="application/json")

    answer = ExportLogsServiceResponse.FromString(reply.body)
    assert reply.status == 200
    assert answer.partial_success.rejected_log_records == 1
    assert answer.partial_success.error_message
    assert json.loads(text.body)["partialSuccess"]["rejectedLogRecords"] == "1"


@pytest.mark.parametrize(
    ("status", "place", "headers", "body"),
    [
        (404, ("POST", "/v1/nothing"), {}, b""),
        (404, ("GET", "/"), {}, None),
        (405, ("GET", "/v1/logs"), {}, None),
        (405, ("PUT", "/v1/logs"), {}, b""),
        (415, ("POST", "/v1/logs"), {"Content_Type": "text/plain"}, b"hello"),
        (415, ("POST", "/v1/logs"), {"Content_Encoding": "zstd"}, b""),
        (400, ("POST", "/v1/logs"), {}, b"\xff\xff\xff"),
        (400, ("POST", "/v1/logs"), {"Content_Type": "application/json"}, b'{"resourceLogs": 7}'),
        (400, ("POST", "/v1/logs"), {"Content_Encoding": "gzip"}, b"not gzip"),
        (400, ("POST", "/v1/logs"), {"Content_Encoding": "gzip"}, gzip.compress(b"", mtime=0)[:-4]),
        (400, ("POST", "/v1/logs"), {"Content_Encoding": "gzip"}, gzip.compress(b"", mtime=0) + b"junk"),
        (413, ("POST", "/v1/logs"), {}, bytes(65537)),
        (413, ("POST", "/v1/logs"), {"Content_Encoding": "gzip"}, gzip.compress(bytes(1 << 24))),
    ],
)  # fmt: skip
def test_refusals_are_statuses(
    service: Service, status: int, place: tuple[str, str], headers: dict[str, str], body: bytes | None
) -> None:
    """Every refusal has its code and a `google.rpc.Status` in the request's encoding."""
    method, path = place
    headers = {"Content_Type": PROTOBUF, **headers}
    reply = http(f"{service.endpoints.otlp_http}{path}", body, method, **headers)

    assert reply.status == status
    if headers["Content_Type"] == PROTOBUF:
        assert reply.headers["Content-Type"] == PROTOBUF
        assert status_pb2.Status.FromString(reply.body).message
    else:
        assert json.loads(reply.body)["message"]
    if status == 405:
        assert reply.headers["Allow"] == "POST"


def test_many_gzip_members_are_one_body(service: Service) -> None:
    """A body of several gzip members is read whole."""
    body = reported("run-members", [run_started(), update(0.02)])
    packed = gzip.compress(body[:10]) + gzip.compress(body[10:])

    assert post(service, packed, Content_Encoding="gzip").status == 200


def test_zlib_without_gzip_is_refused(service: Service) -> None:
    """A raw zlib stream is not gzip."""
    assert post(service, zlib.compress(b""), Content_Encoding="gzip").status == 400


def test_a_crowd_asks_to_come_back_and_a_slow_body_is_cut(tmp_path: Path) -> None:
    """While as many bodies as allowed are on their way others get 503; a body that never ends gets 408."""
    sets = (
        f"receivers.otlp.protocols.http.{key}" for key in ("max_concurrent_requests=1", "read_timeout_s=1.5")
    )
    head = b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
    with running(tmp_path, *sets) as service:
        port = int(str(service.endpoints.otlp_http).rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
            slow.sendall(head + b"Content-Length: 1000\r\n\r\npartial")
            crowded = eventually(lambda: (reply := post(service, b"")).status == 503 and reply)
            answer = slow.recv(4096)
        assert crowded.headers["Retry-After"] == "2"
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert eventually(lambda: post(service, b"").status == 200)


def test_a_full_journal_asks_to_come_back(tmp_path: Path) -> None:
    """With no room, senders get 503 and a delay; nothing of the request is kept."""
    with running(tmp_path, "exporters.aggregator.journal_size_mib=1") as service:
        fill(service, leave=100)
        reply = post(service, reported("run-full", [run_started(), update(0.01), update(0.02, 2)]))

        assert reply.status == 503
        assert reply.headers["Retry-After"] == "2"
        assert status_pb2.Status.FromString(reply.body).code == 14
        labels = {"receiver": "otlp", "transport": "http"}
        assert service.context.tally.get("otelcol_receiver_refused_log_records", **labels) == 3
        assert service.context.tally.get("otelcol_receiver_accepted_log_records", **labels) == 0
