"""Distributions: how many values there were, their sum, and about where they lie. Pure.

Rules: exact where the wire is exact (counts, sums), estimates where it is not (quantiles); finer buckets are
made coarser to meet others, never the reverse. Only + − × ÷ and sqrt, so that every machine estimates the
same. Must not know messages or names.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, assert_never

import msgspec

from overwatch.events.adding import added

LEAST_SCALE: Final = -10
MOST_SCALE: Final = 20
"""Scales of exponential buckets, from `LEAST_SCALE`: what the SDKs of OpenTelemetry use."""
MAX_BUCKETS: Final = 4096


class Explicit(msgspec.Struct, frozen=True, tag="explicit"):
    """Buckets with bounds: n bounds, n + 1 counts; a value that is a bound lies below it."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bounds) + 1:
            raise ValueError(f"{len(self.counts)} buckets do not go with {len(self.bounds)} bounds")
        if len(self.counts) > MAX_BUCKETS:
            raise ValueError(f"{len(self.counts)} buckets are more than {MAX_BUCKETS}")
        if any(not low < high for low, high in pairwise(self.bounds)) or any(map(math.isnan, self.bounds)):
            raise ValueError("bounds of buckets do not rise")


class Exponential(msgspec.Struct, frozen=True, tag="exponential"):
    """Buckets by powers: number i holds values in (base^i, base^(i+1)], base = 2^(2^-scale)."""

    scale: int
    zero: int
    positive: dict[int, int]
    negative: dict[int, int]
    """By the value without its sign."""

    def __post_init__(self) -> None:
        if not LEAST_SCALE <= self.scale <= MOST_SCALE:
            raise ValueError(f"scale {self.scale} is not in {LEAST_SCALE}..{MOST_SCALE}")
        if len(self.positive) + len(self.negative) > MAX_BUCKETS:
            raise ValueError(f"{len(self.positive) + len(self.negative)} buckets are more than {MAX_BUCKETS}")

    def at_scale(self, scale: int) -> "Exponential":
        """The same values in coarser buckets."""
        shift = self.scale - scale
        return Exponential(
            scale=scale,
            zero=self.zero,
            positive=_coarser(self.positive, shift),
            negative=_coarser(self.negative, shift),
        )


class Given(msgspec.Struct, frozen=True, tag="given"):
    """Quantiles that the producer computed itself: (which, value), rising."""

    quantiles: tuple[tuple[float, float], ...]


Shape = Explicit | Exponential | Given


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Some values; raises `ValueError` when the buckets do not hold as many as there are."""

    count: int
    sum: float | None = None
    low: float | None = None
    """The least value, where it is known."""
    high: float | None = None
    shape: Shape | None = None

    def __post_init__(self) -> None:
        match self.shape:
            case Explicit(counts=counts):
                held = sum(counts)
            case Exponential(zero=zero, positive=positive, negative=negative):
                held = zero + sum(positive.values()) + sum(negative.values())
            case Given() | None:
                return
            case _:
                assert_never(self.shape)
        if held != self.count:
            raise ValueError(f"its buckets hold {held} values, and its count is {self.count}")

    @property
    def mean(self) -> float | None:
        """The mean; `None` without values or without a sum."""
        return self.sum / self.count if self.count and self.sum is not None else None

    def quantile(self, which: float) -> float | None:
        """About the value that a share `which` of all values does not exceed; `None` where unknown."""
        if not self.count:
            return None
        match self.shape:
            case None:
                return None
            case Explicit():
                value = _of_explicit(self.shape, which * self.count, self.low, self.high)
            case Exponential():
                value = _of_exponential(self.shape, which * self.count)
            case Given():
                return next((value for share, value in self.shape.quantiles if share == which), None)
            case _:
                assert_never(self.shape)
        if value is None:
            return None
        value = value if self.low is None else max(value, self.low)
        return value if self.high is None else min(value, self.high)

    def minus(self, before: "Distribution") -> "Distribution | None":
        """What came since `before`; `None` where it holds what this does not: then it was another count."""
        shape = _minus(self.shape, before.shape)
        count = self.count - before.count
        if count < 0 or (shape is None and isinstance(self.shape, Explicit | Exponential)):
            return None
        told = None if self.sum is None or before.sum is None else self.sum - before.sum
        return Distribution(count=count, sum=told, shape=shape)


def upper_ends(shape: Explicit | Exponential) -> list[tuple[float, int]]:
    """The upper end of each bucket that is not empty, and how many values it holds."""
    if isinstance(shape, Explicit):
        ends = (*shape.bounds, math.inf)
        return [(end, count) for end, count in zip(ends, shape.counts, strict=True) if count]
    found = [(-_power(shape.scale, number), count) for number, count in shape.negative.items()]
    found += [(0.0, shape.zero)] if shape.zero else []
    return found + [(_power(shape.scale, number + 1), count) for number, count in shape.positive.items()]


def together(parts: Sequence[Distribution]) -> Distribution:
    """The values of all of at least one; without a shape where theirs do not meet."""
    if len(parts) == 1:
        return parts[0]
    sums = [part.sum for part in parts if part.sum is not None]
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts if part.high is not None]
    return Distribution(
        count=sum(part.count for part in parts),
        sum=added(sums) if len(sums) == len(parts) else None,
        low=min(lows) if len(lows) == len(parts) else None,
        high=max(highs) if len(highs) == len(parts) else None,
        shape=_shape_of([part.shape for part in parts]),
    )


def _coarser(buckets: Mapping[int, int], shift: int) -> dict[int, int]:
    made: dict[int, int] = {}
    _put(made, buckets, shift)
    return made


def _put(made: dict[int, int], buckets: Mapping[int, int], shift: int) -> None:
    """Add buckets, made coarser, to others."""
    for number, count in buckets.items():
        made[number >> shift] = made.get(number >> shift, 0) + count


def _minus(whole: Shape | None, before: Shape | None) -> Shape | None:
    match whole, before:
        case Explicit(), Explicit() if whole.bounds == before.bounds:
            counts = tuple(new - old for new, old in zip(whole.counts, before.counts, strict=True))
            return None if min(counts) < 0 else Explicit(whole.bounds, counts)
        case Exponential(), Exponential() if whole.scale <= before.scale:
            old = before.at_scale(whole.scale)
            positive = _without(whole.positive, old.positive)
            negative = _without(whole.negative, old.negative)
            zero = whole.zero - old.zero
            if positive is None or negative is None or zero < 0:
                return None
            return Exponential(scale=whole.scale, zero=zero, positive=positive, negative=negative)
        case Given(), Given():
            # Of which time they are is their producer's choice, mostly the newest.
            return whole
        case _:
            return None


def _without(whole: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int] | None:
    left = dict(whole)
    for number, count in before.items():
        left[number] = left.get(number, 0) - count
    if any(count < 0 for count in left.values()):
        return None
    return {number: count for number, count in left.items() if count}


def _shape_of(shapes: Sequence[Shape | None]) -> Shape | None:
    explicit = [shape for shape in shapes if isinstance(shape, Explicit)]
    if len(explicit) == len(shapes):
        bounds = explicit[0].bounds
        if any(shape.bounds != bounds for shape in explicit):
            return None
        return Explicit(bounds, tuple(map(sum, zip(*(shape.counts for shape in explicit), strict=True))))
    exponential = [shape for shape in shapes if isinstance(shape, Exponential)]
    return _merged(exponential) if len(exponential) == len(shapes) else None


def _merged(shapes: Sequence[Exponential]) -> Exponential | None:
    """All at the finest scale at which their buckets are few enough; `None` where there is none."""
    scale, zero = min(shape.scale for shape in shapes), 0
    positive: dict[int, int] = {}
    negative: dict[int, int] = {}
    for shape in shapes:
        zero += shape.zero
        _put(positive, shape.positive, shape.scale - scale)
        _put(negative, shape.negative, shape.scale - scale)
        while len(positive) + len(negative) > MAX_BUCKETS:
            if scale == LEAST_SCALE:
                return None
            scale -= 1
            positive, negative = _coarser(positive, 1), _coarser(negative, 1)
    return Exponential(scale=scale, zero=zero, positive=positive, negative=negative)


def _of_explicit(shape: Explicit, rank: float, low: float | None, high: float | None) -> float | None:
    """Evenly spread within the bucket of that rank; the open buckets end where the values are known to."""
    if not shape.bounds:
        return None
    below = [0, *accumulate(shape.counts)]
    bucket = _bucket_of(below, rank)
    first, last = shape.bounds[0], shape.bounds[-1]
    edges: Sequence[float] = (
        first if low is None else min(low, first),
        *shape.bounds,
        last if high is None else max(high, last),
    )
    share = (rank - below[bucket]) / shape.counts[bucket]
    start, end = edges[bucket], edges[bucket + 1]
    if not (math.isfinite(start) and math.isfinite(end)):
        return start if math.isfinite(start) else end
    return start + (end - start) * share


def _of_exponential(shape: Exponential, rank: float) -> float:
    """The middle, by powers, of the bucket of that rank."""
    values = [-_middle(shape.scale, number) for number in sorted(shape.negative, reverse=True)]
    counts = [shape.negative[number] for number in sorted(shape.negative, reverse=True)]
    values.append(0.0)
    counts.append(shape.zero)
    for number in sorted(shape.positive):
        values.append(_middle(shape.scale, number))
        counts.append(shape.positive[number])
    return values[_bucket_of([0, *accumulate(counts)], rank)]


def _bucket_of(below: Sequence[int], rank: float) -> int:
    """The bucket that holds a rank, never an empty one; `below[i]` values lie below bucket i."""
    return max(bisect_left(below, min(max(rank, 1e-9), below[-1])) - 1, 0)


def _middle(scale: int, number: int) -> float:
    """Square root of the product of a bucket's bounds: 2^((2·number + 1) · 2^-(scale + 1))."""
    return _power(scale + 1, 2 * number + 1)


def _power(fine: int, power: int) -> float:
    """base^power of a scale: 2^(power · 2^-fine)."""
    if fine <= 0:
        return _two_to(power << -fine)
    factor, root = 1.0, 2.0
    for bit in range(fine - 1, -1, -1):
        root = math.sqrt(root)
        if power >> bit & 1:
            factor *= root
    return factor * _two_to(power >> fine)


def _two_to(power: int) -> float:
    return math.ldexp(1.0, max(-1074, min(power, 1023)))
