"""Advantages against a naive reference, and the two ways an episode may end."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from overwatch_rl.algos.returns import ReturnsConfig, advantages, estimate

from overwatch_rl.types import Rollout


def rollout(seed: int, *, steps: int = 7, envs: int = 3) -> Rollout:
    """Random numbers, with ends of both kinds."""
    made = torch.Generator().manual_seed(seed)
    shape = (steps, envs)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=made, dtype=torch.float64)

    ends = torch.rand(shape, generator=made)
    return Rollout(
        features=normal(*shape, 2), mask=torch.ones(*shape, 4, dtype=torch.bool),
        actions=torch.zeros(*shape, 1, dtype=torch.int64), log_probs=normal(*shape, 1),
        values=normal(*shape), rewards=normal(*shape), terminated=ends < 0.2, truncated=ends > 0.8,
        final_values=torch.where(ends > 0.8, normal(*shape), 0.0), last_values=normal(envs),
    )  # fmt: skip


def naive(data: Rollout, config: ReturnsConfig, env: int) -> list[float]:
    """The definition: a weighted sum of one-step errors up to the end of the episode or of the rollout."""
    errors, ends = [], []
    steps = len(data.rewards)
    for step in range(steps):
        if data.terminated[step, env]:
            following = 0.0
        elif data.truncated[step, env]:
            following = float(data.final_values[step, env])
        else:
            following = float(data.values[step + 1, env] if step + 1 < steps else data.last_values[env])
        errors.append(
            float(data.rewards[step, env]) + config.gamma * following - float(data.values[step, env])
        )
        ends.append(bool(data.terminated[step, env] | data.truncated[step, env]))
    found = []
    for start in range(steps):
        total, weight = 0.0, 1.0
        for step in range(start, steps):
            total += weight * errors[step]
            weight *= config.gamma * config.lam
            if ends[step]:
                break
        found.append(total)
    return found


@given(seed=st.integers(0, 1000), gamma=st.floats(0, 1), lam=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_advantages_equal_the_definition(seed: int, gamma: float, lam: float) -> None:
    """For random data with terminations and truncations anywhere."""
    data, config = rollout(seed), ReturnsConfig(gamma=gamma, lam=lam)

    expected = torch.tensor([naive(data, config, env) for env in range(3)], dtype=torch.float64).T
    assert torch.allclose(advantages(data, config), expected, atol=1e-12)


def test_returns_are_advantages_plus_values_in_the_order_of_the_rollout() -> None:
    """The flat batch keeps rows together."""
    data = rollout(1)
    batch = estimate(data, ReturnsConfig())

    assert torch.equal(batch.returns, batch.advantages + batch.values)
    assert torch.equal(batch.features[4], data.features[1, 1])
    assert torch.equal(batch.values[4], data.values[1, 1])
    assert len(batch) == 21


@pytest.mark.parametrize("name", ["gamma", "lam"])
def test_weights_outside_of_0_to_1_are_refused(name: str) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=rf"{name} is 1.5; use a number from 0 to 1"):
        ReturnsConfig(**{name: 1.5})
