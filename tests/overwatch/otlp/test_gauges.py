"""A metrics request read in one pass over its bytes says what the general path says, or nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.journal import Signal
from overwatch.otlp import gauges
from overwatch.otlp.decode import decode
from overwatch.otlp.gauges import GaugeReader
from overwatch.otlp.value import Value, to_pairs
from overwatch.otlp.wire import MalformedBody
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.test_template import T, fleet, requests, whole

METRICS = Signal.METRICS


def agrees(reader: GaugeReader, body: bytes) -> bool:
    """Whether the reader reads a body, which must be as the general path does."""
    said = reader.read(body)
    if said is None:
        return False
    assert whole(said) == whole(decode(METRICS, body))
    return True


def shuffled(envs: int, export: int) -> bytes:
    """A fleet's points in an order of their own."""
    request = fleet(envs, T + export, 1.5 + export)
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        points = list(metric.gauge.data_points)
        random.Random(export).shuffle(points)  # noqa: S311 the same each time
        del metric.gauge.data_points[:]
        metric.gauge.data_points.extend(points)
    return request.SerializeToString()


def test_points_in_any_order_are_read_without_their_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came once is not parsed again, however the points are put together."""
    reader = GaugeReader()
    assert agrees(reader, shuffled(40, 0))

    def fail(*_: object) -> None:
        raise AssertionError("attributes that are known were read again")

    monkeypatch.setattr(gauges, "outcome_of", fail)
    for export in range(1, 4):
        body = shuffled(40, export)
        assert reader.read(body) == decode(METRICS, body)


@given(st.lists(requests(), min_size=1, max_size=3), st.data())
def test_whatever_is_asked_agrees_with_the_parser(
    asked: list[ExportMetricsServiceRequest], data: st.DataObject
) -> None:
    """Gauges and sums, ends, own runs, no runs, any byte changed: with everything remembered before."""
    reader = GaugeReader()
    for request in asked:
        body = request.SerializeToString()
        assert agrees(reader, body)
        changed = bytearray(body)
        changed[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
        try:
            agrees(reader, bytes(changed))
        except MalformedBody as error:
            pytest.fail(f"read what is no message: {error}")
        assert agrees(reader, body)


@given(messages(ExportMetricsServiceRequest.DESCRIPTOR))
def test_any_message_agrees_with_the_parser(message: ExportMetricsServiceRequest) -> None:
    """Whatever is set in it, twice, and with something behind."""
    reader, body = GaugeReader(), message.SerializeToString()
    for told in (body, body, body + body, body + b"\x0a\x00", body + b"\x10\x01"):
        agrees(reader, told)


def test_points_of_one_gauge_may_be_of_many_rows_runs_and_times() -> None:
    """Splits, own run ids, lanes here and none there: in order of first sight."""
    request = fleet(2)
    scope = request.resource_metrics[0].scope_metrics[0]
    gauge = scope.metrics.add(name="overwatch.env.reward").gauge
    for number in range(12):
        pairs: dict[str, Value] = {"overwatch.env.id": number % 3, "rl.run.id": ["a", "b", ""][number % 3]}
        if number % 2:
            pairs["overwatch.lane.id"] = "GPU-b"
        point = gauge.data_points.add(attributes=to_pairs(pairs), time_unix_nano=T + number // 4)
        if number % 5:
            point.as_double = [float("nan"), -0.0, float("inf"), 1.5][number % 4]
        else:
            point.as_int = -number
        if number % 7 == 0:
            point.start_time_unix_nano = T - 5
    reader = GaugeReader()
    for _ in range(2):
        assert agrees(reader, request.SerializeToString())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who names everything anew makes the reader forget, not grow."""
    monkeypatch.setattr(gauges, "MOST_BYTES", 40_000)
    reader = GaugeReader()
    for export in range(30):
        request = fleet(20, T + export)
        request.resource_metrics[0].resource.attributes[1].value.string_value = f"client-{export}"
        assert agrees(reader, request.SerializeToString())
    assert sum(len(sets) for sets in reader._sets.values()) < 200
