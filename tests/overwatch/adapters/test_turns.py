"""Turns are copied as they come, and a block of them states what counted, what ended and what was stated."""

import numpy as np
import pytest

from overwatch.adapters.turns import MOST_CELLS, MOST_TURNS, Turns


def test_what_the_env_overwrites_stays_as_it_was() -> None:
    """Vectors give out one array at every step."""
    turns, paid, ends = Turns(2), np.array([1.0, 2.0]), np.array([True, False])
    turns.add(paid, ends, None, None)
    paid[:], ends[:] = 9.0, False
    turns.add(paid, ends, None, None)
    block = turns.take()

    assert block is not None
    assert block.paid.tolist() == [[1.0, 2.0], [9.0, 9.0]]
    assert block.over.tolist() == [[True, False], [False, False]]
    assert (block.counted, block.stated, turns.take()) == (None, None, None)


def test_rows_that_took_no_part_do_not_count_and_leave_nothing_behind() -> None:
    """Of the next block every row counts again."""
    turns = Turns(3)
    turns.add([5.0], [True], [1], None)
    first = turns.take()
    turns.add([1.0, 2.0, 3.0], None, None, None)
    second = turns.take()

    assert first is not None
    assert first.counted is not None
    assert (first.counted.tolist(), first.over.tolist()) == ([[False, True, False]],) * 2
    assert second is not None
    assert second.counted is None
    assert not second.over.any()


def test_the_turn_after_an_end_resets_across_blocks() -> None:
    """Until its env is reset by hand."""
    turns = Turns(2, resets_next=True)
    turns.add([1.0, 1.0], [True, True], None, None)
    turns.take()
    turns.begin([1])
    turns.add([0.0, 1.0], [False, True], None, None)
    turns.add([1.0, 0.0], [False, False], None, None)
    block = turns.take()

    assert block is not None
    assert block.counted is not None
    assert block.counted.tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(("num_envs", "most"), [(1, MOST_TURNS), (MOST_CELLS // 2, 2), (MOST_CELLS * 2, 1)])
def test_a_block_is_bounded(num_envs: int, most: int) -> None:
    """By turns, and by numbers in all."""
    turns = Turns(num_envs)
    assert [turns.add(0.0, None, None, None) for _ in range(most)] == [False] * (most - 1) + [True]
