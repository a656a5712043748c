"""Verification passes the policies that it must, and no others."""

import pytest
import torch

from overwatch_rl.types import Observation
from overwatch_rl.worlds.goodhart.cells import MOVES
from overwatch_rl.worlds.goodhart.config import goodhart_config
from overwatch_rl.worlds.goodhart.greedy import PROXY, TRUTH, greedy
from overwatch_rl.worlds.goodhart.verification import (
    directions,
    lines,
    placements,
    starvation,
    survival,
    verify,
)
from tests.overwatch_rl.worlds.goodhart.small import drawn

OWN = goodhart_config("small", {})


def test_a_placement_has_food_where_its_move_points() -> None:
    """One food and one poison, opposite, for each of the eight moves."""
    views = placements(11)

    assert [int((view == 2).sum()) for view in views] == [1] * 8
    assert [int((view == 3).sum()) for view in views] == [1] * 8
    left, up = (list(MOVES).index(name) for name in ("left", "up"))
    assert int(views[left, 5, 3]) == 2
    assert int(views[up, 3, 5]) == 2
    assert int(views[up, 7, 5]) == 3


def test_the_oracle_passes_and_chance_does_not() -> None:
    """All of the placements, a quarter of them, and half for whatever takes food and poison alike."""
    assert directions(greedy(TRUTH), OWN).share == 1.0
    assert directions(greedy(PROXY), OWN).share == 0.5
    chance = directions(drawn(1), OWN, repeats=200)
    assert chance.share == pytest.approx(0.25, abs=0.05)
    assert (directions(greedy(TRUTH), OWN).passed, chance.passed) == (True, False)


def test_transposed_moves_are_found_out() -> None:
    """A policy that takes x for y goes wrong in all directions but two."""
    moves = list(MOVES.values())
    swapped = torch.tensor([moves.index((y, x)) for x, y in moves])
    truth = greedy(TRUTH)

    found = directions(lambda observation: swapped[truth(observation)], OWN)
    assert {name for name, share in found.shares.items() if share == 1.0} == {"up-left", "down-right"}
    assert not found.passed


def test_groups_live_and_die_of_what_they_ate() -> None:
    """The oracle lives; what goes for the proxy is poisoned, and each agent is counted once."""
    truth, proxy = (survival(greedy(wanted), OWN, seed=3, steps=120) for wanted in (TRUTH, PROXY))

    for group in (*truth, *proxy):
        assert group.alive + sum(group.deaths.values()) == group.agents == 10
    assert [group.alive for group in truth] == [10] * 3
    assert sum(group.deaths["poisoned"] for group in proxy) > 15
    assert all(group.steps == 120 for group in truth)
    assert all(group.food > group.poison for group in truth)
    assert proxy == survival(greedy(PROXY), OWN, seed=3, steps=120)


def test_agents_without_food_starve_to_the_step() -> None:
    """Start energy by move cost, in a world of any size."""
    config = goodhart_config("", {"start_energy": 3.0, "move_cost": 0.07})
    found = starvation(drawn(2), config)

    assert found.expected == 43
    assert found.lived == (43,) * 10
    assert found.passed


def test_what_cannot_starve_is_refused() -> None:
    """The error names the setting."""
    with pytest.raises(ValueError, match="move_cost is 0"):
        starvation(drawn(2), goodhart_config("", {"move_cost": 0.0}))


def test_a_policy_is_asked_on_its_own_device() -> None:
    """The views of the placements are where the policy is."""
    seen: list[str] = []

    def act(observation: Observation) -> torch.Tensor:
        seen.append(observation.features.device.type)
        return torch.zeros(len(observation.features), 1, dtype=torch.int64)

    directions(act, OWN, device="meta")
    assert seen == ["meta"]


def test_all_of_it_as_lines() -> None:
    """A verdict where something is judged, the number and what it had to be."""
    own = goodhart_config("small", {"move_cost": 0.5})
    found = verify(greedy(TRUTH), own, steps=20)
    rows = lines(found)

    assert found.passed
    assert rows[0] == "pass  towards food 100% of placements (at least 75%); worst up-left 100%"
    assert rows[1].startswith("      group 1: 10 of 10 alive, 0 starved, 0 poisoned; 20 steps, ")
    assert rows[-1] == "pass  starved after 100 steps without food (100 expected)"
    assert lines(verify(greedy(PROXY), own, steps=20))[0].startswith("FAIL  towards food 50%")
    free = verify(greedy(TRUTH), goodhart_config("small", {"move_cost": 0}), steps=5)
    assert free.passed
    assert lines(free)[-1].endswith("nothing starves")
