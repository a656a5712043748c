"""A metrics request read in one pass over its bytes says what the general path says, or nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.journal import Signal
from overwatch.otlp import one_pass
from overwatch.otlp.decode import decode
from overwatch.otlp.one_pass import OnePass
from overwatch.otlp.value import Value, to_pairs
from overwatch.otlp.wire import MalformedBody
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.test_template import T, fleet, requests, whole

METRICS = Signal.METRICS


def agrees(reader: OnePass, body: bytes) -> bool:
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
    reader = OnePass()
    assert agrees(reader, shuffled(40, 0))

    def fail(*_: object) -> None:
        raise AssertionError("attributes that are known were read again")

    monkeypatch.setattr(one_pass, "outcome_of", fail)
    for export in range(1, 4):
        body = shuffled(40, export)
        assert reader.read(body) == decode(METRICS, body)


@pytest.mark.parametrize("temporality", [1, 2])
@pytest.mark.parametrize("rises", [False, True])
def test_points_of_sums_are_read_without_their_attributes(
    monkeypatch: pytest.MonkeyPatch, *, temporality: int, rises: bool
) -> None:
    """As gauges are; how a sum counts is part of what is remembered."""
    reader = OnePass()
    bodies = []
    for export in range(4):
        request = fleet(20, T + export, 1.5 + export)
        for metric in request.resource_metrics[0].scope_metrics[0].metrics:
            points = list(metric.gauge.data_points)
            random.Random(export).shuffle(points)  # noqa: S311 the same each time
            for point in points:
                point.start_time_unix_nano = T - 1000
            metric.sum.data_points.extend(points)
            metric.sum.aggregation_temporality = temporality  # type: ignore[assignment]
            metric.sum.is_monotonic = rises
        bodies.append(request.SerializeToString())
    assert agrees(reader, bodies[0])

    def fail(*_: object) -> None:
        raise AssertionError("attributes that are known were read again")

    monkeypatch.setattr(one_pass, "series_of", fail)
    for body in bodies[1:]:
        said = reader.read(body)
        assert said is not None
        assert whole(said) == whole(decode(METRICS, body))


@given(st.lists(requests(), min_size=1, max_size=3), st.data())
def test_whatever_is_asked_agrees_with_the_parser(
    asked: list[ExportMetricsServiceRequest], data: st.DataObject
) -> None:
    """Gauges and sums, ends, own runs, no runs, any byte changed: with everything remembered before."""
    reader = OnePass()
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
    reader, body = OnePass(), message.SerializeToString()
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
    reader = OnePass()
    for _ in range(2):
        assert agrees(reader, request.SerializeToString())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who names everything anew makes the reader forget, not grow."""
    monkeypatch.setattr(one_pass, "MOST_BYTES", 40_000)
    reader = OnePass()
    for export in range(30):
        request = fleet(20, T + export)
        request.resource_metrics[0].resource.attributes[1].value.string_value = f"client-{export}"
        assert agrees(reader, request.SerializeToString())
    assert sum(len(sets) for sets in reader._gauges.values()) < 200


def test_memory_of_one_metric_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it grow with points of one gauge that are of somebody else each time."""
    monkeypatch.setattr(one_pass, "MOST_BYTES", 40_000)
    reader = OnePass()
    for export in range(30):
        request = fleet(0)
        metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="overwatch.env.reward")
        for env in range(20):
            pairs: dict[str, Value] = {"overwatch.env.id": env, "user": f"user-{20 * export + env}"}
            metric.gauge.data_points.add(attributes=to_pairs(pairs), time_unix_nano=T + export, as_double=1.0)
        assert agrees(reader, request.SerializeToString())
    assert 0 < sum(len(sets) for sets in reader._gauges.values()) < 200


@pytest.mark.parametrize("tag", [b"\x11", b"\x19"], ids=["start", "time"])
def test_a_time_that_comes_again_as_none_is_not_read_over(tag: bytes) -> None:
    """Of a field that comes twice the last one counts, also where it is 0."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(to_pairs({"rl.run.id": "r"}))
    told = resource.scope_metrics.add().metrics.add(name="overwatch.policy.entropy").sum
    told.data_points.add(start_time_unix_nano=T, time_unix_nano=T, as_double=1.0).attributes.add(key="abcde")
    body = request.SerializeToString().replace(b"\x3a\x07\x0a\x05abcde", tag + bytes(8))
    said = OnePass().read(body)

    assert body != request.SerializeToString()
    assert said is not None
    assert whole(said) == whole(decode(Signal.METRICS, body))
