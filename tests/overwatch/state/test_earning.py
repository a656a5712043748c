"""Returns that rise, that are at their best, and a run in trouble: by medians, never by one update."""

from collections.abc import Sequence

import numpy as np
import pytest

from overwatch.catalog import KL, NO_LIMITS
from overwatch.catalog.policy import RETURN
from overwatch.state.policy import Health, Series, at_its_best, health_of, new_series, observe, rises


def _series(values: Sequence[float]) -> Series:
    series = new_series()
    for value in values:
        observe(series, RETURN, NO_LIMITS, value)
    return series


def _noisy(level: Sequence[float], seed: int = 3) -> list[float]:
    """A return of few episodes: each update is off by a quarter of what was earned."""
    dice = np.random.default_rng(seed)
    return [float(value * (1 + 0.25 * dice.normal())) for value in level]


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_return_that_takes_off_rises(seed: int) -> None:
    """From twenty to two hundred in sixty updates."""
    assert rises(_series(_noisy([20 + 3 * n for n in range(60)], seed)))


@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_return_that_stays_does_not_rise(seed: int) -> None:
    """Nor does one that sinks, nor one of few updates."""
    assert not rises(_series(_noisy([100.0] * 64, seed)))
    assert not rises(_series(_noisy([200 - 2 * n for n in range(64)], seed)))
    assert not rises(_series(_noisy([100.0] * 12, seed)))


@pytest.mark.parametrize("after", [3, 8, 15, 25])
def test_a_return_that_rose_and_fell_does_not_rise(after: int) -> None:
    """Three updates after the fall what was gained before excuses nothing."""
    values = _noisy([20 + 3 * n for n in range(50)]) + _noisy([15.0] * after)

    assert not rises(_series(values))


def test_a_tiny_rise_is_none() -> None:
    """However steady it is."""
    assert not rises(_series([100 + 0.05 * n for n in range(64)]))


def test_a_run_is_well_by_its_returns_and_in_trouble_by_its_rows() -> None:
    """A critical row is no trouble while returns are at their best; without returns it is."""
    kl = new_series()
    for _ in range(5):
        observe(kl, KL, KL.limits, 0.2)
    best, fallen = _series([100.0] * 30), _series([100.0] * 20 + [10.0] * 10)

    assert at_its_best(best)
    assert not at_its_best(fallen)
    assert health_of({KL.name: kl, RETURN.name: best}) is Health.WELL
    assert health_of({KL.name: kl, RETURN.name: fallen}) is Health.TROUBLE
    assert health_of({KL.name: kl}) is Health.TROUBLE
    assert health_of({RETURN.name: fallen}) is Health.UNKNOWN
