"""A shape states what the general path states, or nothing; those that come again are learned."""

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.decode import decode
from overwatch.otlp.result import Decoded
from overwatch.otlp.settle import settle
from overwatch.otlp.shapes import LEARN_AT, MORE_SELDOM, MOST_LENGTHS, MOST_OF_ONE, Shapes, learn
from overwatch.otlp.totals import Totals
from tests.overwatch.otlp.attributes import to_pairs

T = 1_790_000_000_000_000_000
NAMES = [
    "overwatch.env.reward", "overwatch.env.entropy", "overwatch.policy.kl_divergence", "overwatch.gpu.power",
    "overwatch.slot.alpha", "rollout/ep_rew_mean", "system.cpu.utilization", "unknown.name",
]  # fmt: skip
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "overwatch.env.id": st.integers(0, 3) | st.just("no number"),
        "overwatch.lane.id": st.sampled_from(["GPU-a", "GPU-b"]),
        "overwatch.slot.id": st.sampled_from(["r0c0", "r0c1"]),
        "rl.run.id": st.sampled_from(["own", ""]),
        "extra": st.integers(-5, 300),
    },
)
NUMBERS = st.floats(-1e6, 1e6) | st.integers(-5, 10**15)
ODD = NUMBERS | st.floats() | st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(T, T + 3)


@st.composite
def points(draw: st.DrawFn) -> NumberDataPoint:
    """A point with a time and a value, most often."""
    point = NumberDataPoint(attributes=to_pairs(draw(ATTRIBUTES)))
    point.time_unix_nano = draw(TIMES | st.just(T))
    if draw(st.booleans()):
        point.start_time_unix_nano = draw(st.sampled_from([T - 5, T]))
    value = draw(NUMBERS)
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
    if draw(st.integers(0, 15)) == 0:
        point.flags = 1
    return point


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    """A gauge or a sum of some points."""
    metric = Metric(name=draw(st.sampled_from(NAMES)), unit=draw(st.sampled_from(["", "1"])))
    kind = draw(st.sampled_from(["gauge", "gauge", "gauge", "sum"]))
    if kind == "sum":
        metric.sum.aggregation_temporality = draw(st.integers(1, 2))  # type: ignore[assignment]
        metric.sum.is_monotonic = draw(st.booleans())
    getattr(metric, kind).data_points.extend(draw(st.lists(points(), min_size=1, max_size=4)))
    return metric


@st.composite
def requests(draw: st.DrawFn) -> ExportMetricsServiceRequest:
    """A request of one or two producers."""
    request = ExportMetricsServiceRequest()
    for number in range(draw(st.integers(1, 2))):
        producer = request.resource_metrics.add()
        named = {"service.instance.id": f"i{number}"} | draw(
            st.fixed_dictionaries(
                {}, optional={"rl.run.id": st.just("r"), "overwatch.rank": st.integers(0, 1)}
            )
        )
        producer.resource.attributes.extend(to_pairs(named))
        producer.scope_metrics.add().metrics.extend(draw(st.lists(metrics(), min_size=1, max_size=4)))
    return request


def every_point(request: ExportMetricsServiceRequest) -> list[NumberDataPoint]:
    """All points, in order."""
    return [
        point
        for producer in request.resource_metrics
        for scope in producer.scope_metrics
        for metric in scope.metrics
        for point in (metric.gauge if metric.HasField("gauge") else metric.sum).data_points
    ]


def other_numbers(draw: st.DrawFn, request: ExportMetricsServiceRequest) -> ExportMetricsServiceRequest:
    """The same shape with other numbers, odd ones too."""
    other = ExportMetricsServiceRequest()
    other.CopyFrom(request)
    numbers, later = draw(st.sampled_from([NUMBERS, ODD])), draw(st.integers(0, 10**9))
    for point in every_point(other):
        point.time_unix_nano += later
        if draw(st.integers(0, 20)) == 0:
            point.time_unix_nano = draw(TIMES | st.sampled_from([0, 2**64 - 1, T - 10]))
        value = draw(numbers)
        if point.HasField("as_int"):
            point.as_int = int(value) if math.isfinite(value) and abs(value) < 2**63 else 0
        else:
            point.as_double = value
    return other


def whole(decoded: Decoded) -> str:
    """Everything that was decoded, comparable: NaN is NaN."""
    points = () if decoded.series is None else decoded.series.points
    records = settle(decoded, Totals())
    return f"{points} {records} {msgspec.structs.replace(decoded, series=None)}"


@given(st.data())
def test_other_numbers_are_read_as_the_general_path_reads_them(data: st.DataObject) -> None:
    """Whatever the numbers, the shape states the same or nothing."""
    request = data.draw(requests())
    body = request.SerializeToString()
    shape = learn(body)
    if shape is None:
        return
    for later in (request, other_numbers(data.draw, request), other_numbers(data.draw, request)):
        reported = later.SerializeToString()
        stated = shape.read(reported)
        if stated is not None:
            assert whole(stated) == whole(decode(Signal.METRICS, reported))


@given(st.data())
def test_a_changed_byte_is_never_read_wrongly(data: st.DataObject) -> None:
    """Any byte, anywhere: the same as the general path, or nothing."""
    body = bytearray(data.draw(requests()).SerializeToString())
    shape = learn(bytes(body))
    if shape is None:
        return
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] ^= data.draw(st.integers(1, 255))
    stated = shape.read(bytes(body))
    if stated is not None:
        assert whole(stated) == whole(decode(Signal.METRICS, bytes(body)))


def fleet(
    envs: int, at: int = T, scale: float = 1.0, *, reverse: bool = False
) -> ExportMetricsServiceRequest:
    """Two gauges of a fleet and a counter, as an SDK sends them every second."""
    request = ExportMetricsServiceRequest()
    producer = request.resource_metrics.add()
    producer.resource.attributes.extend(to_pairs({"rl.run.id": "r", "service.instance.id": "i"}))
    scope = producer.scope_metrics.add()
    for name in ("overwatch.env.reward", "overwatch.env.entropy"):
        metric = scope.metrics.add(name=name)
        for env in range(envs):
            pairs = to_pairs({"overwatch.env.id": env, "overwatch.lane.id": "GPU-a"})
            metric.gauge.data_points.add(
                attributes=pairs[::-1] if reverse else pairs, time_unix_nano=at, as_double=scale * env
            )
    return request


def test_a_fleet_is_read_by_its_shape() -> None:
    """The next export of the same fleet needs no parser."""
    shape = learn(fleet(300).SerializeToString())
    assert shape is not None
    later = fleet(300, T + 10**9, 2.5).SerializeToString()
    stated = shape.read(later)
    assert stated is not None
    assert stated == decode(Signal.METRICS, later)


@pytest.mark.parametrize("envs", [2, 300])
def test_totals_beside_gauges_are_settled_as_ever(envs: int) -> None:
    """A sum is continued from what came before, whoever read it."""
    by_its_shape, by_hand = Totals(), Totals()
    shape = None
    for export in range(4):
        request = fleet(envs, T + export * 10**9, float(export + 1))
        counter = request.resource_metrics[0].scope_metrics[0].metrics.add(name="overwatch.env.reward")
        counter.sum.aggregation_temporality = 2  # type: ignore[assignment]
        counter.sum.data_points.add(
            attributes=to_pairs({"overwatch.env.id": 0}),
            start_time_unix_nano=T - 1,
            time_unix_nano=T + export * 10**9,
            as_int=export * 7,
        )
        body = request.SerializeToString()
        shape = shape or learn(body)
        assert shape is not None
        stated = shape.read(body)
        assert stated is not None
        assert settle(stated, by_its_shape) == settle(decode(Signal.METRICS, body), by_hand)


@pytest.mark.parametrize(
    "other",
    [fleet(300, reverse=True), fleet(301), fleet(300, scale=math.inf), fleet(300, at=0)],
    ids=["attributes in another order", "one more env", "not finite", "no time"],
)
def test_another_shape_is_left_to_the_general_path(other: ExportMetricsServiceRequest) -> None:
    """What is not this shape, or whose numbers change what is done, is not read."""
    shape = learn(fleet(300).SerializeToString())
    assert shape is not None
    assert shape.read(other.SerializeToString()) is None


def test_fields_that_nobody_knows_are_not_read_over() -> None:
    """A shape with an unknown field is another shape, of its own shape."""
    body = fleet(10).SerializeToString()
    shape = learn(body)
    assert shape is not None
    unknown = body + b"\x98\x06\x01"
    assert shape.read(unknown) is None
    other = learn(unknown)
    assert other is not None
    assert other.read(unknown) == decode(Signal.METRICS, unknown)


def test_histograms_have_no_shape() -> None:
    """Their numbers have no fixed width."""
    request = fleet(10)
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="overwatch.policy.update_time")
    metric.histogram.data_points.add(time_unix_nano=T, count=3, sum=1.5, bucket_counts=[3])
    assert learn(request.SerializeToString()) is None


def test_values_that_end_have_no_shape() -> None:
    """A point without a recorded value is no number."""
    request = fleet(10)
    for point in request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points:
        point.flags = 1
    assert learn(request.SerializeToString()) is None
    lane = ExportMetricsServiceRequest()
    lane.CopyFrom(fleet(0))
    gauge = lane.resource_metrics[0].scope_metrics[0].metrics.add(name="hw.gpu.utilization").gauge
    gauge.data_points.add(
        attributes=to_pairs({"overwatch.lane.id": "GPU-a"}), time_unix_nano=T, as_double=1.0, flags=1
    )
    assert decode(Signal.METRICS, lane.SerializeToString()).records
    assert learn(lane.SerializeToString()) is None


@pytest.mark.parametrize(
    ("start", "at"), [(T + 1, T), (0, 2**64 - 1)], ids=["begins after its time", "a time that is none"]
)
def test_a_shape_is_not_learned_from_times_that_cannot_be(start: int, at: int) -> None:
    """What is refused of one request is not refused of those after it."""
    reported = []
    for began, when in ((start, at), (T - 1, T + 1)):
        request = fleet(10)
        total = request.resource_metrics[0].scope_metrics[0].metrics.add(name="overwatch.policy.entropy").sum
        total.aggregation_temporality = 2  # type: ignore[assignment]
        total.data_points.add(start_time_unix_nano=began, time_unix_nano=when, as_double=1.0)
        reported.append(request.SerializeToString())
    assert decode(Signal.METRICS, reported[0]).problems
    assert learn(reported[0]) is None
    assert learn(reported[1]) is not None


def body(envs: int = 100, export: int = 0, name: str = "") -> bytes:
    """One export of a fleet; of a name that is as long as others, another shape."""
    request = fleet(envs, T + export * 10**9, 1.5 + export)
    if name:
        request.resource_metrics[0].resource.attributes[1].value.string_value = name
    return request.SerializeToString()


def learned(shapes: Shapes, **given: object) -> None:
    """Let a shape come until it is known."""
    for export in range(LEARN_AT):
        assert shapes.read(body(export=export, **given)) is None  # type: ignore[arg-type]
        shapes.study(body(export=export, **given))  # type: ignore[arg-type]


def test_a_shape_is_learned_when_it_came_a_few_times() -> None:
    """From then on it is read as the general path reads it."""
    shapes = Shapes()
    learned(shapes)
    later = body(export=7)
    assert shapes.read(later) == decode(Signal.METRICS, later)
    assert shapes.learned == 1


def test_small_requests_are_left_to_the_general_path() -> None:
    """It reads them as fast."""
    shapes = Shapes()
    for _ in range(LEARN_AT + 1):
        shapes.study(body(envs=1))
    assert shapes.learned == 0


def test_bodies_of_one_length_that_are_never_alike_are_learned_ever_more_seldom() -> None:
    """A stream that never repeats costs a few shapes, however long it is."""
    shapes, dice = Shapes(), random.Random(1)  # noqa: S311 reproducible
    request = fleet(40)
    points = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    for _ in range(LEARN_AT * MORE_SELDOM**3):
        for point, env in zip(points, dice.sample(range(40), 40), strict=True):
            point.attributes[0].value.int_value = env
        shapes.study(request.SerializeToString())
    assert shapes.learned == 4


def test_clients_of_one_length_have_a_shape_each() -> None:
    """Up to a few; the one that fitted last stays."""
    shapes = Shapes()
    names = [f"client-{number}" for number in range(MOST_OF_ONE + 1)]
    for name in names:
        for export in range(LEARN_AT * MORE_SELDOM ** (len(names))):
            if shapes.read(body(export=export, name=name)) is not None:
                break
            shapes.study(body(export=export, name=name))
    known = [name for name in names if shapes.read(body(export=9, name=name)) is not None]
    assert known == names[1:]


def test_memory_is_bounded() -> None:
    """Shapes that were not used for longest go first, and lengths are not counted for ever."""
    least = Shapes()
    learned(least)
    some = Shapes(most_bytes=400_000)
    for envs in (100, 200, 300, 400):
        learned(some, envs=envs)
    assert some.learned == 4
    assert some.read(body(envs=100)) is None
    assert some.read(body(envs=400)) is not None
    for length in range(MOST_LENGTHS + 10):
        some.study(bytes(5000 + length))
    assert some.read(body(envs=400)) is None


def _shares(name: str) -> bytes:
    """A request of one gauge."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(to_pairs({wire.RUN_ID: "r"}))
    metric = resource.scope_metrics.add().metrics.add(name=name)
    metric.gauge.data_points.add(time_unix_nano=T, as_double=40.0)
    return request.SerializeToString()


def test_a_request_with_a_number_in_another_unit_has_no_shape() -> None:
    """Its value is not the bytes that came: it is left to the general path, also once it was read."""
    assert learn(_shares("overwatch.policy.mfu")) is not None
    for _ in range(2):
        assert learn(_shares("perf/mfu")) is None
