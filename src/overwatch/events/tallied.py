"""Counters and histograms with labels, as one producer has counted them since it began.

Rules: every number is cumulative over one life of its producer, so a lost record loses nothing; a series is a
metric with its labels. Must not know the catalogue.
"""

import math
from bisect import bisect_left
from itertools import pairwise
from typing import Final

import msgspec

from overwatch.catalog import Scope
from overwatch.events.fact import Fact

MOST_BUCKETS: Final = 4096
MOST_LABELS: Final = 16
MOST_SUM: Final = 1e100
MOST_COUNT: Final = 1 << 53
"""Up to it a double holds every whole number."""


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """How many values lie between bounds; a value that is a bound lies below it.

    Raises `ValueError` unless there is one count more than bounds, and the bounds rise.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """One a bound, not cumulated, and one for all values above the last."""

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bounds) + 1:
            raise ValueError(f"{len(self.counts)} counts do not go with {len(self.bounds)} bounds: one more")
        if len(self.counts) > MOST_BUCKETS:
            raise ValueError(f"{len(self.counts)} buckets are more than {MOST_BUCKETS}")
        if any(not low < high for low, high in pairwise(self.bounds)) or not all(
            map(math.isfinite, self.bounds)
        ):
            raise ValueError("the bounds of buckets rise and are finite; these do not")
        if min(self.counts) < 0:
            raise ValueError(f"a bucket holds {min(self.counts)} values")

    def plus(self, other: "Buckets") -> "Buckets":
        """The values of both between the bounds of this; those of a bucket of other bounds lie at its end."""
        counts = list(self.counts)
        for end, count in zip((*other.bounds, math.inf), other.counts, strict=True):
            place = bisect_left(self.bounds, end)
            counts[place] = min(counts[place] + count, MOST_COUNT)
        return Buckets(bounds=self.bounds, counts=tuple(counts))

    def minus(self, before: "Buckets") -> "Buckets | None":
        """The values that came since `before`; `None` where it has other bounds, or more in some bucket."""
        counts = tuple(new - old for new, old in zip(self.counts, before.counts, strict=False))
        if self.bounds != before.bounds or min(counts) < 0:
            return None
        return Buckets(bounds=self.bounds, counts=counts)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a histogram, and the span in which it was observed."""

    bucket: int
    """Place of its bucket."""
    value: float
    at: int
    """Producer's time."""
    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""


class TallySeries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One counter or histogram with its labels, since its producer began.

    Raises `ValueError` where its numbers cannot be.
    """

    metric: str
    """Full name of a catalogue row, or a custom one."""
    labels: dict[str, str] = {}
    sum: float | None = None
    """Of a counter its total, of a histogram the sum of the values; absent where the producer has none."""
    count: int | None = None
    """How many values a histogram holds; absent of a counter."""
    buckets: Buckets | None = None
    """Absent of a counter, and of a histogram without bounds."""
    samples: tuple[Sample, ...] = ()
    """Of a histogram at most one a bucket, the newest that a trace shows."""

    def __post_init__(self) -> None:
        if not self.metric or len(self.labels) > MOST_LABELS:
            raise ValueError(f"a series has a name and at most {MOST_LABELS} labels")
        if self.sum is not None and not abs(self.sum) <= MOST_SUM:
            raise ValueError(f"{self.metric} is {self.sum}; at most {MOST_SUM:g} can be counted")
        if self.count is None:
            if self.sum is None or self.sum < 0 or self.buckets is not None:
                raise ValueError(f"{self.metric} without a count is a counter: a total of 0 or more")
        elif not 0 <= self.count <= MOST_COUNT or (
            self.buckets is not None and sum(self.buckets.counts) != self.count
        ):
            raise ValueError(f"{self.metric} counts {self.count}: too many, or not what its buckets hold")

    @property
    def size(self) -> float:
        """What only grows: the count of a histogram, the total of a counter."""
        return float(self.count if self.count is not None else self.sum or 0.0)


class Tallied(Fact, frozen=True, kw_only=True, tag="tallied"):
    """Counters and histograms of one scope, as one producer has counted them since it began."""

    scope: Scope
    series: tuple[TallySeries, ...]
    """Those that changed since the record before, or all of them."""
