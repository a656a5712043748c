"""OTLP/JSON: the specification's rules, and nothing lost on the way."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto_json.logs.v1.logs import LogsData
from opentelemetry.proto_json.metrics.v1.metrics import MetricsData
from opentelemetry.proto_json.trace.v1.trace import TracesData

from overwatch.events import Record
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.jsonl import MalformedJson, from_json, to_json
from tests.overwatch.collector.running import http, reported, run_started, running, update
from tests.overwatch.otlp.attributes import to_any
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.strategies import RECORDS

KINDS = {
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
    Signal.TRACES: ExportTraceServiceRequest,
}


@pytest.mark.parametrize("signal", sorted(KINDS, key=lambda signal: signal.value))
@settings(deadline=None)
@given(data=st.data())
def test_every_message_survives_json(signal: Signal, data: st.DataObject) -> None:
    """All kinds of metrics, exemplars, links, span events, nested values: body to JSON to body."""
    message = data.draw(messages(KINDS[signal].DESCRIPTOR))
    body = message.SerializeToString(deterministic=True)
    line = to_json(signal, body)
    assert b"\n" not in line
    back = KINDS[signal].FromString(from_json(signal, line))
    assert back.SerializeToString(deterministic=True) == body


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=3))
def test_records_survive_json(records: list[Record]) -> None:
    """A recorded line gives the records that were live."""
    body = request(records, {})
    assert decode(Signal.LOGS, from_json(Signal.LOGS, to_json(Signal.LOGS, body))) == decode(
        Signal.LOGS, body
    )


def test_the_forms_are_those_of_the_specification() -> None:
    """Hex ids, integer enums, 64-bit integers and non-finite doubles as strings, camel case."""
    message = ExportLogsServiceRequest()
    log = message.resource_logs.add().scope_logs.add().log_records.add()
    log.time_unix_nano = 1700000000000000001
    log.severity_number = 9
    log.trace_id = bytes(range(16))
    log.body.CopyFrom(to_any({"nan": math.nan, "data": b"\xff\xfe", "n": 5, "tenth": 0.1, "inf": -math.inf}))
    record = json.loads(to_json(Signal.LOGS, message.SerializeToString()))
    record = record["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    assert record == {
        "timeUnixNano": "1700000000000000001",
        "severityNumber": 9,
        "traceId": "000102030405060708090a0b0c0d0e0f",
        "body": {
            "kvlistValue": {
                "values": [
                    {"key": "nan", "value": {"doubleValue": "NaN"}},
                    {"key": "data", "value": {"bytesValue": "//4="}},
                    {"key": "n", "value": {"intValue": "5"}},
                    {"key": "tenth", "value": {"doubleValue": 0.1}},
                    {"key": "inf", "value": {"doubleValue": "-Infinity"}},
                ]
            }
        },
    }


def test_reading_is_lenient_where_the_specification_is() -> None:
    """Unknown fields pass, ids in any case, 64-bit integers as numbers, null as absent."""
    line = b"""{"future": {"deep": []}, "resourceLogs": [{"resource": null, "scopeLogs": [{"logRecords": [
        {"timeUnixNano": 5, "traceId": "0A0B0C0D0E0F00010203040506070809", "severityNumber": 9}]}]}]}"""
    message = ExportLogsServiceRequest.FromString(from_json(Signal.LOGS, line))
    log = message.resource_logs[0].scope_logs[0].log_records[0]
    assert (log.time_unix_nano, log.trace_id[:2], log.severity_number) == (5, b"\n\x0b", 9)
    assert not message.resource_logs[0].HasField("resource")


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ('{"traceId": "xyz"}', r"logRecords\[0\].traceId"),
        ('{"traceId": "0 0a"}', "traceId"),
        ('{"timeUnixNano": "-1"}', "timeUnixNano"),
        ('{"timeUnixNano": "1e3"}', "timeUnixNano"),
        ('{"timeUnixNano": 1.5}', "timeUnixNano"),
        ('{"timeUnixNano": "99999999999999999999"}', "timeUnixNano"),
        ('{"severityNumber": "SEVERITY_NUMBER_INFO"}', "severityNumber"),
        ('{"severityText": 5}', "severityText"),
        ('{"body": {"bytesValue": "a-b_"}}', "body.bytesValue"),
        ('{"body": {"bytesValue": "YQ"}}', "body.bytesValue"),
        ('{"body": {"boolValue": 1}}', "body.boolValue"),
        ('{"body": {"doubleValue": "nan"}}', "body.doubleValue"),
        ('{"body": []}', "body: expected an object"),
        ('{"attributes": {}}', "attributes: expected an array"),
        ('{"droppedAttributesCount": -1}', "droppedAttributesCount"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(record: str, path: str) -> None:
    """Every error states where it is."""
    line = f'{{"resourceLogs": [{{"scopeLogs": [{{"logRecords": [{record}]}}]}}]}}'
    with pytest.raises(MalformedJson, match=path):
        from_json(Signal.LOGS, line.encode())


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b"\xff", b'{"a": "\\ud800"', b"[" * 100_000])
def test_what_is_no_json_object_is_malformed(line: bytes) -> None:
    """Broken text, wrong tops and towers of brackets are refused."""
    with pytest.raises(MalformedJson):
        from_json(Signal.LOGS, line)


def nested(levels: int) -> bytes:
    """A logs line whose body is `levels` arrays deep."""
    body = '{"arrayValue":{"values":[' * levels + '{"intValue":"1"}' + "]}}" * levels
    return f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"body":{body}}}]}}]}}]}}'.encode()


def test_depth_ends_where_the_protobuf_parser_ends() -> None:
    """What is let through parses as protobuf, what would not is refused here."""
    deepest = max(levels for levels in range(40, 60) if _reads(nested(levels)))
    decode(Signal.LOGS, from_json(Signal.LOGS, nested(deepest)))
    assert deepest < 59
    with pytest.raises(MalformedJson, match="nested deeper"):
        from_json(Signal.LOGS, nested(deepest + 1))


@pytest.mark.parametrize("levels", range(44, 49))
def test_what_the_protobuf_parser_takes_survives_json(levels: int) -> None:
    """The deepest body that a receiver accepts can be recorded and read again."""
    message = ExportLogsServiceRequest()
    value = message.resource_logs.add().scope_logs.add().log_records.add().body
    for _ in range(levels):
        value = value.array_value.values.add()
    value.int_value = 1
    body = message.SerializeToString()
    ExportLogsServiceRequest.FromString(body)
    assert from_json(Signal.LOGS, to_json(Signal.LOGS, body)) == body


def _reads(line: bytes) -> bool:
    try:
        from_json(Signal.LOGS, line)
    except MalformedJson:
        return False
    return True


READERS: dict[Signal, Callable[[dict[str, object]], LogsData | MetricsData | TracesData]] = {
    Signal.LOGS: LogsData.from_dict,
    Signal.METRICS: MetricsData.from_dict,
    Signal.TRACES: TracesData.from_dict,
}


def known(message: Message) -> Message:
    """The message with no number that an enum has no name for: its codec refuses them."""
    for field, value in message.ListFields():
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            for below in value if field.is_repeated else [value]:
                known(below)
        elif field.enum_type is not None and value not in field.enum_type.values_by_number:
            message.ClearField(field.name)
    return message


def reencoded(signal: Signal, line: bytes) -> bytes:
    """The protobuf of what OpenTelemetry's codec read in a line, as it writes it."""
    read = READERS[signal](json.loads(line))
    return from_json(signal, json.dumps(read.to_dict()).encode())


@pytest.mark.parametrize("signal", sorted(KINDS, key=lambda signal: signal.value))
@settings(deadline=None)
@given(data=st.data())
def test_every_line_means_the_same_to_opentelemetrys_codec(signal: Signal, data: st.DataObject) -> None:
    """All kinds of messages: what it reads of our line is what was sent."""
    message = known(data.draw(messages(KINDS[signal].DESCRIPTOR)))
    body = message.SerializeToString(deterministic=True)
    back = KINDS[signal].FromString(reencoded(signal, to_json(signal, body)))
    assert back.SerializeToString(deterministic=True) == body


def test_a_recording_is_read_by_opentelemetrys_codec(tmp_path: Path) -> None:
    """Each line of the file of a signal, as a file exporter of OpenTelemetry would have written it."""
    bodies = [reported("run-a", [run_started()]), reported("run-a", [update(0.01)], first_seq=2)]
    with running(tmp_path) as service:
        for body in bodies:
            headers = {"Content_Type": "application/x-protobuf"}
            assert http(f"{service.endpoints.otlp_http}/v1/logs", body, "POST", **headers).status == 200

    lines = (tmp_path / "otlp" / "logs.jsonl").read_bytes().split(b"\n")
    assert [reencoded(Signal.LOGS, line) for line in lines if line] == bodies
