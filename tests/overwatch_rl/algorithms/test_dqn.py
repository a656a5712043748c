"""Double DQN: its targets, how it acts, what it refuses, and that it is kept whole."""

import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from overwatch.events import MetricInfo
from overwatch_rl.algorithms.common import Plan
from overwatch_rl.algorithms.dqn import DQN, DQNConfig, Transitions
from overwatch_rl.types import Box, Factored, Head, Observation, ObservationSpec, WorldSpec

SPEC = WorldSpec(
    task="toy",
    metric=MetricInfo(name="return", unit="{reward}", higher_is_better=True),
    reward_mode="env",
    observation=ObservationSpec(shape=(3,)),
    action=Factored(heads=(Head(name="move", labels=("left", "stay", "right")),), uses=((True,),) * 3),
)
CONFIG = DQNConfig(hidden=8, batch=4, target_every=2, epsilon=0.1, epsilon_steps=100, beta_steps=100)


def made(config: DQNConfig = CONFIG, *, seed: int = 0) -> DQN:
    """A small one."""
    return DQN(SPEC, config, seed=seed)


def batch(*, terminated: bool = False) -> Transitions:
    """Four transitions, the same at every call."""
    generator = torch.Generator().manual_seed(7)
    seen, after = (torch.randn(4, 3, generator=generator) for _ in range(2))
    return Transitions(
        observation=seen,
        actions=torch.tensor([0, 1, 2, 1]),
        reward=torch.tensor([1.0, -1.0, 0.5, 2.0]),
        next_observation=after,
        terminated=torch.full((4,), terminated),
        weights=torch.tensor([1.0, 0.5, 0.25, 1.0]),
    )


def test_the_target_is_the_slow_networks_value_of_the_fast_ones_choice() -> None:
    """By hand, where the two networks disagree; Huber's loss, weighted, and its mean."""
    dqn, given = made(), batch()
    with torch.no_grad():
        for parameter in dqn.target.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    chosen = [int(row.argmax()) for row in dqn.policy(given.next_observation)]
    slow = dqn.target(given.next_observation)
    assert chosen != slow.argmax(dim=1).tolist()
    expected, losses = [], []
    for row, action in enumerate(given.actions.tolist()):
        target = float(given.reward[row]) + 0.99 * float(slow[row, chosen[row]])
        error = target - float(dqn.policy(given.observation).detach()[row, action])
        expected.append(error)
        losses.append(0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5)
    learned = dqn.update(given)
    assert learned.errors.tolist() == pytest.approx(expected, rel=1e-4)
    mean = sum(w * one for w, one in zip(given.weights.tolist(), losses, strict=True)) / 4
    assert float(learned.loss) == pytest.approx(mean, rel=1e-4)


def test_a_step_that_terminated_has_no_value_after_it() -> None:
    """Its target is the reward, whatever is reported of the observation after it."""
    given = replace(batch(terminated=True), next_observation=torch.full((4, 3), 1e6))
    learned = made().update(given)
    torch.testing.assert_close(learned.values + learned.errors, given.reward)


def test_the_target_network_is_renewed_every_so_many_gradient_steps() -> None:
    """After one of two it lags, after the second it is the same."""
    dqn = made()
    dqn.update(batch())
    assert not _equal(dqn.policy, dqn.target)
    dqn.update(batch())
    assert _equal(dqn.policy, dqn.target)


def test_random_actions_become_fewer_with_every_step_acted_in() -> None:
    """All at first, then linearly fewer, in the end the share that stays; log-probabilities state it."""
    dqn, generator = made(), torch.Generator().manual_seed(0)
    seen = Observation(features=torch.zeros(50, 3))
    best = int(dqn.policy(seen.features[:1]).argmax())
    assert dqn.epsilon == 1.0
    dqn.act(seen, generator)
    assert dqn.epsilon == pytest.approx(0.55)
    shares = dqn.act(seen, generator)
    assert dqn.epsilon == pytest.approx(0.1)
    likely = [0.55 / 3 + (0.45 if action == best else 0.0) for action in shares.actions[:, 0].tolist()]
    assert shares.log_probs[:, 0].exp().tolist() == pytest.approx(likely)
    taken = torch.cat([dqn.act(seen, generator).actions for _ in range(80)])[:, 0]
    others = float((taken != best).float().mean())
    assert abs(others - 0.1 * 2 / 3) < 5 * (0.067 * 0.933 / 4000) ** 0.5
    greedy = dqn.act(seen, None, greedy=True)
    assert set(greedy.actions[:, 0].tolist()) == {best}
    assert greedy.log_probs.tolist() == [[0.0]] * 50


def test_importance_rises_to_one() -> None:
    """With the steps acted in."""
    dqn = made()
    assert dqn.beta == pytest.approx(0.4)
    dqn.act(Observation(features=torch.zeros(50, 3)), torch.Generator())
    assert dqn.beta == pytest.approx(0.7)
    dqn.act(Observation(features=torch.zeros(500, 3)), torch.Generator())
    assert dqn.beta == 1.0


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    """Weights and moments stay to the bit; the norm shows it."""
    dqn = made()
    dqn.update(batch())
    before = {name: value.clone() for name, value in dqn.state_dict().items() if name != "counts"}
    learned = dqn.update(replace(batch(), reward=torch.tensor([1.0, torch.nan, 0.0, 0.0])))
    assert not torch.isfinite(learned.norm)
    after = dqn.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items() if "target" not in name)


def test_what_was_kept_goes_on_to_the_bit() -> None:
    """Weights, slow copy, moments and counts: the next gradient step and action are the same."""
    first, second = made(), made(seed=9)
    generator = torch.Generator().manual_seed(1)
    first.act(Observation(features=torch.zeros(30, 3)), generator)
    for _ in range(3):
        first.update(batch())
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    assert (second.steps, second.gradient_steps) == (30, 3)
    learned = [one.update(batch()) for one in (first, second)]
    assert torch.equal(learned[0].errors, learned[1].errors)
    assert _equal(first.policy, second.policy)
    assert first.acting_keys() <= set(first.state_dict())
    with pytest.raises(ValueError, match="of another network"):
        made(replace(CONFIG, hidden=9)).load_state_dict(first.state_dict())


def test_it_learns_which_of_three_actions_pays() -> None:
    """A bandit of one step: after 200 gradient steps each value is its reward to 0.1."""
    dqn = made(replace(CONFIG, learning_rate=1e-2))
    actions = torch.tensor([0, 1, 2, 0])
    given = replace(
        batch(terminated=True), observation=torch.ones(4, 3), actions=actions, reward=actions.float(),
        weights=torch.ones(4),
    )  # fmt: skip
    for _ in range(200):
        dqn.update(given)
    values: Tensor = dqn.policy(torch.ones(1, 3))
    assert values[0].tolist() == pytest.approx([0.0, 1.0, 2.0], abs=0.1)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("learning_rate", 0.0, "learning_rate is 0.0; use a number above 0"),
        ("max_grad_norm", -1.0, "max_grad_norm is -1.0; use a number above 0"),
        ("batch", 0, "batch is 0; use 1 or more"),
        ("epsilon_steps", 0, "epsilon_steps is 0; use 1 or more"),
        ("gamma", 1.5, "gamma is 1.5; use 0 to 1"),
        ("alpha", -0.5, "alpha is -0.5; use 0 to 1"),
        ("first_at", 200_000, "first_at is 200000; use at most the capacity, 100000"),
    ],
)
def test_settings_out_of_bounds_are_named(name: str, value: float, words: str) -> None:
    """With the value and what it may be."""
    with pytest.raises(ValueError, match=re.escape(words)):
        replace(DQNConfig(), **{name: value})  # type: ignore[arg-type]  # each of its own kind


def test_what_it_cannot_do_is_refused() -> None:
    """Actions that are not one choice, masks, ranks, and plans of convolutions."""

    class Two:
        size = 2

    with pytest.raises(ValueError, match="toy needs another algorithm"):
        DQN(replace(SPEC, action=Box(low=(-1.0,), high=(1.0,))), CONFIG, seed=0)
    with pytest.raises(ValueError, match="leave torchrun out"):
        DQN(SPEC, CONFIG, seed=0, ranks=Two())  # type: ignore[arg-type]  # its size is all that is asked
    with pytest.raises(ValueError, match="no masks"):
        made().act(Observation(features=torch.zeros(1, 3), mask=torch.ones(1, 3, dtype=torch.bool)), None)
    with pytest.raises(ValueError, match="plain plan only"):
        made().apply_plan(Plan(precision="bf16"))


def _equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
