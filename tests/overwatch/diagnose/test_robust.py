"""Statistics that give the same bits on every machine, in any order of the values."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.diagnose.fleet import median_of, most_events

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40)


@given(VALUES)
def test_a_median_is_that_of_the_library(values: list[float]) -> None:
    """Of any number of values."""
    assert median_of(np.array(values)) == pytest.approx(statistics.median(values))


@pytest.mark.parametrize("size", [1, 2, 2_047, 2_048])
def test_values_are_parted_as_they_would_be_sorted(size: int) -> None:
    """A partition gives the same as a sort, to the last bit."""
    values = np.random.default_rng(size).normal(size=size)
    ordered = np.sort(values)

    assert median_of(values) == (ordered[(size - 1) // 2] + ordered[size // 2]) / 2


@given(st.permutations([-0.0, 0.0, -0.0, 0.0, -0.0]))
def test_a_zero_has_one_sign(values: list[float]) -> None:
    """Whichever zero a machine sorts to the middle."""
    assert math.copysign(1.0, median_of(np.array(values))) == 1.0


@pytest.mark.parametrize("mean", [0.05, 1.0, 20.0, 45.0])
def test_a_count_that_chance_does_not_reach_is_the_exact_one(mean: float) -> None:
    """The tail of so many events is rarer than one in a hundred fleets; that of one less is not."""
    least = most_events(mean, 100)
    tails = [
        1.0 - sum(math.exp(-mean) * mean**count / math.factorial(count) for count in range(bound))
        for bound in (least, least - 1)
    ]

    assert tails[0] <= 1e-4 < tails[1]
