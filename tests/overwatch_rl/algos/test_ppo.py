"""Losses and figures against a hand computation, and what an update must keep."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from overwatch_rl.algos.networks import ActorCritic
from overwatch_rl.algos.ppo import (
    PPOConfig,
    explained_variance,
    k3,
    loss,
    relative_entropy,
    update,
)

from overwatch_rl.types import EarlyStop, Observation, Stats
from tests.overwatch_rl.algos.small import batch, policy


def updated(config: PPOConfig, rows: int = 64) -> tuple[Stats, EarlyStop | None, ActorCritic]:
    """One update of a small policy on what it did itself."""
    made = policy()
    data = batch(made, rows)
    optimizer = torch.optim.Adam(made.parameters(), lr=config.learning_rate)
    stats, stop = update(made, optimizer, data, config, torch.Generator().manual_seed(0))
    return stats, stop, made


def test_the_loss_equals_a_hand_computation() -> None:
    """Row by row in plain Python: surrogate, value, entropy, KL by head and jointly, clip fraction."""
    data = batch(policy(0), 12)
    made, config = policy(1), PPOConfig(entropy_coef=0.01)
    with torch.no_grad():
        total, terms = loss(made, data, config)
        decision = made.judge(Observation(features=data.features, mask=data.mask), data.actions)
        values = made.value(data.features).tolist()
    mean = float(data.advantages.mean())
    spread = math.sqrt(sum((float(a) - mean) ** 2 for a in data.advantages) / 12)
    surrogate, squared, entropy, kls, joints, clipped = 0.0, 0.0, 0.0, [], [], 0
    for row in range(12):
        change = (decision.log_probs[row] - data.log_probs[row]).tolist()
        ratio = math.exp(sum(change))
        advantage = (float(data.advantages[row]) - mean) / (spread + 1e-8)
        surrogate -= min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage) / 12
        squared += (values[row] - float(data.returns[row])) ** 2 / 12
        entropy += float(decision.entropy[row].sum()) / 12
        used = (True, int(data.actions[row, 0]) == 1, int(data.actions[row, 0]) == 1)
        kls += [math.exp(c) - 1 - c for c, counts in zip(change, used, strict=True) if counts]
        joints.append(ratio - 1 - sum(change))
        clipped += abs(ratio - 1) > 0.2

    assert float(terms.policy) == pytest.approx(surrogate, abs=1e-5)
    assert float(terms.value) == pytest.approx(squared, rel=1e-5)
    assert float(total) == pytest.approx(surrogate + 0.5 * squared - 0.01 * entropy, abs=1e-5)
    assert float(terms.kl) == pytest.approx(sum(kls) / len(kls), rel=1e-4)
    assert float(terms.kl_joint) == pytest.approx(sum(joints) / 12, rel=1e-4)
    assert float(terms.clip_fraction) == pytest.approx(clipped / 12)
    assert float(terms.kl) > 0


@given(st.floats(-15, 15))
def test_k3_is_never_negative_and_zero_without_change(log_ratio: float) -> None:
    """The estimator's two properties."""
    assert float(k3(torch.tensor(log_ratio, dtype=torch.float64))) >= 0
    assert float(k3(torch.tensor(0.0))) == 0


def test_k3_of_a_vanished_action_is_finite() -> None:
    """The log-ratio is clamped on both sides."""
    assert bool(k3(torch.tensor([-1e9, 1e9])).isfinite().all())


def test_entropy_leaves_out_rows_without_a_choice_and_sums_over_heads() -> None:
    """Per head a mean over its own rows; then one share of two sums. Without any choice there is none."""
    entropy, possible, rows = torch.tensor([1.0, 0.5]), torch.tensor([2.0, 2.0]), torch.tensor([2.0, 1.0])

    assert float(relative_entropy(entropy, possible, rows)) == pytest.approx((0.5 + 0.5) / (1.0 + 2.0))
    assert math.isnan(float(relative_entropy(torch.zeros(2), torch.zeros(2), torch.zeros(2))))


def test_explained_variance_has_its_three_landmarks() -> None:
    """Perfect is 1, a constant guess is 0, and where returns do not vary there is none."""
    returns = torch.tensor([0.0, 1.0, 2.0])

    assert float(explained_variance(returns, returns)) == 1.0
    assert float(explained_variance(torch.full((3,), 5.0), returns)) == pytest.approx(0.0)
    assert math.isnan(float(explained_variance(returns, torch.full((3,), 0.1))))


def test_explained_variance_is_that_of_the_collecting_policy() -> None:
    """It does not depend on what the update does."""
    gentle, _, _ = updated(PPOConfig(learning_rate=1e-4))
    wild, _, _ = updated(PPOConfig(learning_rate=1e-1))

    assert torch.equal(gentle.explained_variance, wild.explained_variance)


def test_the_first_ratio_is_one() -> None:
    """Before the first step the policy that learns is the policy that collected."""
    assert float(updated(PPOConfig())[0].first_ratio_error) < 1e-5


def test_kl_grows_with_the_learning_rate() -> None:
    """A measured value: three rates, three divergences in order, and no minibatch above the worst."""
    runs = [updated(PPOConfig(learning_rate=rate))[0] for rate in (1e-4, 1e-3, 1e-2)]
    kls = [float(stats.kl_divergence) for stats in runs]

    assert kls == sorted(kls)
    assert kls[0] > 0
    assert len(set(kls)) == 3
    assert all(float(stats.kl_max) >= float(stats.kl_divergence) for stats in runs)


def test_kl_is_of_the_last_epoch() -> None:
    """With one epoch and one minibatch it is measured before the only step, so it is nought."""
    once, _, _ = updated(PPOConfig(epochs=1, minibatches=1))
    twice, _, _ = updated(PPOConfig(epochs=2, minibatches=1))

    assert float(once.kl_divergence) == pytest.approx(0.0, abs=1e-7)
    assert float(twice.kl_divergence) > 1e-6


def test_an_update_stops_early_when_told_to() -> None:
    """After the first epoch beyond 1.5 times the target; the fact says what was left out."""
    stats, stop, _ = updated(PPOConfig(learning_rate=3e-2, target_kl=1e-3))

    assert stop is not None
    assert stop.kl_divergence > 1.5e-3
    assert float(stats.kl_joint) == pytest.approx(stop.kl_divergence)
    assert (stop.target, stop.minibatches_skipped) == (1e-3, (4 - stop.epoch) * 4)


def test_an_update_runs_all_epochs_otherwise() -> None:
    """Below the target, and without one."""
    assert updated(PPOConfig(learning_rate=1e-4, target_kl=0.5))[1] is None
    assert updated(PPOConfig(learning_rate=3e-2))[1] is None


def test_gradients_are_told_before_clipping() -> None:
    """A tighter limit changes the step and not the first norm."""
    tight = updated(PPOConfig(epochs=1, minibatches=1, max_grad_norm=1e-3))[0]
    loose = updated(PPOConfig(epochs=1, minibatches=1, max_grad_norm=1e3))[0]

    assert torch.equal(tight.grad_norm, loose.grad_norm)
    assert float(tight.grad_norm) > 1e-3


def test_an_update_reads_nothing_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scalar leaves a tensor between its beginning and its end, and the statistics are tensors."""

    def refuse(tensor: torch.Tensor, *_: object) -> float:
        raise AssertionError(f"a value of shape {tuple(tensor.shape)} was read")

    made = policy()
    data = batch(made, 64)
    optimizer = torch.optim.SGD(made.parameters(), lr=1e-2)
    for name in ("item", "tolist", "__float__", "__bool__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    stats, _ = update(made, optimizer, data, PPOConfig(), torch.Generator().manual_seed(0))
    monkeypatch.undo()

    assert set(stats.read()) == {
        "kl_divergence", "kl_joint", "kl_max", "first_ratio_error", "entropy", "clip_fraction",
        "explained_variance", "grad_norm", "policy_loss", "value_loss",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("learning_rate", -1.0, "above 0"),
        ("clip", 0.0, "above 0"),
        ("epochs", 0, "1 or more"),
        ("minibatches", 0, "1 or more"),
        ("entropy_coef", -0.1, "0 or more"),
        ("target_kl", 0.0, "above 0"),
    ],
)
def test_impossible_settings_are_refused(name: str, value: float, fix: str) -> None:
    """The error names the value and the fix."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use .*{fix}"):
        PPOConfig(**{name: value})
