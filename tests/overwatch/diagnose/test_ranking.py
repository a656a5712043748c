"""The order of envs is calm under jitter and prompt under faults."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from overwatch.diagnose.assess import RELEASE_NS, Ranked, rank
from overwatch.state.arrays import Floats

TICK = 100_000_000
START = 10 * TICK
SCORES = arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 12, width=32))


def _first(scores: Floats) -> Ranked:
    return rank(scores, Ranked(), START)


@given(SCORES)
def test_the_order_is_a_permutation_worst_first(scores: Floats) -> None:
    """Every row is there once, and a first ranking is by score."""
    ranked = _first(scores)

    assert sorted(ranked.order.tolist()) == list(range(scores.size))
    assert (np.diff(scores[ranked.order]) <= 0).all()
    np.testing.assert_array_equal(ranked.held, scores)


@given(SCORES)
def test_the_healed_fall_behind_after_two_seconds(scores: Floats) -> None:
    """A score of exactly 0 counts, however small the step down; not before it has lasted."""
    ranked = rank(np.zeros_like(scores), _first(scores), START + TICK)
    waiting = rank(np.zeros_like(scores), ranked, START + RELEASE_NS)
    healed = rank(np.zeros_like(scores), waiting, START + TICK + RELEASE_NS)

    np.testing.assert_array_equal(waiting.held, scores)
    assert not healed.held.any()


def test_an_env_goes_down_to_its_highest_score_meanwhile() -> None:
    """A score that flickers between two levels is the higher one of both."""
    ranked = _first(np.array([9.0, 3.0]))
    for tick in range(1, 60):
        ranked = rank(np.array([4.0 if tick % 2 else 1.0, 3.0]), ranked, START + tick * TICK)

    assert ranked.held.tolist() == [4.0, 3.0]


def test_new_envs_join_at_the_end() -> None:
    """Rows that appear later are ranked with the rest and disturb nobody."""
    ranked = _first(np.array([1.0, 3.0]))

    assert rank(np.array([1.0, 3.0, 0.0]), ranked, START + TICK).order.tolist() == [1, 0, 2]
