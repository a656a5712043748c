"""One agent, step by step."""

from itertools import pairwise

import torch

from overwatch_rl.worlds.goodhart.config import goodhart_config
from overwatch_rl.worlds.goodhart.greedy import PROXY, TRUTH, greedy
from overwatch_rl.worlds.goodhart.watching import lines, states_of, watch
from tests.overwatch_rl.worlds.goodhart.small import drawn


def test_moments_follow_one_agent_through_its_episodes() -> None:
    """Age begins anew after an end, what is eaten is counted, and energy is what it adds up to."""
    own = goodhart_config("small", {"horizon": 12, "start_energy": 6.0})
    moments = list(watch(greedy(PROXY), own, seed=5, steps=60))

    assert [moment.age for moment in moments[:3]] == [1, 2, 3]
    for before, moment in pairwise(moments):
        assert moment.age == (1 if before.end else before.age + 1)
        if not before.end:
            assert moment.food - before.food == (moment.ate == "food")
            assert moment.poison - before.poison == (moment.ate == "poison")
    for moment in moments:
        expected = 6.0 + 5 * moment.food - 3 * moment.poison - 0.05 * moment.age
        assert abs(moment.energy - expected) < 1e-3
        assert int(moment.view[5, 5]) == 0
    assert {"cut short", "poisoned"} <= {moment.end for moment in moments}


def test_the_same_seed_gives_the_same_moments() -> None:
    """And another seed others."""
    own = goodhart_config("small", {})
    first, again, other = (
        torch.stack([moment.view for moment in watch(greedy(TRUTH), own, seed=seed, steps=10)])
        for seed in (1, 1, 2)
    )

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_states_are_those_of_agents_that_have_moved() -> None:
    """One field each, by the seed; without a step they are those of the beginning."""
    own = goodhart_config("small", {})
    first, again, start = (
        states_of(greedy(TRUTH), own, states=3, steps=steps, seed=1).features for steps in (5, 5, 0)
    )

    assert first.shape == (3, own.view, own.view)
    assert torch.equal(first, again)
    assert not torch.equal(first, start)
    assert not torch.equal(first[0], first[1])


def test_a_moment_is_lines_for_a_terminal() -> None:
    """The view as the mode shows it, what became of the agent, and a legend."""
    own = goodhart_config("small", {"mode": "proxy", "horizon": 3})
    moments = list(watch(drawn(4), own, steps=3))
    rows = lines(moments[-1], own)

    assert len(rows) == 14
    assert rows[5].split()[5] == "@"
    assert "x" not in "".join(rows[:11])
    assert rows[11].startswith("step 3  ")
    assert rows[12].endswith("cut short")
    assert rows[13] == "@ agent  o interesting"
