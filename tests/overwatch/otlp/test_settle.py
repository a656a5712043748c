"""Sums and distributions of foreign producers: from points on the wire to values of the catalogue's rows."""

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric

from overwatch.catalog import KL
from overwatch.catalog.services import SECONDS
from overwatch.events import Buckets, EnvsRemoved, LogLine, Measured, Tallied, TallySeries
from overwatch.fold import Fold
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import Decoded, decode
from overwatch.otlp.settle import settle
from overwatch.otlp.totals import Totals
from overwatch.otlp.value import Value
from tests.fakes import START_NS
from tests.overwatch.otlp.attributes import to_pairs

DELTA, CUMULATIVE = 1, 2
S = 1_000_000_000
DISTRIBUTIONS = ("histogram", "exponential_histogram", "summary")
ENTROPY = "overwatch.policy.entropy"


def metric(message: ExportMetricsServiceRequest, name: str, **resource: Value) -> Metric:
    """One more metric of run `r`."""
    reported = {"rl.run.id": "r", **{key.replace("__", "."): value for key, value in resource.items()}}
    named = message.resource_metrics.add()
    named.resource.attributes.extend(to_pairs(reported))
    added: Metric = named.scope_metrics.add().metrics.add(name=name)
    return added


def _nanos(second: float) -> int:
    """A second of these tests as Unix nanoseconds; 0 stands for no time."""
    return int(second * S) + (START_NS if second else 0)


def put(data: Any, start: float, at: float, **fields: Any) -> Any:
    """One more point, from `start` to `at` in seconds."""
    attributes = to_pairs(fields.pop("attributes", {}))
    return data.data_points.add(
        start_time_unix_nano=_nanos(start), time_unix_nano=_nanos(at), attributes=attributes, **fields
    )


def sums(
    points: list[tuple[float, float, float]], temporality: int, name: str = KL.name, **resource: Value
) -> ExportMetricsServiceRequest:
    """A rising sum of points (start, at, value)."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, name, **resource).sum
    reported.aggregation_temporality, reported.is_monotonic = temporality, True
    for start, at, value in points:
        put(reported, start, at, as_double=value)
    return message


def one(kind: str, **fields: Any) -> ExportMetricsServiceRequest:
    """One point of a distribution of KL."""
    message = ExportMetricsServiceRequest()
    reported = getattr(metric(message, KL.name), kind)
    if kind != "summary":
        reported.aggregation_temporality = fields.pop("temporality", DELTA)
    put(reported, fields.pop("start", 1), fields.pop("at", 2), **fields)
    return message


def read(message: ExportMetricsServiceRequest, totals: Totals | None = None) -> Decoded:
    """What a request comes to."""
    return settle(decode(Signal.METRICS, message.SerializeToString()), totals or Totals())


def values(decoded: Decoded) -> dict[str, float]:
    """The values of the one measurement there is."""
    (reported,) = [record.event for record in decoded.records if isinstance(record.event, Measured)]
    return {name: column.first() for name, column in reported.values.items()}


def test_changes_of_one_request_after_another_are_a_total() -> None:
    """A delta's value is the total since its producer began."""
    totals = Totals()
    reported = [read(sums([(at, at + 1, 2.0)], DELTA), totals) for at in (1, 2, 3)]

    assert [values(decoded)[KL.name] for decoded in reported] == [2.0, 4.0, 6.0]


def test_a_cumulative_sum_is_its_newest_value_also_after_a_reset() -> None:
    """A total that begins again is what it is now, and is counted; nothing is made of the step down."""
    totals = Totals()
    points = [(1, 2, 5.0), (1, 3, 9.0), (4, 5, 1.0)]
    reported = [read(sums([point], CUMULATIVE), totals) for point in points]

    assert [values(decoded)[KL.name] for decoded in reported] == [5.0, 9.0, 1.0]
    assert [decoded.resets for decoded in reported] == [0, 0, 1]


def test_a_request_that_comes_again_counts_nothing() -> None:
    """A retransmitted delta is late, and has no value."""
    totals = Totals()
    again = [read(sums([(1, 2, 5.0)], DELTA), totals) for _ in range(2)]

    assert [decoded.late for decoded in again] == [0, 1]
    assert again[1].records == ()


def test_a_gap_begins_anew_and_is_counted() -> None:
    """Where changes are missing, the total is what came after them."""
    totals = Totals()
    reported = [read(sums([point], DELTA), totals) for point in [(1, 2, 5.0), (7, 8, 1.0)]]

    assert (values(reported[1])[KL.name], reported[1].resets) == (1.0, 1)


@pytest.mark.parametrize("temporality", [DELTA, CUMULATIVE])
def test_series_that_differ_in_other_attributes_add_up(temporality: int) -> None:
    """A sum split by an attribute that no row knows is the sum of its parts."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, KL.name).sum
    reported.aggregation_temporality = temporality
    for part, value in (("actor", 1.0), ("critic", 2.5)):
        put(reported, 1, 2, as_double=value, attributes={"part": part})

    assert values(read(message)) == {KL.name: 3.5}


@pytest.mark.parametrize(
    ("rises", "expected"), [(False, [3.0, 5.0, 13.0, 2.0]), (True, [3.0, 7.0, 13.0, 14.0])]
)
def test_parts_of_a_total_add_up_over_requests(*, rises: bool, expected: list[float]) -> None:
    """Exporters split what is long: what can only rise never falls because a part comes later."""
    totals = Totals()
    reported = []
    for at, parts in ((2, {"a": 1.0, "b": 2.0}), (3, {"a": 5.0}), (3, {"b": 7.0, "c": 1.0}), (4, {"c": 2.0})):
        message = ExportMetricsServiceRequest()
        data = metric(message, KL.name).sum
        data.aggregation_temporality, data.is_monotonic = CUMULATIVE, rises
        for part, value in parts.items():
            put(data, 1, at, as_double=value, attributes={"part": part})
        reported.append(values(read(message, totals))[KL.name])

    assert reported == expected


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e308])
def test_a_part_that_does_not_add_up_spoils_nothing_behind_it(odd: float) -> None:
    """While one part is no number the total is none; then it is what it would have been."""
    totals = Totals()
    reported = []
    for at, value in ((2, 1.0), (3, odd), (4, 5.0)):
        message = sums([(1, at, value)], CUMULATIVE)
        data = message.resource_metrics[0].scope_metrics[0].metrics[0].sum
        put(data, 1, at, as_double=2.0, attributes={"part": "b"})
        reported.append(values(read(message, totals))[KL.name])

    assert (reported[0], reported[2]) == (3.0, 7.0)
    assert not reported[1] <= 1e300


def test_of_two_writers_at_one_moment_only_the_newer_one_counts() -> None:
    """What is believed instead of another value is not added to it."""
    totals = Totals()
    reported = [read(sums([point], CUMULATIVE), totals) for point in [(1, 5, 40.0), (3, 5, 2.0)]]

    assert [values(decoded)[KL.name] for decoded in reported] == [40.0, 2.0]


def test_producers_do_not_share_totals() -> None:
    """Each service instance has a total of its own."""
    totals = Totals()
    first = read(sums([(1, 2, 5.0)], DELTA, service__instance__id="a"), totals)
    other = read(sums([(1, 2, 1.0)], DELTA, service__instance__id="b"), totals)

    assert (values(first)[KL.name], values(other)[KL.name]) == (5.0, 1.0)


def test_gauges_and_sums_of_one_export_are_one_measurement() -> None:
    """One export of a policy stays one update, whatever kinds its metrics have."""
    message = sums([(1, 2, 5.0)], DELTA)
    put(metric(message, ENTROPY).gauge, 0, 2, as_double=0.5)

    assert values(read(message)) == {KL.name: 5.0, ENTROPY: 0.5}


def test_a_request_may_be_settled_more_than_once() -> None:
    """Settling leaves what was decoded as it was, so one decoding serves several readers."""
    decoded = decode(Signal.METRICS, sums([(1, 2, 5.0)], DELTA).SerializeToString())

    assert settle(decoded, Totals()) == settle(decoded, Totals())
    assert decoded.series is not None


def test_two_writers_of_one_series_are_reported_once_and_counted() -> None:
    """The run's feed states who shares what; every further point is counted."""
    totals = Totals()
    seen = [
        read(sums([(start, at, 1.0)], CUMULATIVE), totals)
        for start, at in [(1, 9), (5, 10), (1, 11), (1, 13)]
    ]
    lines = [
        record.event for decoded in seen for record in decoded.records if isinstance(record.event, LogLine)
    ]

    assert [decoded.overlaps for decoded in seen] == [0, 1, 1, 1]
    assert ["service.instance.id" in line.message for line in lines] == [True]


def test_a_sum_of_an_env_is_the_envs() -> None:
    """Subjects have totals of their own."""
    totals = Totals()
    for at in (1, 2):
        message = ExportMetricsServiceRequest()
        reported = metric(message, "overwatch.env.reward").sum
        reported.aggregation_temporality = DELTA
        for env_id in (4, 7):
            put(reported, at, at + 1, as_double=env_id, attributes={"overwatch.env.id": env_id})
        decoded = read(message, totals)
    (measured,) = [record.event for record in decoded.records]

    assert isinstance(measured, Measured)
    assert measured.values["overwatch.env.reward"].array().tolist() == [8.0, 14.0]


SHAPES: dict[str, dict[str, Any]] = {
    "histogram": {"explicit_bounds": [0.1, 1.0], "bucket_counts": [1, 2, 1]},
    "exponential_histogram": {"scale": 0, "positive": {"offset": 0, "bucket_counts": [1, 2, 1]}},
    "summary": {"quantile_values": [{"quantile": 0.5, "value": 2.0}]},
}


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_a_distribution_is_its_mean_and_about_its_quantiles(kind: str) -> None:
    """The row has the mean of what is new; quantiles are shown beside it under their own names."""
    reported = values(read(one(kind, count=4, sum=8.0, **SHAPES[kind])))

    assert reported.pop(KL.name) == 2.0
    assert set(reported) <= {f"overwatch.custom.kl_divergence_{word}" for word in ("p50", "p95", "p99")}
    assert math.isfinite(reported["overwatch.custom.kl_divergence_p50"])


@pytest.mark.parametrize("kind", ["histogram", "exponential_histogram"])
def test_of_a_cumulative_distribution_the_newest_values_are_kept(kind: str) -> None:
    """The mean is of what came since the export before."""
    totals = Totals()
    read(one(kind, count=4, sum=8.0, temporality=CUMULATIVE, **SHAPES[kind]), totals)
    more = {
        "histogram": {"explicit_bounds": [0.1, 1.0], "bucket_counts": [1, 2, 3]},
        "exponential_histogram": {"scale": 0, "positive": {"offset": 0, "bucket_counts": [1, 2, 3]}},
    }[kind]
    reported = read(one(kind, count=6, sum=28.0, at=3, temporality=CUMULATIVE, **more), totals)

    assert values(reported)[KL.name] == 10.0


def test_the_quantiles_of_a_summary_are_those_of_its_newest_point() -> None:
    """Its producer computed them, of a time of its own: nothing is taken off them."""
    totals = Totals()
    for at, median in ((2, 5.0), (3, 7.0)):
        quantiles = [{"quantile": 0.5, "value": median}]
        reported = read(one("summary", count=at, sum=8.0 * at, at=at, quantile_values=quantiles), totals)

        assert values(reported) == {KL.name: 8.0, "overwatch.custom.kl_divergence_p50": median}


def test_changes_of_a_distribution_without_values_are_no_gap() -> None:
    """A window in which nothing was observed is known, not lost."""
    totals = Totals()
    reported = [
        read(one("histogram", count=count, sum=1.0, start=at, at=at + 1), totals)
        for at, count in enumerate((1, 0, 2), start=1)
    ]

    assert [decoded.resets for decoded in reported] == [0, 0, 0]
    assert [len(decoded.records) for decoded in reported] == [1, 0, 1]


def test_a_distribution_without_values_states_nothing() -> None:
    """No observation is no value, never 0."""
    assert read(one("histogram", count=0, sum=0.0)) == Decoded(items=1)


BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "bounds-do-not-rise": ("histogram", {"explicit_bounds": [3.0, 1.0], "bucket_counts": [0, 0, 0]}),
    "bounds-come-twice": ("histogram", {"explicit_bounds": [1.0, 1.0], "bucket_counts": [0, 0, 0]}),
    "a-bound-is-nan": ("histogram", {"count": 2, "explicit_bounds": [math.nan], "bucket_counts": [1, 1]}),
    "count-is-not-the-buckets": ("histogram", {"count": 7, "bucket_counts": [1]}),
    "buckets-and-bounds-differ": ("histogram", {"count": 1, "explicit_bounds": [1.0], "bucket_counts": [1]}),
    "bounds-without-buckets": ("histogram", {"count": 1, "explicit_bounds": [1.0]}),
    "too-many-buckets": ("histogram", {"count": 0, "bucket_counts": [0] * 5000}),
    "scale-too-fine": ("exponential_histogram", {"scale": 1000}),
    "scale-too-coarse": ("exponential_histogram", {"scale": -1000}),
    "exponential-count": ("exponential_histogram", {"count": 2, "zero_count": 1}),
    "beyond-32-bits": (
        "exponential_histogram",
        {"count": 2, "positive": {"offset": 2**31 - 1, "bucket_counts": [1, 1]}},
    ),
    "zero-threshold-below-0": ("exponential_histogram", {"zero_threshold": -1.0}),
    "quantile-beyond-1": ("summary", {"count": 1, "quantile_values": [{"quantile": 1.5, "value": 1.0}]}),
    "begins-after-its-time": ("histogram", {"count": 1, "sum": 1.0, "start": 9}),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
@pytest.mark.parametrize("name", [KL.name, "app.latency"])
def test_a_distribution_that_breaks_a_rule_is_rejected_alone(rule: str, name: str) -> None:
    """What OTLP states MUST hold is checked of each point; its neighbours are unharmed."""
    kind, fields = BROKEN[rule]
    message = one(kind, **dict(fields))
    message.resource_metrics[0].scope_metrics[0].metrics[0].name = name
    put(metric(message, ENTROPY).gauge, 0, 2, as_double=0.5)
    decoded = read(message)

    assert len(decoded.problems) == 1
    assert values(decoded) == {ENTROPY: 0.5}


@pytest.mark.parametrize(
    ("value", "temporality", "rises"),
    [(math.nan, DELTA, False), (math.inf, DELTA, False), (-1.0, DELTA, True), (-1.0, CUMULATIVE, True)],
)
def test_sums_that_cannot_be_are_rejected(value: float, temporality: int, *, rises: bool) -> None:
    """What only rises never falls, and a change that is no number has no total."""
    message = sums([(1, 2, value)], temporality)
    message.resource_metrics[0].scope_metrics[0].metrics[0].sum.is_monotonic = rises
    decoded = read(message)

    assert (len(decoded.problems), decoded.records) == (1, ())


def test_a_distribution_that_no_row_knows_is_counted() -> None:
    """It is accepted whole, and read by no one here."""
    message = one("histogram", count=4, sum=8.0, **SHAPES["histogram"])
    message.resource_metrics[0].scope_metrics[0].metrics[0].name = "app.latency"

    assert read(message) == Decoded(items=1, unmapped=1)


@pytest.mark.parametrize("kind", [*DISTRIBUTIONS, "sum"])
def test_a_point_without_a_recorded_value_is_none(kind: str) -> None:
    """Whatever such a point holds is not looked at; it ends the value."""
    message = ExportMetricsServiceRequest()
    flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    broken = {"histogram": {"count": 9, "bucket_counts": [1]}, "exponential_histogram": {"scale": 999}}
    put(getattr(metric(message, KL.name), kind), 1, 2, flags=flags, **broken.get(kind, {}))
    put(
        getattr(metric(message, "overwatch.env.reward"), kind), 1, 2,
        flags=flags, attributes={"overwatch.env.id": 3},
    )  # fmt: skip
    decoded = read(message)
    over, ended = [record.event for record in decoded.records]

    assert isinstance(over, Measured)
    assert [(name, len(column)) for name, column in over.values.items()] == [(KL.name, 0)]
    assert isinstance(ended, EnvsRemoved)
    assert (ended.env_id.array().tolist(), ended.metrics) == ([3], ("overwatch.env.reward",))
    assert decoded.problems == ()


def test_readings_of_lanes_and_values_of_slots_end_too() -> None:
    """What one lane or slot has no value of any more is absent there, and stays with the others."""

    def reported(at: int, flags: int) -> Batch:
        message = ExportMetricsServiceRequest()
        lanes = metric(message, "hw.gpu.utilization").gauge
        put(lanes, at, at, as_double=0.5, flags=flags, attributes={"hw.id": "gpu-0"})
        put(lanes, at, at, as_double=0.6, attributes={"hw.id": "gpu-1"})
        where = {"overwatch.env.id": 3, "overwatch.slot.id": "r0c0"}
        slots = metric(message, "overwatch.slot.alpha").gauge
        put(slots, at, at, as_double=0.7, flags=flags, attributes=where)
        body = message.SerializeToString()
        return Batch(sequence=at, stamp=at * S, signal=Signal.METRICS, body=body)

    fold = Fold()
    gone = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    seen = []
    for at, flags in ((1, 0), (2, gone)):
        fold.skip(at * S, [reported(at, flags)])
        (tracked,) = fold._runs.values()
        readings = {lane: "utilization" in of_lane for lane, of_lane in tracked.state.lanes.items()}
        seen.append((readings, float(tracked.state.envs.alpha[0, 0])))
    assert fold.tower.problems == 0
    assert seen[0] == ({"gpu-0": True, "gpu-1": True}, pytest.approx(0.7))
    assert seen[1][0] == {"gpu-0": False, "gpu-1": True}
    assert math.isnan(seen[1][1])


@pytest.mark.parametrize("kind", ["sum", "exponential_histogram"])
def test_many_parts_of_one_value_cost_by_their_number(kind: str) -> None:
    """What adds up is put together once, not anew with each of its parts."""
    message, parts = ExportMetricsServiceRequest(), 400
    data = getattr(metric(message, KL.name), kind)
    data.aggregation_temporality = CUMULATIVE
    for part in range(parts):
        fields: dict[str, Any] = {"as_double": 2.0}
        if kind != "sum":
            fields = {"count": 1, "sum": 2.0, "scale": 0, "positive": {"offset": part, "bucket_counts": [1]}}
        put(data, 1, 2, attributes={"part": part}, **fields)
    decoded, steps = decode(Signal.METRICS, message.SerializeToString()), 0

    def count(*_: object) -> Callable[..., Any]:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        reported = settle(decoded, Totals())
    finally:
        sys.settrace(before)

    assert values(reported)[KL.name] == (2.0 * parts if kind == "sum" else 2.0)
    assert steps < 200 * parts


SAMPLES = "learner.samples"
LATENCY = "learner.sample_latency"


def samples(points: list[tuple[float, float, float]], temporality: int, **attributes: str) -> Any:
    """A rising counter of points (start, at, value)."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, SAMPLES, overwatch__role="learner", service__instance__id="i").sum
    reported.aggregation_temporality, reported.is_monotonic = temporality, True
    for start, at, value in points:
        put(reported, start, at, as_double=value, attributes=attributes)
    return message


def histogram(counts: list[int], bounds: list[float], total: float, **fields: Any) -> Any:
    """One point of a histogram with explicit bounds."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, LATENCY).histogram
    reported.aggregation_temporality = fields.get("temporality", DELTA)
    put(reported, fields.get("start", 1), fields.get("at", 2), count=sum(counts), sum=total,
        bucket_counts=counts, explicit_bounds=bounds)  # fmt: skip
    return message


def series(decoded: Decoded) -> list[TallySeries]:
    """Everything that was counted, of a request of which no measurement is made."""
    assert not decoded.problems
    assert not [record for record in decoded.records if isinstance(record.event, Measured)]
    tallied = [record.event for record in decoded.records if isinstance(record.event, Tallied)]
    return [one for event in tallied for one in event.series]


@pytest.mark.parametrize(
    ("temporality", "points", "expected"),
    [
        (DELTA, [(1, 2, 5.0), (2, 3, 2.0), (9, 10, 1.0)], [5.0, 7.0, 8.0]),
        (CUMULATIVE, [(1, 2, 5.0), (1, 3, 9.0), (4, 5, 2.0), (4, 6, 3.0)], [5.0, 9.0, 11.0, 12.0]),
        (CUMULATIVE, [(1, 2, 5.0), (1, 3, 2.0)], [5.0, 7.0]),
    ],
    ids=["changes with a gap", "a restart", "a restart that states no new start"],
)
def test_a_counter_never_falls(
    temporality: int, points: list[tuple[float, float, float]], expected: list[float]
) -> None:
    """Changes are added up over gaps, totals over restarts."""
    totals = Totals()
    reported = [series(read(samples([point], temporality, status="ok"), totals)) for point in points]

    assert [[(one.sum, one.labels) for one in each] for each in reported] == [
        [(value, {"status": "ok"})] for value in expected
    ]


def test_a_point_that_comes_again_counts_nothing() -> None:
    """A request that was sent twice is counted once."""
    totals = Totals()
    for _ in range(2):
        last = read(samples([(1, 2, 5.0)], DELTA), totals)
    assert (last.records, last.late) == ((), 1)
    (one,) = series(read(samples([(2, 3, 1.0)], DELTA), totals))
    assert one.sum == 6.0


def test_labels_of_the_row_distinguish_and_others_add_up() -> None:
    """What no row knows is no label; its series are one."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, SAMPLES).sum
    reported.aggregation_temporality, reported.is_monotonic = CUMULATIVE, True
    for status, shard, value in (("ok", "a", 1.0), ("ok", "b", 2.0), ("failed", "a", 4.0)):
        put(reported, 1, 2, as_double=value, attributes={"status": status, "shard": shard})

    found = {one.labels["status"]: one.sum for one in series(read(message))}
    assert found == {"ok": 3.0, "failed": 4.0}


def test_label_sets_beyond_the_most_are_one() -> None:
    """The 65th is `other`, and so are all after it, whichever request sends them."""
    totals = Totals()
    for n in range(70):
        last = read(samples([(1, 2 + n, 1.0)], CUMULATIVE, status=str(n)), totals)

    (one,) = series(last)
    assert (one.labels, one.sum) == ({"status": "other"}, 6.0)
    (one,) = series(read(samples([(1, 90, 3.0)], CUMULATIVE, status="0"), totals))
    assert (one.labels, one.sum) == ({"status": "0"}, 3.0)


def test_explicit_bounds_stay_as_they_came() -> None:
    """Of the same bounds counts add up; of others the values of a bucket lie at its end."""
    totals = Totals()
    (one,) = series(read(histogram([1, 2, 0], [1.0, 5.0], 6.0, start=1, at=2), totals))
    assert (one.count, one.sum) == (3, 6.0)
    assert one.buckets == Buckets(bounds=(1.0, 5.0), counts=(1, 2, 0))

    (one,) = series(read(histogram([1, 1, 1], [0.5, 4.0], 8.0, start=2, at=3), totals))
    assert one.buckets == Buckets(bounds=(1.0, 5.0), counts=(2, 3, 1))
    assert (one.count, one.sum) == (6, 14.0)


def test_a_running_histogram_goes_on_over_a_restart() -> None:
    """What was seen before it began again is still there."""
    totals = Totals()
    for counts, start, at in (([1, 0], 1, 2), ([3, 1], 1, 3), ([1, 1], 4, 5)):
        reported = read(
            histogram(counts, [1.0], 2.0 * sum(counts), temporality=CUMULATIVE, start=start, at=at), totals
        )

    (one,) = series(reported)
    assert (one.count, one.sum) == (6, 12.0)
    assert one.buckets == Buckets(bounds=(1.0,), counts=(4, 2))


def test_exponential_buckets_are_put_into_those_of_the_row() -> None:
    """Each value is counted where the end of its bucket lies; none is lost."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, LATENCY).exponential_histogram
    reported.aggregation_temporality = DELTA
    point = put(reported, 1, 2, count=10, sum=30.0, scale=0, zero_count=2)
    point.positive.offset = -2
    point.positive.bucket_counts.extend([1, 2, 3, 1])
    point.negative.bucket_counts.extend([1])

    (one,) = series(read(message))
    assert one.buckets is not None
    assert one.buckets.bounds == SECONDS
    held = dict(zip((*SECONDS, math.inf), one.buckets.counts, strict=True))
    assert {end: count for end, count in held.items() if count} == {0.001: 3, 1.0: 3, 3.0: 3, 10.0: 1}
    assert (one.count, one.sum) == (10, 30.0)


def test_a_histogram_without_buckets_has_a_count() -> None:
    """How many values there were and their sum are known; where they lie is not, and stays so."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, LATENCY).histogram
    reported.aggregation_temporality = DELTA
    put(reported, 1, 2, count=3, sum=6.0)
    totals = Totals()
    assert [(one.count, one.buckets) for one in series(read(message, totals))] == [(3, None)]
    (one,) = series(read(histogram([1, 0], [1.0], 0.5, start=2, at=3), totals))
    assert (one.count, one.buckets) == (4, None)


def test_a_summary_stays_a_value() -> None:
    """Quantiles that the service itself computed are gauges of it."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, LATENCY).summary
    point = put(reported, 1, 2, count=4, sum=2.0)
    point.quantile_values.add(quantile=0.5, value=0.4)

    (record,) = read(message).records
    assert isinstance(record.event, Measured)
    assert {name: column.first() for name, column in record.event.values.items()} == {
        LATENCY: 0.5, "overwatch.custom.sample_latency_p50": 0.4,
    }  # fmt: skip


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_counter_that_is_no_number_is_rejected(value: float) -> None:
    """It is a problem, and what was counted stays."""
    totals = Totals()
    read(samples([(1, 2, 5.0)], CUMULATIVE), totals)
    decoded = read(samples([(1, 3, value)], CUMULATIVE), totals)
    assert [problem.reason for problem in decoded.problems] == ["malformed"]
    (one,) = series(read(samples([(1, 4, 6.0)], CUMULATIVE), totals))
    assert one.sum == 6.0


def test_a_run_that_is_gone_is_forgotten() -> None:
    """Its label sets make room."""
    totals = Totals()
    read(samples([(1, 2, 5.0)], CUMULATIVE, status="ok"), totals)
    totals.keep([])
    assert totals == Totals()
