"""Statistics that give the same bits on every machine, in any order of the values."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.diagnose.robust import SMALL, median_of

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40)


@given(VALUES)
def test_a_median_is_that_of_the_library(values: list[float]) -> None:
    """Of any number of values."""
    assert median_of(np.array(values)) == pytest.approx(statistics.median(values))


@pytest.mark.parametrize("size", [SMALL - 1, SMALL, SMALL + 1, SMALL + 2])
def test_many_values_are_parted_as_few_are_sorted(size: int) -> None:
    """Either way is the same to the last bit."""
    values = np.random.default_rng(size).normal(size=size)
    ordered = np.sort(values)

    assert median_of(values) == (ordered[(size - 1) // 2] + ordered[size // 2]) / 2


@given(st.permutations([-0.0, 0.0, -0.0, 0.0, -0.0]))
def test_a_zero_has_one_sign(values: list[float]) -> None:
    """Whichever zero a machine sorts to the middle."""
    assert math.copysign(1.0, median_of(np.array(values))) == 1.0
