"""What another process says of a body is what this one would."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.events import Record
from overwatch.journal import Signal
from overwatch.otlp import elements
from overwatch.otlp.checking import heard, verdict
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.jsonl import to_json
from overwatch.otlp.packed import unpacked
from overwatch.otlp.validate import count
from overwatch.otlp.wire import MalformedBody
from tests.overwatch.collector.test_otlp_conformance import one_bad_log, span, two_bad_points
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.strategies import RECORDS
from tests.overwatch.otlp.test_elements import empties
from tests.overwatch.otlp.test_packed import one_sum

MOST = 1 << 19


def same(signal: Signal, body: bytes) -> None:
    """What is said of a body, as it is and as JSON, is what is said of it here."""
    for json, data in ((False, body), (True, to_json(signal, body))):
        sound = heard(verdict(signal, data, MOST, json=json))
        assert sound.counts == count(signal, body)
        said = decode(signal, body)
        # Not a number is not even equal to itself.
        assert sound.said is None or repr(unpacked(sound.said)) == repr(said)
        assert sound.said is not None or said.series is not None or signal is Signal.LOGS
        assert (sound.data is not None) == json
        # Values by moment are equal to none but themselves.
        assert said.series is not None or repr(decode(signal, sound.data or body)) == repr(said)


@settings(max_examples=100, deadline=None)
@given(st.lists(RECORDS, max_size=3))
def test_records_come_back(records: list[Record]) -> None:
    """Events of every kind."""
    same(Signal.LOGS, request(records, {}))


@settings(max_examples=100, deadline=None)
@given(messages(ExportMetricsServiceRequest.DESCRIPTOR))
def test_points_come_back(message: ExportMetricsServiceRequest) -> None:
    """Metrics of every kind, histograms among them."""
    same(Signal.METRICS, message.SerializeToString(deterministic=True))


@pytest.mark.parametrize(
    ("signal", "body"),
    [
        (Signal.LOGS, one_bad_log()),
        (Signal.METRICS, two_bad_points()),
        (Signal.METRICS, one_sum()),
        (Signal.TRACES, span()),
    ],
    ids=["logs", "metrics", "sums", "traces"],
)
def test_figures_come_back(signal: Signal, body: bytes) -> None:
    """How many items there are, and why some cannot be used."""
    same(signal, body)


@pytest.mark.parametrize("json", [False, True], ids=["protobuf", "json"])
def test_refusals_come_back(*, json: bool) -> None:
    """As the same errors, with the same words."""
    many = b'{"resourceLogs":[' + b"{}," * 2000 + b"{}]}" if json else empties(2000)
    with pytest.raises(elements.TooManyElements, match="more than 1000 elements"):
        heard(verdict(Signal.LOGS, many, 1000, json=json))
    with pytest.raises(MalformedBody):
        heard(verdict(Signal.LOGS, b"\xff{", 1000, json=json))
