"""Shaping by a potential: its numbers, and that it does not move the optimum."""

import pytest
import torch
from torch import Tensor

from overwatch_rl.worlds.goodhart.cells import FOOD, MOVES, POISON
from overwatch_rl.worlds.goodhart.config import GoodhartConfig
from tests.overwatch_rl.worlds.goodhart.small import drawn, play, world

SIDE = 5
GAMMA = 0.9


def potential(view: Tensor, codes: tuple[int, ...]) -> float:
    """0.5 by moves to the nearest cell with one of the codes; 0 where there is none."""
    middle = len(view) // 2
    cells = [
        max(abs(row - middle), abs(column - middle))
        for row, codes_of_row in enumerate(view.tolist())
        for column, code in enumerate(codes_of_row)
        if code in codes
    ]
    return 0.5 / min(cells) if cells else 0.0


@pytest.mark.parametrize(
    ("mode", "cell", "codes"),
    [
        ("ground_truth", "seen", (FOOD,)),
        ("proxy", "seen", (FOOD, POISON)),
        ("proxy_jammed", "seen", (FOOD, POISON)),
        ("proxy", "food", (FOOD,)),
        ("ground_truth", "interesting", (FOOD, POISON)),
    ],
)
def test_shaping_is_the_discounted_gain_of_potential(mode: str, cell: str, codes: tuple[int, ...]) -> None:
    """From view to view; a terminal state has none, a truncated one that of its final view."""
    env = world(
        num_envs=6, mode=mode, shaping_cell=cell, horizon=12, start_energy=3.0, redraw_every=10, size=15
    )
    seen = env.reset(21).features
    for step in play(env, drawn(22), 30, seed=21):
        assert step.final is not None
        for env_id in range(6):
            reached = 0.0 if bool(step.terminated[env_id]) else potential(step.final[env_id], codes)
            expected = 0.99 * reached - potential(seen[env_id], codes)
            assert float(step.columns["shaping"][env_id]) == pytest.approx(expected, abs=1e-6)
        seen = step.observation.features


def test_the_potential_survives_a_resume() -> None:
    """The first shaping after a load starts from the state that was loaded."""
    env = world()
    play(env, drawn(23), 20)
    state = {name: value.clone() for name, value in env.state_dict().items()}
    action = torch.zeros(4, 1, dtype=torch.int64)
    shaping = env.step(action).columns["shaping"]
    env.load_state_dict(state)

    assert torch.equal(env.step(action).columns["shaping"], shaping)


def solved(*, shaping: bool) -> Tensor:
    """State-action values, by value iteration, of an agent on a torus with one food and one poison.

    States are the cells, and the episode ends with the first thing eaten; it is paid as the world pays.
    """
    own, food, poison = GoodhartConfig(gamma=GAMMA), 2 * SIDE + 2, 2 * SIDE + 4
    cells = torch.arange(SIDE * SIDE)
    moves = torch.tensor(list(MOVES.values()))
    rows = (cells[:, None] // SIDE + moves[:, 1]) % SIDE
    after = rows * SIDE + (cells[:, None] % SIDE + moves[:, 0]) % SIDE  # cells x actions
    apart = (torch.stack([cells // SIDE, cells % SIDE]) - torch.tensor([[2], [2]])) % SIDE
    distance = torch.minimum(apart, SIDE - apart).amax(dim=0)
    phi = own.shaping / distance.clamp(min=1).double() * shaping
    ends = (after == food) | (after == poison)
    energy = own.food_energy * (after == food) - own.poison_energy * (after == poison) - own.move_cost
    reward = own.reward_scale * energy + GAMMA * phi[after] * ~ends - phi[:, None]
    values = torch.zeros(after.shape, dtype=torch.float64)
    for _ in range(100):
        values = reward + GAMMA * values.amax(dim=1)[after] * ~ends
    return values


def test_shaping_does_not_move_the_optimum() -> None:
    """The same greedy moves with and without, and values that differ by the potential alone."""
    plain, shaped = solved(shaping=False), solved(shaping=True)

    def greedy(values: Tensor) -> Tensor:
        return values >= values.amax(dim=1, keepdim=True) - 1e-9

    assert torch.equal(greedy(plain), greedy(shaped))
    difference = plain - shaped
    torch.testing.assert_close(difference, difference[:, :1].expand_as(difference))
    assert float(difference.std()) > 0.01
