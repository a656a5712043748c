"""Proximal policy optimisation with a clipped surrogate, over factored and masked actions.

Pure: tensors in, tensors out; no logger, no clock, no read from the device. The one exception is an early
stop, off by default, which reads one number an epoch. Shapes: B rows, H heads, M minibatches.

The numbers, where there is a choice:

- KL is k3, (ratio - 1) - ln ratio, on a log-ratio clamped to +-20, against the policy that collected.
  `kl_divergence` averages over the heads that mattered causally; `kl_joint` takes the joint log-ratio. Both
  are means over the minibatches of the last epoch that ran; `kl_max` is the worst `kl_divergence` of any
  minibatch of the update.
- Entropy is relative: for each head the mean over the rows that used it with more than one legal choice,
  summed over heads, as a share of the same sum of ln(legal choices). Over all minibatches.
- The advantage is normalised in each minibatch. Losses, clip fraction and gradient norm (before clipping)
  are means over all minibatches.
- Explained variance is of the collecting policy's values before the update; NaN when returns do not vary.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from overwatch_rl.algos.networks import ActorCritic, Decision
from overwatch_rl.types import Batch, EarlyStop, Observation, Stats

_LOG_RATIO_LIMIT: Final = 20.0
_STOP_FACTOR: Final = 1.5
_NO_VARIANCE: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig:
    """How one update learns from one batch."""

    learning_rate: float = 3e-3
    """Step size of Adam."""
    epochs: int = 4
    """Passes over the batch."""
    minibatches: int = 4
    """Parts of the batch, an optimiser step each."""
    clip: float = 0.2
    """How far the ratio may leave 1 before its gradient stops."""
    entropy_coef: float = 0.06
    """Weight of the entropy bonus, a nat."""
    value_coef: float = 0.5
    """Weight of the critic's mean squared error."""
    max_grad_norm: float = 0.5
    """Gradients longer than this are shortened to it."""
    target_kl: float | None = None
    """Stop an update after an epoch whose joint KL is above 1.5 times this; `None` never stops."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clip", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; use a number above 0")
        for name in ("epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 1 or more")
        for name in ("entropy_coef", "value_coef"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; use 0 or more")
        if self.target_kl is not None and not self.target_kl > 0:
            raise ValueError(f"target_kl is {self.target_kl}; use a number above 0, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is told of one minibatch, without gradients; scalars but for the last three."""

    policy: Tensor
    value: Tensor
    kl: Tensor
    kl_joint: Tensor
    clip_fraction: Tensor
    ratio_error: Tensor  # largest |ratio - 1|
    entropy_sum: Tensor  # H nat, over the rows with a choice
    possible_sum: Tensor  # H nat, ln(legal choices) over the same rows
    num_choices: Tensor  # H, those rows


def k3(log_ratio: Tensor) -> Tensor:
    """The estimator (ratio - 1) - ln ratio, never negative; any shape."""
    clamped = log_ratio.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
    return clamped.expm1() - clamped


def loss(policy: ActorCritic, batch: Batch, config: PPOConfig) -> tuple[Tensor, Terms]:
    """The clipped objective of one minibatch, to be minimised, and its terms."""
    decision = policy.judge(Observation(features=batch.features, mask=batch.mask), batch.actions)
    log_ratio = decision.log_probs - batch.log_probs
    joint = log_ratio.sum(dim=1)
    ratio = joint.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT).exp()
    spread = batch.advantages.std(unbiased=False)
    advantage = (batch.advantages - batch.advantages.mean()) / (spread + 1e-8)
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = (policy.value(batch.features) - batch.returns).square().mean()
    entropy = decision.entropy.sum(dim=1).mean()
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    with torch.no_grad():
        used = decision.used.to(log_ratio.dtype)
        open_ = _open(decision)
        terms = Terms(
            policy=policy_loss.detach(),
            value=value_loss.detach(),
            kl=(k3(log_ratio) * used).sum() / used.sum(),
            kl_joint=k3(joint).mean(),
            clip_fraction=((ratio - 1).abs() > config.clip).to(ratio.dtype).mean(),
            ratio_error=(ratio - 1).abs().max(),
            entropy_sum=(decision.entropy * open_).sum(dim=0),
            possible_sum=(decision.num_legal.clamp(min=1).log() * open_).sum(dim=0),
            num_choices=open_.sum(dim=0),
        )
    return total, terms


def _open(decision: Decision) -> Tensor:
    """B H float: 1 where a head was used and had more than one legal choice."""
    return (decision.used & (decision.num_legal > 1)).to(decision.entropy.dtype)


def relative_entropy(entropy_sum: Tensor, possible_sum: Tensor, num_choices: Tensor) -> Tensor:
    """Scalar in 0..1 from three H; NaN when no row had a choice."""
    rows = num_choices.clamp(min=1)
    return (entropy_sum / rows).sum() / (possible_sum / rows).sum()


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Share of the returns' variance that the values predict; NaN when returns do not vary."""
    variance = returns.var(unbiased=False)
    share = 1 - (returns - values).var(unbiased=False) / variance
    return torch.where(variance > _NO_VARIANCE, share, torch.nan)


def update(
    policy: ActorCritic,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    config: PPOConfig,
    generator: torch.Generator,
) -> tuple[Stats, EarlyStop | None]:
    """Learn from one batch. `batch` must have at least as many rows as there are minibatches."""
    variance = explained_variance(batch.values, batch.returns)
    parts: list[Terms] = []
    norms: list[Tensor] = []
    stopped: EarlyStop | None = None
    for epoch in range(1, config.epochs + 1):
        order = torch.randperm(len(batch), generator=generator).to(batch.features.device)
        for rows in order.tensor_split(config.minibatches):
            total, terms = loss(policy, batch.rows(rows), config)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(total)
            norms.append(nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm))
            optimizer.step()
            parts.append(terms)
        stopped = _early_stop(parts, epoch, config)
        if stopped is not None:
            break
    return _stats(parts, norms, variance, config), stopped


def _early_stop(parts: list[Terms], epoch: int, config: PPOConfig) -> EarlyStop | None:
    if config.target_kl is None or epoch == config.epochs:
        return None
    kl = float(torch.stack([part.kl_joint for part in parts[-config.minibatches :]]).mean())
    if kl <= _STOP_FACTOR * config.target_kl:
        return None
    skipped = (config.epochs - epoch) * config.minibatches
    return EarlyStop(epoch=epoch, kl_divergence=kl, target=config.target_kl, minibatches_skipped=skipped)


def _stats(parts: list[Terms], norms: list[Tensor], variance: Tensor, config: PPOConfig) -> Stats:
    last = parts[-config.minibatches :]

    def mean(name: str, over: list[Terms] = parts) -> Tensor:
        return torch.stack([getattr(part, name) for part in over]).mean()

    def total(name: str) -> Tensor:
        return torch.stack([getattr(part, name) for part in parts]).sum(dim=0)

    return Stats(
        kl_divergence=mean("kl", last),
        kl_joint=mean("kl_joint", last),
        kl_max=torch.stack([part.kl for part in parts]).max(),
        first_ratio_error=parts[0].ratio_error,
        entropy=relative_entropy(total("entropy_sum"), total("possible_sum"), total("num_choices")),
        clip_fraction=mean("clip_fraction"),
        explained_variance=variance,
        grad_norm=torch.stack(norms).mean(),
        policy_loss=mean("policy"),
        value_loss=mean("value"),
    )
