"""Estimators and losses against formulas typed again in NumPy and float64, on random data."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from overwatch_rl.algorithms import grpo, ppo
from overwatch_rl.algorithms.common import Alone, Batch
from overwatch_rl.algorithms.policy import Categorical, Normaliser
from overwatch_rl.algorithms.ppo import PopArt, advantages, next_values
from overwatch_rl.types import Factored, Head, Observation, Rollout

Floats = npt.NDArray[Any]
SEEDS = range(5)
STEPS, ENVS, ROWS = 17, 5, 200
SPEC = Factored(
    heads=(Head(name="op", labels=("a", "b", "c")), Head(name="x", labels=("0", "1")),
           Head(name="y", labels=("0", "1", "2", "3"))),
    uses=((True, False, False), (True, True, False), (True, True, True)),
)  # fmt: skip


def tensor(array: Floats) -> Tensor:
    """In float32 where it is a number with a point, as the flight's own."""
    made = torch.tensor(array)
    return made.float() if made.is_floating_point() else made


def episodes(draws: np.random.Generator) -> tuple[Rollout, Floats, Tensor, Tensor]:
    """Ends of both kinds; the value after each step, of the last observations and of final ones."""
    shape = (STEPS, ENVS)
    ends = draws.random(shape)
    terminated, truncated = ends < 0.1, (ends > 0.8) | (ends < 0.03)
    values, last, finals = draws.normal(size=shape), draws.normal(size=ENVS), draws.normal(size=shape)
    following = np.where(terminated, 0.0, np.where(truncated, finals, np.vstack([values[1:], last])))
    at, final = np.full((STEPS, ENVS), STEPS), np.zeros(shape)
    for env in range(ENVS):
        steps = np.flatnonzero(truncated[:, env])
        at[: len(steps), env], final[: len(steps), env] = steps, finals[steps, env]
    data = Rollout(
        features=torch.zeros(*shape, 1), mask=None, actions=torch.zeros(*shape, 1, dtype=torch.int64),
        log_probs=torch.zeros(*shape, 1), values=torch.tensor(values),
        rewards=torch.tensor(draws.normal(size=shape)), terminated=torch.tensor(terminated),
        truncated=torch.tensor(truncated), final=torch.zeros(STEPS, ENVS, 1), final_at=torch.tensor(at),
        last=Observation(features=torch.zeros(ENVS, 1)), columns={},
    )  # fmt: skip
    return data, following, torch.tensor(last), torch.tensor(final)


@pytest.mark.parametrize("is_stale", [False, True], ids=["gae", "v-trace"])
@pytest.mark.parametrize("seed", SEEDS)
def test_estimates_are_the_sums_of_their_papers(seed: int, *, is_stale: bool) -> None:
    """Of later errors up to the end of the episode or of the rollout (IMPALA, equation 1 and remark 2)."""
    draws = np.random.default_rng(seed)
    gamma, lam = draws.random(2)
    data, following, last, final = episodes(draws)
    rho = draws.random((STEPS, ENVS)) if is_stale else np.ones((STEPS, ENVS))
    rewards, values, ended = data.rewards.numpy(), data.values.numpy(), data.terminated | data.truncated
    expected = np.zeros((STEPS, ENVS))
    for start, env in np.ndindex(STEPS, ENVS):
        weight = 1.0
        for step in range(start, STEPS):
            error = rewards[step, env] + gamma * following[step, env] - values[step, env]
            expected[start, env] += weight * rho[step, env] * error
            weight *= gamma * lam * rho[step, env]
            if ended[step, env]:
                break
    after = next_values(data, last, final)
    found = advantages(data, after, gamma, lam, torch.tensor(rho) if is_stale else None)

    np.testing.assert_allclose(after.numpy(), following, atol=1e-12)
    np.testing.assert_allclose(rho * found.numpy(), expected, atol=1e-12)


def judged(outputs: Floats, mask: Floats, actions: Floats) -> Floats:
    """Log-probabilities, entropies and the most they could be, of the heads that a row's operation uses."""
    found = np.zeros((3, len(outputs), 3))
    for row, (op, *_) in enumerate(actions):
        begin = 0
        for head, size in enumerate((3, 2, 4)):
            at = begin if head == 0 else begin + op * size
            begin += size if head == 0 else 3 * size
            legal = mask[row, at : at + size]
            shares = np.where(legal, np.exp(outputs[row, at : at + size]), 0.0)
            shares = shares / shares.sum()
            if SPEC.uses[op][head]:
                found[0, row, head] = math.log(shares[actions[row, head]])
                found[1, row, head] = -(shares[legal] * np.log(shares[legal])).sum()
                found[2, row, head] = math.log(legal.sum())
    return found


@pytest.mark.parametrize("value_clip", [None, 0.2])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_loss_of_ppo_is_its_formula(seed: int, value_clip: float | None) -> None:
    """Factored choices under a mask, stale rows, clipped values, entropy; KLs and shares beside."""
    draws = np.random.default_rng(seed)
    before, mask = draws.normal(size=(ROWS, SPEC.num_outputs)), draws.random((ROWS, SPEC.num_outputs)) < 0.7
    mask[:, [0, 3, 5, 7, 9, 13, 17]] = True  # a choice of each head
    now = before + 0.3 * draws.normal(size=before.shape)
    distribution, generator = Categorical(SPEC), torch.Generator().manual_seed(seed)
    sampled = distribution.sample(tensor(before), tensor(mask), generator, greedy=False)
    actions = sampled.actions.numpy()
    old, *_ = judged(before, mask, actions)
    new, entropy, possible = judged(now, mask, actions)
    ahead, aims, values = draws.normal(size=(3, ROWS))
    predicted, weights = values + 0.5 * draws.normal(size=ROWS), np.exp(draws.normal(size=ROWS)).clip(max=5)
    batch = Batch(
        features=torch.zeros(ROWS, 1), mask=None, actions=sampled.actions, log_probs=tensor(old),
        values=tensor(values), advantages=tensor(ahead), returns=tensor(aims), weights=tensor(weights),
    )  # fmt: skip
    config = ppo.PPOConfig(clip=0.2, value_clip=value_clip, entropy_coef=0.01, value_coef=0.5)
    actual = distribution.evaluate(tensor(now), tensor(mask), sampled.actions)
    total, terms = ppo.loss(actual, tensor(predicted), batch, config)

    np.testing.assert_allclose(sampled.log_probs, old, atol=1e-5)
    np.testing.assert_allclose(actual.entropy, entropy, atol=1e-5)
    np.testing.assert_allclose(actual.possible, possible, atol=1e-5)
    change = (new - old).sum(axis=1)
    ratio = np.exp(change)
    surrogate = -np.minimum(ratio * ahead, ratio.clip(0.8, 1.2) * ahead) * weights
    squared = (predicted - aims) ** 2
    if value_clip is not None:
        squared = np.maximum(squared, (values + (predicted - values).clip(-0.2, 0.2) - aims) ** 2)
    whole = (surrogate + 0.5 * squared - 0.01 * entropy.sum(axis=1)).sum()
    used = np.array(SPEC.uses)[actions[:, 0]]
    kls = (np.exp(new - old) - 1 - (new - old)) * used
    sums = {name: float(value.sum()) for name, value in terms.columns(0.2).items()}
    heads = terms.of_heads(0.2).sum(dim=0)
    assert float(total) == pytest.approx(whole, rel=1e-5)
    assert sums["policy_loss"] == pytest.approx(surrogate.sum(), rel=1e-4, abs=1e-4)
    assert sums["value_loss"] == pytest.approx(squared.sum(), rel=1e-5)
    assert sums["kl_joint"] == pytest.approx((ratio - 1 - change).sum(), rel=1e-4)
    assert (sums["clip_fraction_up"], sums["clip_fraction_down"]) == (
        (ratio > 1.2).sum(),
        (ratio < 0.8).sum(),
    )
    beyond = (np.abs(np.exp(new - old) - 1) > 0.2) & used
    of_heads = [kls.sum(axis=0), used.sum(axis=0), beyond.sum(axis=0)]
    np.testing.assert_allclose(heads[3:], of_heads, rtol=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_loss_of_grpo_and_its_gradient_are_its_formula(seed: int) -> None:
    """Advantages of groups, the decoupled clip, the penalty for leaving the reference; finite differences."""
    draws, groups = np.random.default_rng(seed), np.repeat(np.arange(6), 4)
    scores = draws.integers(0, 2, size=24).astype(float)
    scores[:4] = 1.0
    ahead, _, differ = grpo.group_advantages(tensor(scores), torch.tensor(groups))
    by_group = scores.reshape(6, 4)
    std = by_group.std(axis=1, ddof=1, keepdims=True)
    expected = np.where(std > 0, (by_group - by_group.mean(axis=1, keepdims=True)) / (std + 1e-4), 0.0)
    np.testing.assert_allclose(ahead, expected.ravel(), atol=1e-6)
    shape = (24, 7)
    live = (draws.random(shape) < 0.7) * differ.numpy()[:, None]
    now = -3 * draws.random(shape)
    proximal, reference = now + 0.3 * draws.normal(size=shape), now + 0.5 * draws.normal(size=shape)
    behaviour, gains = proximal + 0.4 * draws.normal(size=shape), ahead.numpy().astype(float)[:, None]

    def whole(current: Floats) -> float:
        ratio, apart = np.exp(current - proximal), reference - current
        weights = np.minimum(np.exp(proximal - behaviour), 2.0)
        surrogate = -np.minimum(ratio * gains, ratio.clip(0.8, 1.2) * gains) * weights
        return float(((surrogate + 0.05 * (np.exp(apart) - 1 - apart)) * live).sum())

    columns = {
        "live": live.astype(float),
        "behaviour": behaviour,
        "proximal": proximal,
        "reference": reference,
    }
    batch = grpo.Batch(
        tokens=torch.zeros(24, 8).long(), advantages=ahead.double(), stats={},
        **{name: torch.tensor(column) for name, column in columns.items()},
    )  # fmt: skip
    current = torch.tensor(now, requires_grad=True)
    total, _ = grpo.loss(current, batch, grpo.GRPOConfig(clip=0.2, reference_coef=0.05, weight_cap=2.0))
    (gradient,) = torch.autograd.grad(total, current)
    assert float(total.detach()) == pytest.approx(whole(now), rel=1e-12)
    for row, column in zip(draws.integers(24, size=20), draws.integers(7, size=20), strict=True):
        step = np.zeros(shape)
        step[row, column] = 1e-6
        slope = (whole(now + step) - whole(now - step)) / 2e-6
        assert float(gradient[row, column]) == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_running_moments_are_those_of_all_rows_and_popart_keeps_what_is_predicted(seed: int) -> None:
    """Over rollouts of other scales and places: the normaliser to 1e-9, a critic's outputs to rounding."""
    draws = np.random.default_rng(seed)
    normaliser, popart, layer = Normaliser((3,)), PopArt(), nn.Linear(5, 1)
    optimizer = torch.optim.Adam(layer.parameters())
    inputs, rows = tensor(draws.normal(size=(50, 5))), []
    for scale in (1.0, 10.0, 1e3, 0.1):
        rows.append(scale * draws.normal(size=(40, 3)) + [0.0, 1e3, 5.0])
        normaliser.update(torch.tensor(rows[-1]), Alone())
        before = popart.raw(layer(inputs)).detach()
        popart.update(tensor(scale * draws.normal(size=500) + 3 * scale), layer, optimizer, Alone())
        np.testing.assert_allclose(
            popart.raw(layer(inputs)).detach(), before, rtol=1e-3, atol=1e-4 * float(popart.std())
        )
    whole = np.concatenate(rows)
    np.testing.assert_allclose(normaliser.mean, whole.mean(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(normaliser.variance, whole.var(axis=0), rtol=1e-9)
