"""Numbers about batches, episodes and gradients: against numpy, and at the edges."""

import math

import numpy as np
import pytest
import torch

from overwatch_rl.algorithms import common
from overwatch_rl.training import diagnostics
from overwatch_rl.undefined import UNDEFINED


def test_explained_variance_has_its_three_landmarks() -> None:
    """Perfect is 1, a constant guess is 0, and where returns do not vary there is none."""
    returns = torch.tensor([0.0, 1.0, 2.0])

    assert float(common.explained_variance(returns, returns)) == 1.0
    assert float(common.explained_variance(torch.full((3,), 5.0), returns)) == pytest.approx(0.0)
    assert float(common.explained_variance(returns, torch.full((3,), 0.1))) == UNDEFINED


@pytest.mark.parametrize("level", [0.0, 0.1, 1000.1, -3e5])
def test_numbers_that_are_equal_do_not_vary_by_rounding(level: float) -> None:
    """A share of a variance of nought is undefined at any level."""
    equal, values = torch.full((1001,), level), torch.randn(1001)
    found = common.of_values(values, equal, values) | common.of_advantages(equal)

    for name in (
        "explained_variance", "value_nrmse", "value_correlation", "advantage_skewness", "advantage_kurtosis",
    ):  # fmt: skip
        assert float(found[name]) == UNDEFINED, name


@pytest.mark.parametrize("count", [1, 2, 3, 10, 57])
def test_quantiles_of_episodes_are_numpys(count: int) -> None:
    """Interpolated between neighbours, over the episodes that ended alone."""
    draws = torch.Generator().manual_seed(count)
    returns, ended = torch.randn(6, 10, generator=draws).double(), torch.zeros(60, dtype=torch.bool)
    ended[torch.randperm(60, generator=draws)[:count]] = True
    ended = ended.view(6, 10)
    found = diagnostics.of_episodes(returns, ended, ended)
    picked = returns[ended].numpy()

    for name, share in (("return_p10", 0.1), ("return_p50", 0.5), ("return_p90", 0.9)):
        assert float(found[name]) == pytest.approx(float(np.quantile(picked, share)), abs=1e-6)
    assert float(found["return"]) == pytest.approx(float(picked.mean()), abs=1e-6)
    assert float(found["return_variance"]) == pytest.approx(float(picked.var()), abs=1e-6)
    assert float(found["timeout_rate"]) == 1.0


def test_without_an_ended_episode_everything_about_episodes_is_undefined() -> None:
    """Not nought."""
    none = torch.zeros(3, 4, dtype=torch.bool)
    found = diagnostics.of_episodes(torch.ones(3, 4), none, none)

    assert {float(value) for value in found.values()} == {UNDEFINED}


def test_an_episode_whose_return_is_not_known_is_left_out_and_a_computed_nan_is_not() -> None:
    """A fact names the reward; what a computation gave by fault stays in its row."""
    returns, ended = torch.tensor([[1.0, math.nan]]), torch.ones(1, 2, dtype=torch.bool)
    found = diagnostics.of_episodes(returns, ended, ended) | common.of_values(
        returns[0], returns[0], returns[0]
    )

    assert float(found["return"]) == 1.0
    assert math.isnan(found["value_nrmse"])


def test_gradients_that_are_not_finite_are_counted_by_kind_in_minibatches_that_ran() -> None:
    """Two NaN and one infinite; those of a minibatch that was skipped are not counted."""
    layers = torch.tensor([[1.0, math.nan], [math.nan, math.inf], [math.nan, math.nan]])
    found = common.of_gradients(layers.norm(dim=1), layers, torch.tensor([1.0, 1.0, 0.0]))

    assert (int(found["grad_nan"]), int(found["grad_inf"])) == (2, 1)


def test_layers_are_dead_or_exploding_by_their_typical_gradient() -> None:
    """The mean over minibatches decides."""
    layers = torch.tensor([[0.0, 150.0, 1.0], [1e-7, 90.0, 1.0]])
    found = common.of_gradients(torch.tensor([3.0, 5.0]), layers, torch.ones(2))

    assert (int(found["layers_dead"]), int(found["layers_exploding"])) == (1, 1)
    assert (float(found["grad_norm"]), float(found["grad_variation"])) == (4.0, 0.25)
