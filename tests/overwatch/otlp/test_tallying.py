"""Counters and histograms of foreign services: from points on the wire to what was counted."""

import math
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.catalog.services import SECONDS
from overwatch.events import Buckets, Measured, Tallied, TallySeries
from overwatch.otlp.decode import Decoded
from overwatch.otlp.totals import Totals
from tests.overwatch.otlp.test_settle import CUMULATIVE, DELTA, metric, put, read

SAMPLES = "learner.samples"
LATENCY = "learner.sample_latency"


def sums(points: list[tuple[float, float, float]], temporality: int, **attributes: str) -> Any:
    """A rising counter of points (start, at, value)."""
    message = ExportMetricsServiceRequest()
    told = metric(message, SAMPLES, overwatch__role="learner", service__instance__id="i").sum
    told.aggregation_temporality, told.is_monotonic = temporality, True
    for start, at, value in points:
        put(told, start, at, as_double=value, attributes=attributes)
    return message


def histogram(counts: list[int], bounds: list[float], total: float, **fields: Any) -> Any:
    """One point of a histogram with explicit bounds."""
    message = ExportMetricsServiceRequest()
    told = metric(message, LATENCY).histogram
    told.aggregation_temporality = fields.get("temporality", DELTA)
    put(told, fields.get("start", 1), fields.get("at", 2), count=sum(counts), sum=total,
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
    ids=["changes with a gap", "a restart", "a restart that says no new start"],
)
def test_a_counter_never_falls(
    temporality: int, points: list[tuple[float, float, float]], expected: list[float]
) -> None:
    """Changes are added up over gaps, totals over restarts."""
    totals = Totals()
    told = [series(read(sums([point], temporality, status="ok"), totals)) for point in points]

    assert [[(one.sum, one.labels) for one in each] for each in told] == [
        [(value, {"status": "ok"})] for value in expected
    ]


def test_a_point_that_comes_again_counts_nothing() -> None:
    """A request that was sent twice is counted once."""
    totals = Totals()
    for _ in range(2):
        last = read(sums([(1, 2, 5.0)], DELTA), totals)
    assert (last.records, last.late) == ((), 1)
    (one,) = series(read(sums([(2, 3, 1.0)], DELTA), totals))
    assert one.sum == 6.0


def test_labels_of_the_row_distinguish_and_others_add_up() -> None:
    """What no row knows is no label; its series are one."""
    message = ExportMetricsServiceRequest()
    told = metric(message, SAMPLES).sum
    told.aggregation_temporality, told.is_monotonic = CUMULATIVE, True
    for status, shard, value in (("ok", "a", 1.0), ("ok", "b", 2.0), ("failed", "a", 4.0)):
        put(told, 1, 2, as_double=value, attributes={"status": status, "shard": shard})

    found = {one.labels["status"]: one.sum for one in series(read(message))}
    assert found == {"ok": 3.0, "failed": 4.0}


def test_label_sets_beyond_the_most_are_one() -> None:
    """The 65th is `other`, and so are all after it, whichever request tells them."""
    totals = Totals()
    for n in range(70):
        last = read(sums([(1, 2 + n, 1.0)], CUMULATIVE, status=str(n)), totals)

    (one,) = series(last)
    assert (one.labels, one.sum) == ({"status": "other"}, 6.0)
    (one,) = series(read(sums([(1, 90, 3.0)], CUMULATIVE, status="0"), totals))
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
        told = read(
            histogram(counts, [1.0], 2.0 * sum(counts), temporality=CUMULATIVE, start=start, at=at), totals
        )

    (one,) = series(told)
    assert (one.count, one.sum) == (6, 12.0)
    assert one.buckets == Buckets(bounds=(1.0,), counts=(4, 2))


def test_exponential_buckets_are_put_into_those_of_the_row() -> None:
    """Each value is counted where the end of its bucket lies; none is lost."""
    message = ExportMetricsServiceRequest()
    told = metric(message, LATENCY).exponential_histogram
    told.aggregation_temporality = DELTA
    point = put(told, 1, 2, count=10, sum=30.0, scale=0, zero_count=2)
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
    told = metric(message, LATENCY).histogram
    told.aggregation_temporality = DELTA
    put(told, 1, 2, count=3, sum=6.0)
    totals = Totals()
    assert [(one.count, one.buckets) for one in series(read(message, totals))] == [(3, None)]
    (one,) = series(read(histogram([1, 0], [1.0], 0.5, start=2, at=3), totals))
    assert (one.count, one.buckets) == (4, None)


def test_a_summary_stays_a_value() -> None:
    """Quantiles that the service itself computed are gauges of it."""
    message = ExportMetricsServiceRequest()
    told = metric(message, LATENCY).summary
    point = put(told, 1, 2, count=4, sum=2.0)
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
    read(sums([(1, 2, 5.0)], CUMULATIVE), totals)
    decoded = read(sums([(1, 3, value)], CUMULATIVE), totals)
    assert [problem.reason for problem in decoded.problems] == ["malformed"]
    (one,) = series(read(sums([(1, 4, 6.0)], CUMULATIVE), totals))
    assert one.sum == 6.0


def test_a_run_that_is_gone_is_forgotten() -> None:
    """Its label sets make room."""
    totals = Totals()
    read(sums([(1, 2, 5.0)], CUMULATIVE, status="ok"), totals)
    totals.keep([])
    assert totals == Totals()
