"""Slopes beside other columns, and how sure they are."""

import numpy as np
import pytest

from overwatch.diagnose.hacking import CERTAIN, fit
from tests.overwatch.diagnose.paid import noise


def test_a_slope_is_that_of_ordinary_least_squares() -> None:
    """NumPy's own solver agrees, for columns of any scale."""
    dice = np.random.default_rng(4)
    x, other = dice.normal(size=50), 1e6 * dice.normal(size=50)
    y = 3 * x - 2e-6 * other + dice.normal(size=50)
    known = np.linalg.lstsq(np.column_stack([np.ones(50), other, x]), y, rcond=None)[0]

    found = fit(x.tolist(), y.tolist(), [other.tolist()])

    assert found is not None
    assert found.slope == pytest.approx(known[2])
    assert found.scatter == pytest.approx(1.0, abs=0.3)


def test_what_never_differs_has_no_slope() -> None:
    """Nor what follows from the other columns, nor too few values; an exact line is as sure as can be."""
    times = [float(n) for n in range(40)]

    assert fit(times, [5.0] * 40) is None
    assert fit([1.0] * 40, times) is None
    assert fit(times, times, [[2 * at + 1 for at in times]]) is None
    assert fit(times[:2], times[:2]) is None
    exact = fit(times, [3 - 2 * at for at in times])
    assert exact is not None
    assert exact.sure == -CERTAIN


@pytest.mark.parametrize(("alike", "most"), [(0.0, 0.02), (0.5, 0.03), (0.9, 0.06)])
def test_noise_has_a_sure_slope_no_more_often_than_chance_allows(alike: float, most: float) -> None:
    """Three standard errors in one of 370 for independent values; echoes make the error grow."""
    times = [float(n) for n in range(64)]
    fits = [fit(times, noise(64, seed, alike).tolist()) for seed in range(200)]

    assert sum(found is None or abs(found.sure) > 3 for found in fits) / 200 <= most


def test_a_draw_that_moves_all_hides_no_slope() -> None:
    """Its share is taken out: the slope is sure beside it, and is not without it."""
    dice = np.random.default_rng(2)
    draw = dice.uniform(-50, 50, 64)
    y = 0.2 * np.arange(64) + draw + 0.5 * dice.normal(size=64)
    times = [float(n) for n in range(64)]
    beside, alone = fit(times, y.tolist(), [draw.tolist()]), fit(times, y.tolist())

    assert beside is not None
    assert alone is not None
    assert beside.sure > 20
    assert alone.sure < 4
