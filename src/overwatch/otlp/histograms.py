"""Points of histograms, exponential histograms and summaries as distributions.

Rules: what OTLP says MUST hold of a point is checked, whoever told it; a point that breaks it raises
`ValueError` with what is wrong. Must not know rows, series or subjects.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias, assert_never

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    SummaryDataPoint,
)

from overwatch.otlp.distribution import MAX_BUCKETS, Distribution, Explicit, Exponential, Given

Point: TypeAlias = HistogramDataPoint | ExponentialHistogramDataPoint | SummaryDataPoint

_FARTHEST = 1 << 31


def distribution_of(point: Point) -> Distribution:
    """What a point tells; raises `ValueError` on one that breaks OTLP's rules."""
    match point:
        case HistogramDataPoint():
            return _explicit(point)
        case ExponentialHistogramDataPoint():
            return _exponential(point)
        case SummaryDataPoint():
            return _summary(point)
        case _:
            assert_never(point)


def _explicit(point: HistogramDataPoint) -> Distribution:
    if len(point.bucket_counts) > MAX_BUCKETS or len(point.explicit_bounds) > MAX_BUCKETS:
        raise ValueError(f"{len(point.bucket_counts)} buckets are more than {MAX_BUCKETS}")
    shape = None
    if point.bucket_counts:
        shape = Explicit(bounds=tuple(point.explicit_bounds), counts=tuple(point.bucket_counts))
    elif point.explicit_bounds:
        raise ValueError(f"{len(point.explicit_bounds)} bounds have no buckets")
    return Distribution(count=point.count, shape=shape, **_extent(point))


def _exponential(point: ExponentialHistogramDataPoint) -> Distribution:
    if point.zero_threshold < 0 or math.isnan(point.zero_threshold):
        raise ValueError(f"zero_threshold {point.zero_threshold} is below 0")
    shape = Exponential(
        scale=point.scale,
        zero=point.zero_count,
        positive=_buckets(point.positive.offset, point.positive.bucket_counts),
        negative=_buckets(point.negative.offset, point.negative.bucket_counts),
    )
    return Distribution(count=point.count, shape=shape, **_extent(point))


def _buckets(offset: int, counts: Sequence[int]) -> dict[int, int]:
    if len(counts) > MAX_BUCKETS:
        raise ValueError(f"{len(counts)} buckets are more than {MAX_BUCKETS}")
    if offset + len(counts) > _FARTHEST:
        raise ValueError(f"{len(counts)} buckets from {offset} on go beyond 32 bits")
    return {offset + place: count for place, count in enumerate(counts) if count}


def _summary(point: SummaryDataPoint) -> Distribution:
    told = [(one.quantile, one.value) for one in point.quantile_values]
    if len(told) > MAX_BUCKETS:
        raise ValueError(f"{len(told)} quantiles are more than {MAX_BUCKETS}")
    for which, _ in told:
        if not 0 <= which <= 1:
            raise ValueError(f"quantile {which} is not in 0..1")
    return Distribution(count=point.count, sum=point.sum, shape=Given(quantiles=tuple(sorted(told))))


def _extent(point: HistogramDataPoint | ExponentialHistogramDataPoint) -> dict[str, float | None]:
    """The fields that may be left out."""
    return {
        "sum": point.sum if point.HasField("sum") else None,
        "low": point.min if point.HasField("min") else None,
        "high": point.max if point.HasField("max") else None,
    }
