"""Advantages against the definition, and the two ways an episode may end."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch_rl.algorithms.returns import ReturnsConfig, advantages, following_values
from overwatch_rl.types import Observation, Rollout

ENVS = 3
PLACES = 7


def rollout(seed: int, *, steps: int = 7) -> tuple[Rollout, torch.Tensor, torch.Tensor]:
    """Random numbers with ends of both kinds, the last values, and the values of final observations.

    An env truncates up to `steps` times; each has a place of its own.
    """
    made = torch.Generator().manual_seed(seed)
    shape = (steps, ENVS)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=made, dtype=torch.float64)

    ends = torch.rand(shape, generator=made)
    truncated = ends > 0.6
    final_at = torch.full((PLACES, ENVS), steps)
    for env in range(ENVS):
        for place, step in enumerate(truncated[:, env].nonzero().flatten().tolist()):
            final_at[place, env] = step
    found = Rollout(
        features=normal(*shape, 2), mask=None,
        actions=torch.zeros(*shape, 1, dtype=torch.int64), log_probs=normal(*shape, 1),
        values=normal(*shape), rewards=normal(*shape), terminated=ends < 0.2, truncated=truncated,
        final=normal(PLACES, ENVS, 2), final_at=final_at,
        last=Observation(features=normal(ENVS, 2)), columns={},
    )  # fmt: skip
    return found, normal(ENVS), normal(PLACES, ENVS)


def naive(
    data: Rollout, last: torch.Tensor, final: torch.Tensor, config: ReturnsConfig, env: int
) -> list[float]:
    """The definition: a weighted sum of one-step errors up to the end of the episode or of the rollout."""
    errors, ends, places = [], [], iter(final[:, env].tolist())
    steps = len(data.rewards)
    for step in range(steps):
        if data.terminated[step, env]:
            following = 0.0
        elif data.truncated[step, env]:
            following = next(places)
        else:
            following = float(data.values[step + 1, env] if step + 1 < steps else last[env])
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
@settings(deadline=None)
def test_advantages_equal_the_definition(seed: int, gamma: float, lam: float) -> None:
    """For random data with terminations and several truncations an env."""
    config = ReturnsConfig(gamma=gamma, lam=lam)
    data, last, final = rollout(seed)
    found = advantages(data, following_values(data, last, final), config)

    expected = torch.tensor([naive(data, last, final, config, env) for env in range(ENVS)]).T
    assert torch.allclose(found, expected.double(), atol=1e-6)


@given(seed=st.integers(0, 1000), lam=st.floats(0, 1), trust=st.floats(0, 1))
@settings(deadline=None)
def test_trust_shortens_estimates_as_a_smaller_lambda_does(seed: int, lam: float, trust: float) -> None:
    """So stale data and fresh data are not estimated alike at one lambda: their traces differ in length."""
    data, last, final = rollout(seed)
    following = following_values(data, last, final)
    stale = advantages(data, following, ReturnsConfig(lam=lam), torch.full_like(data.rewards, trust))
    fresh = advantages(data, following, ReturnsConfig(lam=lam * trust))

    assert torch.allclose(stale, fresh, atol=1e-9)


def test_a_constant_reward_without_ends_has_the_geometric_sum() -> None:
    """With values of nought and lam 1 the first advantage is (1 - g^T) / (1 - g)."""
    data, _, _ = rollout(0)
    plain = Rollout(
        features=data.features, mask=None, actions=data.actions, log_probs=data.log_probs,
        values=torch.zeros(7, ENVS, dtype=torch.float64), rewards=torch.ones(7, ENVS, dtype=torch.float64),
        terminated=torch.zeros(7, ENVS, dtype=torch.bool), truncated=torch.zeros(7, ENVS, dtype=torch.bool),
        final=None, final_at=None, last=data.last, columns={},
    )  # fmt: skip
    following = following_values(plain, torch.zeros(ENVS, dtype=torch.float64), None)
    found = advantages(plain, following, ReturnsConfig(gamma=0.9, lam=1.0))

    assert found[0].tolist() == pytest.approx([(1 - 0.9**7) / 0.1] * ENVS)


def test_a_step_that_is_both_terminated_and_truncated_has_no_value_beyond() -> None:
    """The task's own end wins."""
    data, last, final = rollout(1)
    both = torch.ones_like(data.terminated)
    found = following_values(
        Rollout(**{**{f: getattr(data, f) for f in data.__slots__}, "terminated": both, "truncated": both}),
        last,
        final,
    )

    assert not bool(found.any())


@pytest.mark.parametrize("name", ["gamma", "lam"])
def test_weights_outside_of_0_to_1_are_refused(name: str) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=rf"{name} is 1.5; use a number from 0 to 1"):
        ReturnsConfig(**{name: 1.5})
