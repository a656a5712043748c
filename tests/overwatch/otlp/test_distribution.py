"""Distributions: exact where the wire is, estimates that hold their bounds, coarser but never finer."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.otlp.distribution import Distribution, Explicit, Exponential, Given, together

VALUES = st.lists(
    st.floats(-1e6, 1e6, allow_subnormal=False).filter(lambda value: value == 0 or abs(value) > 1e-6),
    min_size=1,
    max_size=50,
)
SCALES = st.integers(-3, 8)


def bucket(scale: int, value: float) -> int:
    """The bucket of a positive value, by its definition: exact, which a logarithm is not."""
    exact = Fraction(value) ** (1 << max(scale, 0))
    power = exact.numerator.bit_length() - exact.denominator.bit_length()
    while Fraction(2) ** power < exact:
        power += 1
    while Fraction(2) ** (power - 1) >= exact:
        power -= 1
    return (power - 1) >> max(-scale, 0)


def exponential(values: list[float], scale: int) -> Distribution:
    """What an SDK would send of values, without their least and greatest."""
    positive: dict[int, int] = {}
    negative: dict[int, int] = {}
    for value in values:
        side = positive if value > 0 else negative
        if value:
            number = bucket(scale, abs(value))
            side[number] = side.get(number, 0) + 1
    zero = sum(value == 0 for value in values)
    shape = Exponential(scale=scale, zero=zero, positive=positive, negative=negative)
    return Distribution(count=len(values), sum=math.fsum(values), shape=shape)


def explicit(values: list[float], bounds: tuple[float, ...]) -> Distribution:
    """What an SDK would send of values by fixed bounds."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[sum(value > bound for bound in bounds)] += 1
    return Distribution(
        count=len(values),
        sum=math.fsum(values),
        low=min(values),
        high=max(values),
        shape=Explicit(bounds, tuple(counts)),
    )


@given(VALUES, SCALES, st.floats(0, 1))
def test_an_estimate_lies_in_the_bucket_of_the_true_quantile(
    values: list[float], scale: int, which: float
) -> None:
    """The error of an exponential histogram's quantile is at most one bucket."""
    reported = exponential(values, scale).quantile(which)
    true = sorted(values)[max(math.ceil(which * len(values)), 1) - 1]

    assert reported is not None
    width = 2 ** (2.0**-scale) * (1 + 1e-9)
    if true == 0:
        assert reported == 0
    else:
        assert 1 / width <= reported / true <= width


@given(VALUES, VALUES, SCALES, SCALES)
def test_two_scales_meet_at_the_coarser_one(
    one: list[float], other: list[float], scale: int, another: int
) -> None:
    """Values sent at two scales together are what they would be, sent at the coarser one."""
    both = together([exponential(one, scale), exponential(other, another)])
    whole = exponential(one + other, min(scale, another))

    assert (both.count, both.shape) == (whole.count, whole.shape)


@given(VALUES, VALUES, SCALES, st.integers(0, 3))
def test_what_came_since_is_what_came_since(
    before: list[float], after: list[float], scale: int, coarser: int
) -> None:
    """The newest values of a running distribution are recovered, also when its scale fell meanwhile."""
    old, whole = exponential(before, scale), exponential(before + after, scale - coarser)
    newest = whole.minus(old)

    assert newest is not None
    assert (newest.count, newest.shape) == (len(after), exponential(after, scale - coarser).shape)


@given(VALUES, st.floats(0, 1))
def test_explicit_buckets_estimate_within_their_bounds(values: list[float], which: float) -> None:
    """The estimate is in the bucket of the true quantile, and never beyond the least and greatest."""
    bounds = (-1000.0, -1.0, 0.0, 1.0, 1000.0)
    reported = explicit(values, bounds).quantile(which)
    true = sorted(values)[max(math.ceil(which * len(values)), 1) - 1]

    assert reported is not None
    assert min(values) <= reported <= max(values)
    low = max((bound for bound in bounds if bound < true), default=-math.inf)
    high = min((bound for bound in bounds if bound >= true), default=math.inf)
    assert low <= reported <= high


def test_a_distribution_of_nothing_has_neither_mean_nor_quantile() -> None:
    """Absent is absent."""
    nothing = Distribution(count=0, sum=0.0, shape=Explicit((1.0,), (0, 0)))

    assert (nothing.mean, nothing.quantile(0.5)) == (None, None)
    assert Distribution(count=3, sum=6.0).quantile(0.5) is None
    assert Distribution(count=3).mean is None


def test_a_summary_has_its_own_quantiles_only() -> None:
    """What a producer computed is taken as it is; others are not made up."""
    reported = Distribution(count=9, sum=9.0, shape=Given(((0.5, 1.0), (0.99, 7.0))))

    assert (reported.quantile(0.99), reported.quantile(0.95)) == (7.0, None)


@pytest.mark.parametrize(
    ("whole", "before"),
    [
        (explicit([1.0, 5.0], (2.0,)), explicit([1.0, 1.5], (2.0,))),
        (explicit([1.0, 5.0], (2.0,)), explicit([1.0], (3.0,))),
        (exponential([4.0, 4.0], 0), exponential([1.0], 0)),
        (exponential([4.0, 4.0], 3), exponential([4.0], 0)),
        (exponential([4.0], 0), exponential([4.0, 4.0], 0)),
    ],
    ids=["fewer-in-a-bucket", "other-bounds", "other-buckets", "finer", "fewer"],
)
def test_what_does_not_hold_the_values_of_before_is_another_count(
    whole: Distribution, before: Distribution
) -> None:
    """A running distribution that lost values, or that states them otherwise, began anew."""
    assert whole.minus(before) is None


def test_extreme_buckets_have_finite_estimates() -> None:
    """Buckets beyond all numbers end at the greatest ones."""
    for scale in (-10, 0, 20):
        for number in (-(1 << 31), (1 << 31) - 1):
            shape = Exponential(scale=scale, zero=0, positive={number: 1}, negative={})
            value = Distribution(count=1, shape=shape).quantile(0.5)
            assert value is not None
            assert math.isfinite(value)


def test_more_buckets_than_may_be_meet_at_a_coarser_scale() -> None:
    """Two distributions that are far apart are still one, with fewer buckets, or without any."""
    near, far = (
        Exponential(scale=5, zero=0, positive=dict.fromkeys(range(first, first + 3000), 1), negative={})
        for first in (0, 100_000)
    )
    both = together([Distribution(count=3000, shape=near), Distribution(count=3000, shape=far)])

    assert isinstance(both.shape, Exponential)
    assert both.shape.scale == 4
    assert sum(both.shape.positive.values()) == both.count == 6000

    sparse, other = (
        Exponential(scale=0, zero=0, positive={number << 12: 1 for number in numbers}, negative={})
        for numbers in (range(3000), range(3000, 6000))
    )
    parts = [Distribution(count=3000, shape=shape) for shape in (sparse, other)]
    assert together(parts).shape is None
