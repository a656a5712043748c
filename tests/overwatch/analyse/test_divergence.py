"""Where curves part: found where it was made, and seldom where nothing was."""

import numpy as np
import pytest

from overwatch.analyse.align import Aligned, aligned
from overwatch.analyse.curves import Curve
from overwatch.analyse.divergence import divergence
from overwatch.catalog import Scope


def _pair(a: np.ndarray, b: np.ndarray) -> Aligned:
    return Aligned(x=np.arange(len(a), dtype=np.float64), a=a, b=b)


def _curve(updates: list[float], values: list[float], pace: float = 1.0) -> Curve:
    curve = Curve(name="return", label="return", scope=Scope.POLICY)
    for update, value in zip(updates, values, strict=True):
        curve.add(value, update, update * pace, update * 100)
    return curve


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_noise_alone_seldom_parts(alike: float) -> None:
    """In at most 5 of 200 pairs of 200 updates, also where neighbours are alike."""
    dice = np.random.default_rng(6)

    def one() -> np.ndarray:
        values = dice.normal(size=200)
        for place in range(1, 200):
            values[place] += alike * values[place - 1]
        return values + np.linspace(0, 5, 200)

    parted = sum(divergence(_pair(one(), one())).parted is not None for _ in range(200))

    assert parted <= 5


def test_a_step_is_found_where_it_is() -> None:
    """Of eight deviations at 120 of 200: within a block."""
    dice = np.random.default_rng(7)
    for _ in range(20):
        a, b = dice.normal(size=200), dice.normal(size=200)
        b[120:] += 8
        found = divergence(_pair(a, b))
        assert found.parted is not None
        assert 115 <= found.parted[0] <= 122
        assert not found.from_start


def test_a_difference_from_the_start_is_called_so() -> None:
    """There is no place to look at."""
    dice = np.random.default_rng(8)
    found = divergence(_pair(dice.normal(size=100), dice.normal(size=100) + 20))

    assert found.from_start


def test_runs_that_are_the_same_to_the_bit_are_told_until_where() -> None:
    """NaN beside NaN is the same; all the same is identical."""
    a = np.arange(60.0)
    a[5] = np.nan
    b = a.copy()
    b[41] = np.nextafter(b[41], 100)

    assert divergence(_pair(a, b)).identical_until == 40
    assert divergence(_pair(a, b)).parted is None
    assert divergence(_pair(a, a.copy())).identical


def test_too_few_values_are_said() -> None:
    """None at all, too."""
    assert "it needs" in str(divergence(_pair(np.arange(10.0), np.arange(10.0) + 5)).why)
    assert "0 values" in str(divergence(_pair(np.zeros(0), np.zeros(0))).why)


def test_updates_are_paired_by_number() -> None:
    """What only one has is left out; after a restart from a checkpoint the later value counts."""
    a = _curve([1, 2, 3, 4, 3, 4, 5], [1, 2, 3, 4, 30, 40, 50])
    b = _curve([2, 3, 5, 6], [2, 3, 5, 6])

    pair = aligned(a, b, "update")

    assert pair.x.tolist() == [2, 3, 5]
    assert pair.a.tolist() == [2, 30, 50]
    assert pair.b.tolist() == [2, 3, 5]


def test_by_time_each_place_has_the_newest_value_by_then() -> None:
    """At the places of the sparser run, where both have begun and neither is over."""
    fast = _curve([1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60], pace=1.0)
    slow = _curve([1, 2, 3, 4], [1, 2, 3, 4], pace=2.5)

    pair = aligned(fast, slow, "time")

    assert pair.x.tolist() == [2.5, 5.0]
    assert pair.a.tolist() == [20, 50]
    assert pair.b.tolist() == [1, 2]
    assert len(aligned(fast, _curve([100], [1.0]), "time").x) == 0
