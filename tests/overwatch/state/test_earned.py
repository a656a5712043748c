"""Sums of episodes: the same bits however many envs are summed up together."""

import numpy as np

from overwatch.state.earned import RETURNS, Earned


def _summed(told: np.ndarray, together: int) -> bytes:
    rows = told.shape[0]
    earned = Earned()
    earned.resize(rows)
    done = np.full(rows, RETURNS, dtype=np.int64)
    for start in range(0, rows, together):
        place = np.arange(start, min(start + together, rows))
        earned.sum_up(place, told[place], done[place], done[place])
    return b"".join(array.tobytes() for array, _ in earned.arrays())


def test_envs_are_summed_up_to_the_same_bits_alone_and_all_at_once() -> None:
    """A live fold sums up the few whose episode just ended, a fold after a checkpoint all of them."""
    dice = np.random.default_rng(7)
    told = dice.standard_normal((700, RETURNS)) * 10.0 ** dice.uniform(-9, 9, (700, RETURNS))

    assert _summed(told, 1) == _summed(told, 60) == _summed(told, 700)
