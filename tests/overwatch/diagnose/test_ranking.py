"""The order of envs is calm under jitter and prompt under faults."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from overwatch.diagnose.ranking import MARGIN, rank
from overwatch.state.arrays import Floats

EMPTY = np.zeros(0), np.zeros(0, dtype=np.int64)
SCORES = arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 12, width=32))


@given(SCORES)
def test_the_order_is_a_permutation_worst_first(scores: Floats) -> None:
    """Every row is there once, and a first ranking is by score."""
    order, held = rank(scores, *EMPTY)

    assert sorted(order.tolist()) == list(range(scores.size))
    assert (np.diff(scores[order]) <= 0).all()
    np.testing.assert_array_equal(held, scores)


@given(SCORES, st.integers(0, 2**32 - 1))
def test_jitter_within_the_margin_moves_nobody(scores: Floats, seed: int) -> None:
    """Scores above 0 that wander by less than the margin keep the order."""
    scores = scores + 1
    order, held = rank(scores, *EMPTY)
    noise = np.random.default_rng(seed).uniform(-MARGIN, MARGIN, scores.size) * 0.99

    again, _ = rank(scores + noise, held, order)

    np.testing.assert_array_equal(again, order)


@given(SCORES, st.data())
def test_a_true_fault_is_first_at_once(scores: Floats, data: st.DataObject) -> None:
    """An env that jumps above all others leads at the very next tick."""
    order, held = rank(scores, *EMPTY)
    victim = data.draw(st.integers(0, scores.size - 1))
    scores = scores.copy()
    scores[victim] = 20.0

    again, _ = rank(scores, held, order)

    assert again[0] == victim


@given(SCORES)
def test_the_healed_fall_behind(scores: Floats) -> None:
    """A score of exactly 0 is believed at once, however small the step down."""
    order, held = rank(scores, *EMPTY)

    _, after = rank(np.zeros_like(scores), held, order)

    assert not after.any()


def test_new_envs_join_at_the_end() -> None:
    """Rows that appear later are ranked with the rest and disturb nobody."""
    order, held = rank(np.array([1.0, 3.0]), *EMPTY)

    again, _ = rank(np.array([1.0, 3.0, 0.0]), held, order)

    assert again.tolist() == [1, 0, 2]
