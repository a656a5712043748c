"""PopArt keeps what the critic predicts; the normaliser's moments are those of all rows it has seen."""

import copy

import pytest
import torch
from torch import nn

from overwatch_rl.algorithms.common import Alone, moments
from overwatch_rl.algorithms.policy import Normaliser
from overwatch_rl.algorithms.ppo import PPO, PopArt, PPOConfig
from tests.overwatch_rl.algorithms.small import batch, copied, ppo, same


def critic() -> tuple[nn.Linear, torch.optim.Adam]:
    """A last layer and its optimiser, after three steps."""
    torch.manual_seed(0)
    layer = nn.Linear(6, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2, eps=0.0)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(16, 6)).square().mean().backward()
        optimizer.step()
    return layer, optimizer


def test_moments_of_adam_are_those_of_an_optimiser_that_had_seen_the_new_units() -> None:
    """After rescaling, the next step equals that of a critic whose gradients were always in those units."""
    inputs, targets = torch.randn(4, 16, 6), torch.randn(4, 16)

    def trained(scale: float, *, popart: bool) -> torch.Tensor:
        torch.manual_seed(1)
        layer = nn.Linear(6, 1)
        with torch.no_grad():
            layer.weight *= scale
            layer.bias *= scale
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.0, eps=0.0)
        for seen, aim in zip(inputs[:3], targets[:3], strict=True):
            optimizer.zero_grad()
            (layer(seen).squeeze(1) - scale * aim).square().mean().backward()
            optimizer.step()
        if popart:
            made = PopArt()
            made.square.fill_(1.0)
            returns = torch.tensor([-4.0, 4.0]).repeat(8)  # mean 0, deviation 4
            made.update(returns, layer, optimizer, Alone())
            scale = 1.0 / float(made.std())
        before = torch.cat([layer.weight.flatten(), layer.bias]).detach().clone()
        optimizer.param_groups[0]["lr"] = 1e-2
        optimizer.zero_grad()
        (layer(inputs[3]).squeeze(1) - scale * targets[3]).square().mean().backward()
        optimizer.step()
        return torch.cat([layer.weight.flatten(), layer.bias]).detach() - before

    assert torch.allclose(trained(1.0, popart=True), trained(0.25, popart=False), atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_returns_that_are_not_finite_move_nothing(bad: float) -> None:
    """Not one bit of weights, moments and statistics."""
    layer, optimizer = critic()
    made = PopArt()
    made.update(torch.randn(50) * 7, layer, optimizer, Alone())
    before = [copied(made.state_dict()), copied(layer.state_dict()), copy.deepcopy(optimizer.state_dict())]
    returns = torch.randn(50)
    returns[3] = bad
    made.update(returns, layer, optimizer, Alone())

    assert same(made.state_dict(), before[0])
    assert same(layer.state_dict(), before[1])
    for kept, now in zip(before[2]["state"].values(), optimizer.state_dict()["state"].values(), strict=True):
        assert same(kept, now)


@pytest.mark.parametrize("level", [0.0, 5.0, -1e6])
def test_returns_that_do_not_vary_do_not_make_the_scale_vanish(level: float) -> None:
    """The deviation has a floor, and outputs stay finite."""
    layer, optimizer = critic()
    made = PopArt()
    made.update(torch.full((50,), level), layer, optimizer, Alone())

    assert float(made.std()) >= 1e-4
    assert all(bool(value.isfinite().all()) for value in layer.state_dict().values())


def test_the_statistics_of_popart_are_in_the_state_and_the_stats() -> None:
    """Mean, square and count; reported by their names."""
    made = ppo(PPOConfig(popart=True))
    stats = made.update(batch(made))

    assert {"policy.popart.mean", "policy.popart.square", "policy.popart.count"} <= made.state_dict().keys()
    assert float(stats["popart_count"]) == 1.0
    assert float(stats["popart_mean"]) == float(made.popart.mean)
    assert float(stats["popart_std"]) == float(made.popart.std())


def test_a_normaliser_changes_nothing_before_its_first_rows_and_for_rows_that_are_not_finite() -> None:
    """Identity at first; a row with NaN or infinity moves nothing, and the rows beside it do."""
    made, seen = Normaliser((2,)), torch.tensor([[1.0, -2.0], [0.5, 4.0]])
    assert torch.equal(made(seen), seen)
    made.update(seen, Alone())
    before = copied(made.state_dict())
    made.update(torch.tensor([[1.0, float("nan")]]), Alone())

    assert same(made.state_dict(), before)
    good = torch.tensor([[3.0, 7.0], [2.0, 2.0]])
    made.update(torch.cat([good, torch.tensor([[float("inf"), 0.0]])]), Alone())
    whole = torch.cat([seen, good]).double()
    assert float(made.count) == 4.0
    assert torch.allclose(made.mean, whole.mean(dim=0), atol=1e-12)
    assert torch.allclose(made.variance, whole.var(dim=0, unbiased=False), atol=1e-12)


def test_a_number_that_does_not_vary_stays_finite() -> None:
    """A constant column of large numbers becomes zeros."""
    made, seen = Normaliser((1,)), torch.full((9, 1), 1e6)
    made.update(seen, Alone())

    assert torch.equal(made(seen), torch.zeros(9, 1))


def test_the_normaliser_is_frozen_within_an_update_and_moves_after_its_last_epoch() -> None:
    """The first ratio is one to rounding in the second update; rows far away are reported as such."""
    config = PPOConfig(normalise_observations=True)
    made: PPO = ppo(config)
    assert made.normaliser is not None
    data = batch(made)
    assert float(made.normaliser.count) == 0.0
    stats = made.update(data)
    assert float(made.normaliser.count) == 64.0
    assert float(stats["observation_drift"]) < 1.0
    assert float(made.update(batch(made, seed=1))["first_ratio_error"]) <= 1e-6

    far = made.normaliser.report(torch.full((10, 4), 50.0))
    assert float(far["observation_outliers"]) == 1.0
    assert float(far["observation_drift"]) == 10.0


class _Second:
    """Sums with what another rank brings: its rows, their sum, their squares around the mean of all."""

    size = 2

    def __init__(self, mine: torch.Tensor, other: torch.Tensor) -> None:
        mean = torch.cat([mine, other]).mean(dim=0)
        count = torch.tensor(float(len(other)), dtype=torch.float64)
        self._brought = iter([count, other.sum(dim=0), (other - mean).square().sum(dim=0)])

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values + next(self._brought)


@pytest.mark.parametrize("far", [0.0, 1e7])
def test_moments_over_ranks_weigh_each_row_the_same(far: float) -> None:
    """Ranks of different sizes have the moments of the joined rows, far from 0 too."""
    mine, theirs = far + torch.randn(10, 2).double() + 3, far + torch.randn(35, 2).double() * 5
    count, mean, variance = moments(mine, _Second(mine, theirs))  # type: ignore[arg-type]  # sums only
    whole = torch.cat([mine, theirs])

    assert float(count) == 45
    assert torch.allclose(mean, whole.mean(dim=0), rtol=1e-12)
    assert torch.allclose(variance, whole.var(dim=0, unbiased=False), rtol=1e-9)
