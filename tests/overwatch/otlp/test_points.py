"""Points of metrics: what their bytes mean is remembered, and is what the parser finds in them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.events import Measured
from overwatch.journal import Signal
from overwatch.otlp import points, wire
from overwatch.otlp.decode import decode
from overwatch.otlp.protobuf import varint
from overwatch.otlp.result import EARLIEST, LATEST
from overwatch.otlp.settle import settle
from overwatch.otlp.totals import Totals
from overwatch.otlp.value import Value
from overwatch.otlp.wire import MalformedBody
from tests.overwatch.otlp.attributes import to_pairs
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.test_shapes import T, fleet, requests, whole

METRICS = Signal.METRICS


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> points._Memory:
    """What is remembered, from nothing on."""
    fresh = points._Memory()
    monkeypatch.setattr(points, "_MEMORY", fresh)
    return fresh


def remembered(memory: points._Memory) -> int:
    """How many attributes are."""
    return sum(len(known) for one in memory.producers.values() for known in one._known.values())


def parsed(body: bytes) -> str | None:
    """What a body states where every point is parsed; `None` where OTLP's own parser refuses it."""
    try:
        wire.parse(METRICS, body)
    except MalformedBody:
        return None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(points, "unpacked", lambda _: None)
        return whole(decode(METRICS, body))


def read(body: bytes) -> str | None:
    """What a body states as it is read."""
    try:
        return whole(decode(METRICS, body))
    except MalformedBody:
        return None


def shuffled(envs: int, export: int) -> ExportMetricsServiceRequest:
    """A fleet's points in an order of their own."""
    request = fleet(envs, T + export, 1.5 + export)
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        reported = list(metric.gauge.data_points)
        random.Random(export).shuffle(reported)  # noqa: S311 the same each time
        del metric.gauge.data_points[:]
        metric.gauge.data_points.extend(reported)
    return request


def counted(request: ExportMetricsServiceRequest, temporality: int, *, rises: bool) -> None:
    """Make its gauges sums."""
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        reported = list(metric.gauge.data_points)
        for point in reported:
            point.start_time_unix_nano = T - 1000
        metric.sum.data_points.extend(reported)
        metric.sum.aggregation_temporality = temporality  # type: ignore[assignment]
        metric.sum.is_monotonic = rises


@pytest.mark.parametrize("how", [None, (1, False), (1, True), (2, False), (2, True)], ids=str)
def test_attributes_that_came_once_are_not_parsed_again(
    memory: points._Memory, monkeypatch: pytest.MonkeyPatch, how: tuple[int, bool] | None
) -> None:
    """In whatever order points come, of gauges and of sums; how a sum counts is remembered with them."""
    bodies = []
    for export in range(4):
        request = shuffled(40, export)
        if how is not None:
            counted(request, how[0], rises=how[1])
        bodies.append(request.SerializeToString())
    right = [parsed(body) for body in bodies]
    assert read(bodies[0]) == right[0]
    assert remembered(memory) == 80

    def fail(*_: object) -> None:
        raise AssertionError("attributes that are known were read again")

    monkeypatch.setattr(points, "_outcome_of", fail)
    assert [read(body) for body in bodies] == right


@given(st.lists(requests(), min_size=1, max_size=3), st.data())
def test_whatever_is_asked_agrees_with_the_parser(
    requested: list[ExportMetricsServiceRequest], data: st.DataObject
) -> None:
    """Gauges and sums, ends, own runs, no runs, any byte changed: with everything remembered before."""
    for request in requested:
        body = request.SerializeToString()
        changed = bytearray(body)
        changed[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
        for reported in (body, bytes(changed), body):
            assert read(reported) == parsed(reported)


@given(messages(ExportMetricsServiceRequest.DESCRIPTOR))
def test_any_message_agrees_with_the_parser(message: ExportMetricsServiceRequest) -> None:
    """Whatever is set in it, twice, and with something behind."""
    body = message.SerializeToString()
    for reported in (body, body, body + body, body + b"\x0a\x00", body + b"\x10\x01", body[:-1]):
        assert read(reported) == parsed(reported)


def field(number: int, data: bytes) -> bytes:
    """A field that holds bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


@pytest.mark.parametrize(("data", "attributes"), [(5, 7), (9, 9)], ids=["gauge", "histogram"])
def test_attributes_are_nested_as_deep_as_the_parser_allows(data: int, attributes: int) -> None:
    """A point is read by itself, and is refused where its request would be."""
    refused = set()
    value = b"\x18\x01"
    for _ in range(50):
        value = field(5, field(1, value))
        for inner in (value, field(6, field(1, field(2, value)))):
            body = field(1, b"k") + field(2, inner)
            for number in (attributes, 1, data, 2, 2, 1):
                body = field(number, body)
            assert read(body) == parsed(body)
            refused.add(read(body) is None)
    assert refused == {False, True}


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
    body = request.SerializeToString()
    for _ in range(2):
        assert read(body) == parsed(body)


@pytest.mark.parametrize("anew", ["producers", "metrics", "subjects"])
def test_memory_is_bounded(memory: points._Memory, monkeypatch: pytest.MonkeyPatch, anew: str) -> None:
    """Who names everything anew makes the reader forget, not grow."""
    monkeypatch.setattr(points, "MOST_BYTES", 40_000)
    for export in range(30):
        request = fleet(20, T + export)
        producer = request.resource_metrics[0]
        if anew == "producers":
            producer.resource.attributes[1].value.string_value = f"client-{export}"
        metric = producer.scope_metrics[0].metrics.add(
            name=f"name-{export}" if anew == "metrics" else "overwatch.env.reward"
        )
        for env in range(20):
            pairs: dict[str, Value] = {"overwatch.env.id": env}
            pairs |= {"user": f"user-{20 * export + env}"} if anew == "subjects" else {}
            metric.gauge.data_points.add(attributes=to_pairs(pairs), time_unix_nano=T + export, as_double=1.0)
        body = request.SerializeToString()
        assert read(body) == parsed(body)
        assert remembered(memory) < 100


@pytest.mark.parametrize("tag", [b"\x11", b"\x19"], ids=["start", "time"])
def test_a_time_that_comes_again_as_none_is_not_read_over(tag: bytes) -> None:
    """Of a field that comes twice the last one counts, also where it is 0."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(to_pairs({"rl.run.id": "r"}))
    reported = resource.scope_metrics.add().metrics.add(name="overwatch.policy.entropy").sum
    reported.data_points.add(start_time_unix_nano=T, time_unix_nano=T, as_double=1.0).attributes.add(
        key="abcde"
    )
    body = request.SerializeToString().replace(b"\x3a\x07\x0a\x05abcde", tag + bytes(8))

    assert body != request.SerializeToString()
    for _ in range(2):
        assert read(body) == parsed(body)


@pytest.mark.parametrize(
    "at", [0, 1, 1_700_000_000, EARLIEST - 1, EARLIEST, LATEST, LATEST + 1, (1 << 64) - 1]
)
def test_times_are_judged_as_the_parser_gives_them(at: int) -> None:
    """One that is none, or cannot be, is no time of what is remembered."""
    known, body = fleet(3).SerializeToString(), fleet(3, at).SerializeToString()
    for reported in (body, known, body):
        assert read(reported) == parsed(reported)


def _named(name: str, library: str | None, kind: str = "gauge") -> dict[str, float]:
    """What two points of a metric under a library's name come to, of the policy."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(
        to_pairs({wire.RUN_ID: "r", **({} if library is None else {wire.LIBRARY: library})})
    )
    metric = resource.scope_metrics.add().metrics.add(name=name)
    for at in (T, T + 1_000_000_000):
        getattr(metric, kind).data_points.add(
            time_unix_nano=at, start_time_unix_nano=T - 1000, as_double=-0.5
        )
    decoded = settle(decode(METRICS, request.SerializeToString()), Totals())
    measured = [record.event for record in decoded.records if isinstance(record.event, Measured)]
    assert decoded.unmapped == (0 if measured else 2)
    return {name: column.first() for event in measured for name, column in event.values.items()}


@pytest.mark.parametrize(
    ("name", "library", "found"),
    [
        ("perf/mfu", None, {"overwatch.policy.mfu": -0.005}),
        ("train/entropy_loss", "sb3", {"overwatch.policy.entropy_nats": 0.5}),
        ("train/entropy_loss", "OpenRLHF", {"overwatch.policy.entropy_nats": -0.5}),
        ("train/entropy_loss", None, {}),
        ("train/entropy_loss", "no library", {}),
        ("critic/rewards/mean", "verl", {}),
        ("critic/score/mean", "verl", {"overwatch.policy.return": -0.5}),
    ],
)
def test_a_librarys_name_is_read_in_the_rows_unit_or_not_at_all(
    memory: points._Memory, name: str, library: str | None, found: dict[str, float]
) -> None:
    """Also of points whose attributes are remembered; a name that is this in one library alone needs it."""
    assert _named(name, library) == found
    assert remembered(memory) == 1


def test_a_total_in_another_unit_is_not_read() -> None:
    """Nothing is made of it, rather than something wrong."""
    assert _named("perf/mfu", None, "sum") == {}
    assert _named("train/loss", None, "sum") == {"overwatch.policy.total_loss": -0.5}
