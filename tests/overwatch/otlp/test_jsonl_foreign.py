"""Lines of a recording, read by OpenTelemetry's own codec of OTLP/JSON."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto_json.logs.v1.logs import LogsData
from opentelemetry.proto_json.metrics.v1.metrics import MetricsData
from opentelemetry.proto_json.trace.v1.trace import TracesData

from overwatch.journal import Signal
from overwatch.otlp.jsonl import from_json, to_json
from tests.overwatch.collector.running import http, run_started, running, told, update
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.test_jsonl import KINDS

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


def said_again(signal: Signal, line: bytes) -> bytes:
    """The protobuf of what OpenTelemetry's codec read in a line, as it writes it."""
    read = READERS[signal](json.loads(line))
    return from_json(signal, json.dumps(read.to_dict()).encode())


@pytest.mark.parametrize("signal", sorted(KINDS, key=lambda signal: signal.value))
@settings(deadline=None)
@given(data=st.data())
def test_every_line_says_the_same_to_opentelemetrys_codec(signal: Signal, data: st.DataObject) -> None:
    """All kinds of messages: what it reads of our line is what was sent."""
    message = known(data.draw(messages(KINDS[signal].DESCRIPTOR)))
    body = message.SerializeToString(deterministic=True)
    back = KINDS[signal].FromString(said_again(signal, to_json(signal, body)))
    assert back.SerializeToString(deterministic=True) == body


def test_a_recording_is_read_by_opentelemetrys_codec(tmp_path: Path) -> None:
    """Each line of the file of a signal, as a file exporter of OpenTelemetry would have written it."""
    bodies = [told("run-a", [run_started()]), told("run-a", [update(0.01)], first_seq=2)]
    with running(tmp_path) as service:
        for body in bodies:
            headers = {"Content_Type": "application/x-protobuf"}
            assert http(f"{service.endpoints.otlp_http}/v1/logs", body, "POST", **headers).status == 200

    lines = (tmp_path / "otlp" / "logs.jsonl").read_bytes().split(b"\n")
    assert [said_again(Signal.LOGS, line) for line in lines if line] == bodies
