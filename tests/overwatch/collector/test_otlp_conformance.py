"""What OTLP asks of every server, one row an obligation: the id of a row is the rule it holds us to.

The requests go to a real collector over sockets; what the JSON decoder made of a body is read as the
protobuf message that the journal gets.
"""

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.rpc import status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from overwatch.collector import Service
from overwatch.collector.signals import WIRES, Code
from overwatch.journal import Signal
from overwatch.otlp.jsonl import MalformedJson, from_json, to_json
from tests.overwatch.collector.running import Reply, http, reported, run_started, running, update

PROTOBUF, JSON = "application/x-protobuf", "application/json"
LOGS, METRICS, TRACES = "/v1/logs", "/v1/metrics", "/v1/traces"
ANSWERS = {
    LOGS: ExportLogsServiceResponse,
    METRICS: ExportMetricsServiceResponse,
    TRACES: ExportTraceServiceResponse,
}
LIMIT = 1 << 16
OTLP_RETRYABLE = frozenset({429, 502, 503, 504})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One collector for this module."""
    sets = (f"receivers.otlp.protocols.http.max_request_body_size={LIMIT}",)
    with running(tmp_path_factory.mktemp("conformance"), *sets) as started:
        yield started


def query(service: Service, path: str, body: bytes | None, method: str = "POST", **headers: str) -> Reply:
    """One request to the OTLP/HTTP door."""
    return http(f"{service.endpoints.otlp_http}{path}", body, method, **headers)


def status_of(reply: Reply, kind: str) -> status_pb2.Status:
    """The `google.rpc.Status` of a refusal, read by the rules of its encoding."""
    assert reply.headers["Content-Type"] == kind
    if kind == PROTOBUF:
        return status_pb2.Status.FromString(reply.body)
    stated = json.loads(reply.body)
    return status_pb2.Status(code=stated["code"], message=stated["message"])


def one_bad_log() -> bytes:
    """Three log records, the second without what its name promises."""
    request = ExportLogsServiceRequest.FromString(
        reported("run-bad", [run_started(), update(0.01), update(0.02, 2)])
    )
    bad = request.resource_logs[0].scope_logs[0].log_records[1]
    bad.event_name = "overwatch.early_stopped"
    del bad.attributes[:]
    return request.SerializeToString()


def two_bad_points() -> bytes:
    """Three points of an env's gauge, two of them without the env they speak of."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="rl.run.id").value.string_value = "run-bad-points"
    metric = resource.scope_metrics.add().metrics.add(name="overwatch.env.reward")
    for env_id in (7, None, None):
        point = metric.gauge.data_points.add(time_unix_nano=10**18, as_double=1.0)
        if env_id is not None:
            point.attributes.add(key="overwatch.env.id").value.int_value = env_id
    return request.SerializeToString()


def span() -> bytes:
    """One span."""
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="rl.loop", trace_id=bytes(range(16)))
    return request.SerializeToString()


@pytest.mark.parametrize("packed", [False, True], ids=["none", "gzip"])
@pytest.mark.parametrize("kind", [PROTOBUF, JSON], ids=["protobuf", "json"])
@pytest.mark.parametrize("path", list(ANSWERS))
def test_empty_requests_succeed_in_every_encoding(
    service: Service, path: str, kind: str, *, packed: bool
) -> None:
    """An empty request is a full success with `partial_success` unset, in the request's encoding."""
    body = b"" if kind == PROTOBUF else b"{}"
    headers = {"Content_Type": kind} | ({"Content_Encoding": "gzip"} if packed else {})
    reply = query(service, path, gzip.compress(body) if packed else body, **headers)

    assert (reply.status, reply.headers["Content-Type"]) == (200, kind)
    assert reply.body == (b"" if kind == PROTOBUF else b"{}")


@pytest.mark.parametrize("kind", [PROTOBUF, JSON], ids=["protobuf", "json"])
@pytest.mark.parametrize(
    ("signal", "body", "rejected"),
    [
        pytest.param(Signal.LOGS, one_bad_log(), 1, id="logs-one-of-three"),
        pytest.param(Signal.METRICS, two_bad_points(), 2, id="points-two-of-three"),
        pytest.param(Signal.TRACES, span(), 0, id="spans-none"),
        pytest.param(Signal.LOGS, reported("run-good", [run_started()]), 0, id="logs-none"),
    ],
)
def test_partial_success_counts_exactly(
    service: Service, signal: Signal, body: bytes, rejected: int, kind: str
) -> None:
    """A partial success is 200 with the exact count and a message; a full one leaves the field unset."""
    path = WIRES[signal].path
    sent = body if kind == PROTOBUF else to_json(signal, body)
    reply = query(service, path, sent, Content_Type=kind)

    assert reply.status == 200
    answer: Any = ANSWERS[path]()
    if kind == PROTOBUF:
        answer.ParseFromString(reply.body)
    else:
        answer.ParseFromString(_answer_of_json(path, json.loads(reply.body)))
    assert answer.HasField("partial_success") == bool(rejected)
    if rejected:
        counts = {field.name: value for field, value in answer.partial_success.ListFields()}
        assert counts.pop("error_message")
        assert list(counts.values()) == [rejected]


def _answer_of_json(path: str, stated: dict[str, dict[str, str]]) -> bytes:
    """A JSON answer as protobuf, by the strict rules: names in lowerCamel, counts as strings."""
    answer: Any = ANSWERS[path]()
    partial = stated.get("partialSuccess")
    if partial is not None:
        names = {field.json_name: field.name for field in answer.partial_success.DESCRIPTOR.fields}
        for key, value in partial.items():
            name = names[key]
            setattr(answer.partial_success, name, value if name == "error_message" else int(value))
    packed: bytes = answer.SerializeToString()
    return packed


@dataclass(frozen=True, slots=True)
class Refused:
    """A request, and the refusal that it must get."""

    status: int
    code: Code
    body: bytes | None = b""
    method: str = "POST"
    path: str = LOGS
    packing: str | None = None


REFUSALS = {
    "get-is-405": Refused(405, Code.UNIMPLEMENTED, None, "GET"),
    "put-is-405": Refused(405, Code.UNIMPLEMENTED, b"", "PUT", METRICS),
    "delete-is-405": Refused(405, Code.UNIMPLEMENTED, None, "DELETE", TRACES),
    "unknown-path-is-404": Refused(404, Code.NOT_FOUND, path="/v1/profiles"),
    "path-is-exact": Refused(404, Code.NOT_FOUND, path="/v1/logs/"),
    "root-is-404": Refused(404, Code.NOT_FOUND, path="/"),
    "zstd-is-415": Refused(415, Code.INVALID_ARGUMENT, packing="zstd"),
    "deflate-is-415": Refused(415, Code.INVALID_ARGUMENT, packing="deflate"),
    "gzip-twice-is-415": Refused(415, Code.INVALID_ARGUMENT, packing="gzip, gzip"),
    "garbage-is-400": Refused(400, Code.INVALID_ARGUMENT, b"\xff\xff"),
    "cut-short-is-400": Refused(400, Code.INVALID_ARGUMENT, one_bad_log()[:-3]),
    "no-gzip-is-400": Refused(400, Code.INVALID_ARGUMENT, b"plain", packing="gzip"),
    "too-large-is-413": Refused(413, Code.RESOURCE_EXHAUSTED, bytes(LIMIT + 1)),
    "too-large-inflated-is-413": Refused(
        413, Code.RESOURCE_EXHAUSTED, gzip.compress(bytes(LIMIT + 1)), packing="gzip"
    ),
}


@pytest.mark.parametrize("kind", [PROTOBUF, JSON], ids=["protobuf", "json"])
@pytest.mark.parametrize("rule", REFUSALS)
def test_refusals_are_statuses_in_the_requests_encoding(service: Service, rule: str, kind: str) -> None:
    """Each 4xx has its code, a `google.rpc.Status` in the request's encoding, and is not to be retried."""
    row = REFUSALS[rule]
    packing = {} if row.packing is None else {"Content_Encoding": row.packing}
    reply = query(service, row.path, row.body, row.method, Content_Type=kind, **packing)

    status = status_of(reply, kind)
    assert (reply.status, status.code) == (row.status, row.code)
    assert status.message
    assert reply.status not in OTLP_RETRYABLE
    assert "Retry-After" not in reply.headers
    if reply.status == 405:
        assert reply.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/octet-stream", "application/protobuf", "application/jsonx", "nonsense", ""],
)
def test_other_content_types_are_unsupported(service: Service, content_type: str) -> None:
    """What is neither protobuf nor JSON is 415, answered as JSON."""
    reply = query(service, LOGS, b"{}", Content_Type=content_type)

    assert reply.status == 415
    assert status_of(reply, JSON).code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/json;odata=x"],
)
def test_parameters_and_case_of_a_content_type_do_not_matter(service: Service, content_type: str) -> None:
    """A media type is compared without case and parameters."""
    assert query(service, LOGS, b"{}", Content_Type=content_type).status == 200


def test_bad_data_is_answered_with_what_is_bad(service: Service) -> None:
    """A 400 carries a `BadRequest` detail, in both encodings."""
    binary = query(service, LOGS, b"\xff", Content_Type=PROTOBUF)
    text = query(service, LOGS, b"[]", Content_Type=JSON)

    assert status_of(binary, PROTOBUF).details[0].type_url.endswith("google.rpc.BadRequest")
    assert json.loads(text.body)["details"][0]["@type"].endswith("google.rpc.BadRequest")


def test_an_answer_stays_small(service: Service) -> None:
    """However much is rejected, and however long its names, the answer is far below 4 MiB."""
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="rl.run.id").value.string_value = "run-small"
    logs = resource.scope_logs.add().log_records
    for _ in range(20):
        logs.add(time_unix_nano=1, event_name="overwatch." + "x" * 2000)
    reply = query(service, LOGS, request.SerializeToString(), Content_Type=PROTOBUF)

    assert ExportLogsServiceResponse.FromString(reply.body).partial_success.rejected_log_records == 20
    assert len(reply.body) < 4096 + 64


def log_of(fields: str) -> Any:
    """What the decoder makes of one log record of JSON."""
    text = f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{{fields}}}]}}]}}]}}'
    message = ExportLogsServiceRequest.FromString(from_json(Signal.LOGS, text.encode()))
    return message.resource_logs[0].scope_logs[0].log_records[0]


def value_of(text: str) -> Any:
    """What the decoder makes of one AnyValue of JSON."""
    return log_of(f'"body":{text}').body


NANOS = 1234567890123456789
TRACE = "0123456789abcdef0123456789ABCDEF"

READ = [
    pytest.param(f'"traceId":"{TRACE}"', "trace_id", bytes.fromhex(TRACE), id="ids-are-hex-in-any-case"),
    pytest.param('"spanId":"00000000000000ff"', "span_id", b"\0\0\0\0\0\0\0\xff", id="span-ids-are-hex"),
    pytest.param('"severityNumber":17', "severity_number", 17, id="enums-are-integers"),
    pytest.param('"severityNumber":99', "severity_number", 99, id="unknown-enum-values-are-kept"),
    pytest.param('"timeUnixNano":"1234567890123456789"', "time_unix_nano", NANOS, id="int64-text"),
    pytest.param('"timeUnixNano":1234567890123456789', "time_unix_nano", NANOS, id="int64-number"),
    pytest.param('"flags":3', "flags", 3, id="uint32-number"),
    pytest.param('"time_unix_nano":"5"', "time_unix_nano", 0, id="snake-case-is-unknown"),
    pytest.param('"fromTheFuture":{"a":[1]},"flags":3', "flags", 3, id="unknown-fields-are-ignored"),
    pytest.param('"eventName":null,"flags":3', "event_name", "", id="null-is-unset"),
    pytest.param('"eventName":"a","eventName":"b"', "event_name", "b", id="the-last-of-a-key-counts"),
    pytest.param('"eventName":"\\ud83d\\ude00"', "event_name", "\U0001f600", id="surrogate-pairs-are-text"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "name", "expected"), READ)
def test_json_is_read_by_the_rules(fields: str, name: str, expected: object) -> None:
    """Names in lowerCamel, ids in hex, enums as integers, 64-bit integers as text or number."""
    assert getattr(log_of(fields), name) == expected


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        pytest.param('{"intValue":"-9223372036854775808"}', "int_value", -(1 << 63), id="least-int64"),
        pytest.param('{"doubleValue":"Infinity"}', "double_value", math.inf, id="infinity"),
        pytest.param('{"doubleValue":"-Infinity"}', "double_value", -math.inf, id="minus-infinity"),
        pytest.param('{"doubleValue":3}', "double_value", 3.0, id="doubles-may-look-like-integers"),
        pytest.param('{"doubleValue":"2.5e-3"}', "double_value", 0.0025, id="doubles-may-be-text"),
        pytest.param('{"bytesValue":"AP8="}', "bytes_value", b"\x00\xff", id="bytes-are-base64"),
        pytest.param('{"boolValue":false}', "bool_value", False, id="false-is-a-value"),
        pytest.param('{"stringValue":""}', "string_value", "", id="empty-text-is-a-value"),
        pytest.param("{}", None, None, id="an-empty-value-is-unset"),
    ],
)
def test_json_values_are_read_by_the_rules(text: str, kind: str | None, expected: object) -> None:
    """Each kind of attribute value has one reading, and a value that equals its default is still set."""
    value = value_of(text)

    assert value.WhichOneof("value") == kind
    assert kind is None or getattr(value, kind) == expected


def test_json_nan_is_a_word() -> None:
    """`"NaN"` is not a number."""
    assert math.isnan(value_of('{"doubleValue":"NaN"}').double_value)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param('"severityNumber":"SEVERITY_NUMBER_INFO"', id="enum-names"),
        pytest.param('"severityNumber":"9"', id="enums-as-text"),
        pytest.param('"severityNumber":9.5', id="broken-enums"),
        pytest.param('"traceId":"AAECAwQFBgcICQoLDA0ODw=="', id="ids-in-base64"),
        pytest.param('"traceId":"abc"', id="ids-of-odd-length"),
        pytest.param('"traceId":7', id="ids-as-numbers"),
        pytest.param('"timeUnixNano":"1e3"', id="exponents-in-int64-text"),
        pytest.param('"timeUnixNano":"18446744073709551616"', id="beyond-64-bits"),
        pytest.param('"timeUnixNano":-1', id="below-zero"),
        pytest.param('"timeUnixNano":true', id="booleans-as-integers"),
        pytest.param('"timeUnixNano":1e999', id="beyond-doubles"),
        pytest.param('"flags":4294967296', id="beyond-32-bits"),
        pytest.param('"eventName":7', id="numbers-as-text"),
        pytest.param('"eventName":"\\ud800"', id="lone-surrogates"),
        pytest.param('"attributes":{}', id="objects-as-lists"),
        pytest.param('"body":[]', id="lists-as-objects"),
        pytest.param('"body":{"bytesValue":"@@"}', id="base64-of-other-letters"),
        pytest.param('"body":{"bytesValue":"AP8"}', id="base64-without-padding"),
        pytest.param('"body":{"bytesValue":"A P8="}', id="base64-with-blanks"),
        pytest.param('"body":{"doubleValue":"nan"}', id="other-words-for-nan"),
        pytest.param('"body":{"doubleValue":"1e999"}', id="text-beyond-doubles"),
        pytest.param('"body":{"doubleValue":"1_0"}', id="numbers-as-python-writes-them"),
        pytest.param('"body":{"doubleValue":" 1"}', id="numbers-with-blanks"),
        pytest.param('"body":{"doubleValue":"\\u0661"}', id="digits-of-other-scripts"),
        pytest.param('"body":{"doubleValue":true}', id="booleans-as-doubles"),
        pytest.param('"body":{"boolValue":"true"}', id="text-as-booleans"),
        pytest.param('"body":{"intValue":"--1"}', id="two-signs"),
        pytest.param('"body":{"intValue":1.5}', id="broken-integers"),
        pytest.param('"body":' + '{"arrayValue":{"values":[' * 60 + "{}" + "]}}" * 60, id="deep-nesting"),
        pytest.param('"x":' + "[" * 100_000 + "]" * 100_000, id="deep-nesting-of-the-unknown"),
        pytest.param('"flags":3,', id="trailing-commas"),
        pytest.param("'flags':3", id="single-quotes"),
        pytest.param('"body":{"doubleValue":NaN}', id="bare-nan"),
    ],
)
def test_json_beyond_the_rules_is_refused(service: Service, fields: str) -> None:
    """Anything that the rules do not allow is a 400 at the door, never a guess and never a 500."""
    text = f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{{fields}}}]}}]}}]}}'
    with pytest.raises(MalformedJson):
        from_json(Signal.LOGS, text.encode())
    reply = query(service, LOGS, gzip.compress(text.encode()), Content_Type=JSON, Content_Encoding="gzip")

    assert reply.status in {400, 413}
    assert status_of(reply, JSON).message


@pytest.mark.parametrize(
    "text", [b"\xff{}", b'{"x":"\xed\xa0\x80"}', b"\xef\xbb\xbf{}", b"", b"{}{}", b"null"]
)
def test_bytes_that_are_no_json_object_are_refused(service: Service, text: bytes) -> None:
    """A body is one JSON object in UTF-8 without a mark."""
    assert query(service, LOGS, text, Content_Type=JSON).status == 400


def test_values_of_every_kind_are_taken(service: Service) -> None:
    """Empty values, bytes, mixed lists and nested maps are attributes like any other."""
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="rl.run.id").value.string_value = "run-kinds"
    log = resource.scope_logs.add().log_records.add(time_unix_nano=10**18, event_name="app.logged")
    log.attributes.add(key="empty")
    log.attributes.add(key="bytes").value.bytes_value = b"\x00\xff"
    mixed = log.attributes.add(key="mixed").value.array_value.values
    mixed.add().int_value = 1
    mixed.add().string_value = "a"
    mixed.add()
    nested = log.attributes.add(key="nested").value.kvlist_value.values.add(key="in").value
    nested.kvlist_value.values.add(key="deep").value.double_value = math.nan
    for kind, body in ((PROTOBUF, request.SerializeToString()), (JSON, None)):
        sent = body if body is not None else to_json(Signal.LOGS, request.SerializeToString())
        reply = query(service, LOGS, sent, Content_Type=kind)
        assert (reply.status, reply.body) == (200, b"" if kind == PROTOBUF else b"{}")


def test_unknown_protobuf_fields_are_ignored(service: Service) -> None:
    """A message with fields of a later version is taken as if they were not there."""
    later = b"\xfa\x01\x03abc" + reported("run-later", [run_started()])

    assert query(service, LOGS, later, Content_Type=PROTOBUF).body == b""
