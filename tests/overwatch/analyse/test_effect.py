"""Effect sizes: known values, and how often noise is called a difference."""

import math

import numpy as np
import pytest

from overwatch.analyse.effect import cliffs_delta, effect, hedges_g, noise, worth


def _wander(dice: np.random.Generator, n: int, alike: float) -> np.ndarray:
    """Noise in which each value is like the one before."""
    values = np.zeros(n)
    for place in range(1, n):
        values[place] = alike * values[place - 1] + dice.normal()
    return values


def test_known_values() -> None:
    """Delta by counting pairs; g as in Hedges (1981): 2 pooled deviations, times 1 - 3/(4·8 - 1)."""
    a, b = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0])

    assert cliffs_delta(a, b) == pytest.approx(5 / 9)
    assert cliffs_delta(b, a) == pytest.approx(-5 / 9)
    five = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert hedges_g(five, five + 2 * math.sqrt(2.5)) == pytest.approx(2 * (1 - 3 / 31))
    assert hedges_g(np.ones(3), np.ones(3)) is None


def test_values_that_follow_one_another_are_worth_fewer() -> None:
    """By the theory of a first-order process, (1 - r) / (1 + r) of them; a trend alone costs nothing."""
    dice = np.random.default_rng(1)
    white = dice.normal(size=2000)

    assert worth(white) == pytest.approx(2000, rel=0.15)
    assert worth(_wander(dice, 2000, 0.8)) == pytest.approx(2000 * 0.2 / 1.8, rel=0.35)
    assert worth(white + np.arange(2000)) == pytest.approx(worth(white), rel=0.01)
    assert worth(np.full(50, 3.3)) == 1.0


def test_noise_does_not_see_the_way_that_values_go() -> None:
    """Nor single spikes."""
    values = np.random.default_rng(2).normal(scale=0.5, size=2000)

    assert noise(values + 3 * np.arange(2000)) == pytest.approx(0.5, rel=0.1)
    values[::200] += 100
    assert noise(values) == pytest.approx(0.5, rel=0.15)


@pytest.mark.parametrize("n", [25, 60])
@pytest.mark.parametrize("alike", [0.0, 0.3, 0.6])
def test_noise_is_seldom_called_a_difference(n: int, alike: float) -> None:
    """Two stretches of one process get a verdict of better or worse in at most 2 of 100 pairs."""
    dice = np.random.default_rng(3)
    reported = [effect(_wander(dice, n, alike), _wander(dice, n, alike), "up").verdict for _ in range(200)]

    assert sum(word in ("better", "worse") for word in reported) <= 4


def test_a_difference_is_found() -> None:
    """Of one and a half deviations, nearly always; the sign by which way is good."""
    dice = np.random.default_rng(4)
    pairs = [(dice.normal(size=50), dice.normal(size=50) + 1.5) for _ in range(50)]

    assert sum(effect(a, b, "up").verdict == "better" for a, b in pairs) >= 49
    assert effect(*pairs[0], "down").verdict == "worse"
    assert effect(*pairs[0], None).verdict == "higher"


def test_too_little_gets_no_verdict() -> None:
    """Few values; values that follow one another so much that they are few; none that is finite."""
    dice = np.random.default_rng(5)
    few = effect(dice.normal(size=19), dice.normal(size=50) + 9, "up")
    slow = effect(np.sin(np.arange(60) / 20), np.sin(np.arange(60) / 20) + 1.1, "up")
    nothing = effect(np.full(50, math.nan), dice.normal(size=50), "up")

    assert [one.verdict for one in (few, slow, nothing)] == ["no verdict"] * 3
    assert [str(one.why).split(",")[0] for one in (few, nothing)] == ["19 values", "0 values"]
    assert "are worth" in str(slow.why)


def test_all_of_one_beyond_all_of_the_other_after_they_parted_is_enough() -> None:
    """However few independent values there are."""
    a = np.sin(np.arange(60) / 20)

    assert effect(a, a + 3, "up", parted=True).verdict == "better"


def test_the_same_numbers_are_the_same() -> None:
    """Even where they follow one another."""
    a = np.sin(np.arange(60) / 20)

    assert effect(a, a.copy(), "up").verdict == "same"
