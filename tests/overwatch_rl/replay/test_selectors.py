"""The sum tree: sums, draws, and how much of it a draw reads."""

import math
from typing import Any

import numpy as np
import pytest

from overwatch_rl.replay.selectors import MOST_ROOTS, WIDTH, Priorities, SumTree


class Counted(np.ndarray[Any, Any]):
    """Counts the numbers that are taken out of it."""

    read = 0

    def take(self, *given: Any, **named: Any) -> Any:
        """As an array's own."""
        found = np.asarray(self).take(*given, **named)
        Counted.read += found.size
        return found


def counted_draw(size: int, draws: int) -> int:
    """Numbers that a draw reads below the highest sums, of a tree with such a size."""
    tree = SumTree(size)
    tree.fill(0, size, 1.0)
    tree.draw(1, np.random.default_rng(0))
    tree.levels = [level.view(Counted) for level in tree.levels]
    Counted.read = 0
    tree.draw(draws, np.random.default_rng(1))
    return Counted.read


def test_a_draw_reads_a_row_of_each_level() -> None:
    """The numbers read grow with the logarithm of the size: one row of 16 for each further factor of 16."""
    for size in (10, 1 << 10, 1 << 14, 1 << 18, 1 << 22):
        levels = max(1, math.ceil(math.log(size / MOST_ROOTS, WIDTH)))
        assert counted_draw(size, draws=64) == 64 * WIDTH * levels


@pytest.mark.parametrize("size", [1, 15, 16, 17, 5_000, 70_000])
def test_sums_and_draws_follow_what_was_set(size: int) -> None:
    """After sparse and whole changes alike, the total is the sum and only slots with a number are drawn."""
    random = np.random.default_rng(size)
    tree, plain = SumTree(size), np.zeros(size)
    for round_ in range(6):
        slots = random.integers(size, size=max(1, size // 7 if round_ % 2 else 3))
        values = random.exponential(size=len(slots)) * (random.random(len(slots)) < 0.7)
        tree.put(slots, values)
        for slot, value in zip(slots, values, strict=True):
            plain[slot] = value
        begin = int(random.integers(size))
        end = int(random.integers(begin, size)) + 1
        tree.fill(begin, end, 0.5 * (round_ % 3))
        plain[begin:end] = 0.5 * (round_ % 3)
        assert tree.total() == pytest.approx(plain.sum())
        if plain.sum():
            assert (plain[tree.draw(100, random)] > 0.0).all()


def test_a_slot_without_a_share_is_never_drawn_where_rounding_would() -> None:
    """Sums of 0.1 are not exact; the slots after the last number stay out."""
    tree = SumTree(64)
    tree.put(np.arange(10), np.full(10, 0.1))
    assert tree.draw(100_000, np.random.default_rng(5)).max() == 9


@pytest.mark.parametrize(("name", "value"), [("alpha", -0.1), ("alpha", 1.1), ("epsilon", 0.0)])
def test_settings_out_of_bounds_are_named(name: str, value: float) -> None:
    """The value and the bounds."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use"):
        Priorities(**{name: value})
