"""Returns and lengths are those that adding up turn by turn gives, however the turns are cut into blocks."""

import math
from collections.abc import Iterable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overwatch.adapters.episodes import FEW, Ended, Episodes, together
from overwatch.adapters.turns import Block

Rows = list[tuple[int, float, float]]


def _rows(ended: Iterable[Ended | None]) -> Rows:
    found = together([one for one in ended if one is not None])
    return [] if found is None else [tuple(row) for row in np.stack(found, axis=1).tolist()]


def _one_by_one(block: Block) -> Rows:
    """The definition."""
    returns, lengths, found = np.zeros(block.paid.shape[1]), np.zeros(block.paid.shape[1]), []
    for turn, paid in enumerate(block.paid):
        for env, earned in enumerate(paid):
            if block.counted is None or block.counted[turn, env]:
                returns[env] += earned
                lengths[env] += 1
                if block.over[turn, env]:
                    found.append((env, float(returns[env]), float(lengths[env])))
                    returns[env] = lengths[env] = 0
    return found


@given(
    turns=st.integers(1, 9), envs=st.sampled_from([1, 2, 3, FEW + 1]), seed=st.integers(0, 10_000),
    cut=st.integers(0, 9), is_whole=st.booleans(), has_nan=st.booleans(),
)  # fmt: skip
def test_blocks_add_up_to_what_single_turns_do(
    *, turns: int, envs: int, seed: int, cut: int, is_whole: bool, has_nan: bool
) -> None:
    """Also where a reward is not finite: its episode's return is not, and the next one's is."""
    random = np.random.default_rng(seed)
    paid = random.integers(-3, 4, (turns, envs)).astype(float)
    if has_nan:
        paid[random.integers(turns), random.integers(envs)] = math.nan
    counted = None if is_whole else random.random((turns, envs)) < 0.7
    block = Block(paid, random.random((turns, envs)) < 0.4, counted, None)
    episodes = Episodes(envs)
    parts = [part for part in (block.part(slice(cut)), block.part(slice(cut, None))) if len(part.paid)]

    np.testing.assert_equal(_rows(map(episodes.add, parts)), _one_by_one(block))


def test_what_is_stated_holds_unless_it_missed_steps() -> None:
    """A shaped reward is no return; a recorder that another env's reset cut short has lost a part."""
    stated = np.zeros((2, 2, 2))
    stated[:, 1] = [[50.0, 70.0], [9.0, 1.0]]
    block = Block(np.ones((2, 2)), np.array([[False, False], [True, True]]), None, stated)
    assert _rows([Episodes(2).add(block)]) == [(0, 50.0, 9.0), (1, 2.0, 2.0)]


def test_what_was_reset_before_its_end_is_forgotten() -> None:
    """The next episode begins at nothing."""
    episodes, no, yes = Episodes(2), np.array([[False, False]]), np.array([[True, True]])
    episodes.add(Block(np.full((1, 2), 5.0), no, None, None))
    episodes.forget([1])
    assert _rows([episodes.add(Block(np.ones((1, 2)), yes, None, None))]) == [(0, 6.0, 2.0), (1, 1.0, 1.0)]
