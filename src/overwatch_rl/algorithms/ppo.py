"""Proximal policy optimisation with a clipped surrogate, over any kind of action: the whole of it.

From top to bottom: settings, advantages (GAE, V-trace), the loss, PopArt, the gated step, and the update.
Beside it are `policy`, which acts, and `common`: batches, ranks, and what each reported number means.

Rules: tensors in, tensors out; no logger, no clock; nothing is read from the device between the beginning and
the end of an update. Whether a minibatch takes its step is decided on the device (the gate): a gradient that
is not finite, or a policy that had moved too far by the end of an epoch, leaves parameters, moments and step
counts bit-unchanged, through the `found_inf` of the fused optimiser. Must not know worlds or telemetry.

Sources: Schulman et al. 2017, "Proximal policy optimization algorithms"; the k3 estimator of KL is Schulman
2020, "Approximating KL divergence"; the objective for stale rollouts is Hilton et al. 2021, "Batch size-
invariance for policy optimization", with the capped weight of Fu et al. 2025, "AReaL".

A rollout with ages was collected by older policies. The policy of `prepare` is then the proximal one, to
which the clip and all KLs of an update refer; each row's policy loss is weighted by its probability over the
collecting policy's, at most `importance_cap`; values are the current critic's, and targets V-trace's.

A policy with memory (`networks.Recurrent`) learns from whole envs: a rollout has the memory before its first
step, the update goes through all steps anew from there, and forgets where an episode begins. That memory was
left by older weights; nothing is learned through the border of a rollout.

Shape letters as in `types`: T, N, B, S, L, H, M; F places an env for final observations.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn

from overwatch_rl.algorithms.common import (
    LOG_RATIO_LIMIT,
    Adam,
    Alone,
    Batch,
    Minibatches,
    Norms,
    Plan,
    Ranks,
    Sequences,
    Terms,
    below,
    laid_like,
    load_moments,
    moments,
    moments_of,
    of_advantages,
    of_staleness,
    of_values,
)
from overwatch_rl.algorithms.policy import Evaluation, Gaussian, Policy
from overwatch_rl.sync_points import sync_point
from overwatch_rl.types import Decision, Factored, Observation, Rollout, Stats, WorldSpec

_STOP_FACTOR: Final = 1.5
_ADAM_EPS: Final = 1e-5
_NO_SPREAD: Final = 1e-8
_BETA_MIN: Final = 1e-3
"""Least weight of the newest rollout in PopArt's moments."""
_STD_MIN: Final = 1e-4
"""Least deviation: returns that do not vary do not make the critic's scale vanish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig:
    """How one update learns from one batch."""

    network: str = "mlp"
    """A row of `networks.NETWORKS`, or `package.module:name`."""
    width: int = 64
    depth: int = 2
    activation: str = "tanh"
    """Units and number of hidden layers, and what is between them."""
    logit_scale: float = 0.25
    """Logits are this share of the network's outputs. Below 1 a step too large moves the policy too far,
    which can be seen and undone, rather than saturating it for ever at once; learning takes longer."""
    normalise_observations: bool = False
    """Whether vectors of floats are seen as deviations from their running mean."""
    learning_rate: float = 3e-3
    """Step size of Adam at the first update."""
    anneal_updates: int | None = None
    """Updates over which the step size falls linearly towards 0; `None` keeps it."""
    epochs: int = 4
    """Passes over the batch."""
    minibatches: int = 4
    """Parts of the batch, an optimiser step each."""
    clip: float = 0.2
    """How far the ratio may leave 1 before its gradient stops."""
    value_clip: float | None = None
    """How far a value may leave what the collecting critic predicted, in the critic's units."""
    entropy_coef: float = 0.06
    """Weight of the entropy bonus, a nat."""
    value_coef: float = 0.5
    """Weight of the critic's mean squared error."""
    max_grad_norm: float = 0.5
    """Gradients longer than this are shortened to it."""
    target_kl: float | None = None
    """Stop an update after an epoch whose joint KL is above 1.5 times this; `None` never stops."""
    popart: bool = False
    """Whether the critic predicts in units of the returns' running mean and deviation."""
    importance_cap: float = 5.0
    """Most that a stale row's policy loss is weighted by."""
    gamma: float = 0.995
    """Discount of one step."""
    gae_lambda: float = 0.95
    """Weight of longer estimates of the advantage; 0 is one step, 1 is the whole rollout."""

    def __post_init__(self) -> None:
        for name in ("logit_scale", "learning_rate", "clip", "max_grad_norm", "importance_cap"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; use a number above 0")
        for name in ("epochs", "minibatches", "anneal_updates"):
            if (getattr(self, name) or 0) < 1 and getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)}; use 1 or more")
        for name in ("entropy_coef", "value_coef"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; use 0 or more")
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use a number from 0 to 1")
        for name in ("target_kl", "value_clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; use a number above 0, or leave it out")


def next_values(rollout: Rollout, last: Tensor, final: Tensor | None) -> Tensor:
    """T N: the value of what came after each step; 0 where the task ended.

    `last`: N, values of the last observations; `final`: F N, values of the final observations that the
    rollout keeps, `None` where it keeps none. An episode cut short (truncated) is continued by the value of
    its final observation, never by that of the next episode's first.
    """
    following = torch.cat([rollout.values[1:], last[None]])
    if final is not None and rollout.final_at is not None:
        # Places that are empty point at a row behind the last, which is cut off again.
        at_end = torch.zeros(len(following) + 1, *following.shape[1:], dtype=final.dtype, device=final.device)
        at_end = at_end.scatter(0, rollout.final_at, final)[:-1]
        following = torch.where(rollout.truncated, at_end.to(following.dtype), following)
    return torch.where(rollout.terminated, 0.0, following)


def advantages(
    rollout: Rollout, following: Tensor, gamma: float, gae_lambda: float, rho: Tensor | None = None
) -> Tensor:
    """T N float: generalised advantage estimates; following: T N as of `next_values`.

    `rho`: T N, the probability of each action under the policy that learns over that under the policy that
    collected, at most 1: with it what follows a step is the V-trace target, of which `rho` times the
    advantage is the distance from the value (both clips of the source are 1). Without it all are 1.

    Sources: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage
    estimation"; Espeholt et al. 2018, "IMPALA", section 4.1 and its remark 2 on lambda.
    """
    ended = rollout.terminated | rollout.truncated
    deltas = rollout.rewards + gamma * following - rollout.values
    carry = gamma * gae_lambda * (~ended).to(deltas.dtype)
    estimates = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for step in reversed(range(len(deltas))):
        estimates[step] = torch.addcmul(deltas[step], carry[step], running)
        running = estimates[step] if rho is None else rho[step] * estimates[step]
    return estimates


def loss(evaluated: Evaluation, values: Tensor, batch: Batch, config: PPOConfig) -> tuple[Tensor, Terms]:
    """The clipped objective summed over rows, to be minimised, and what is reported of them.

    `values` and the batch's are in the critic's units, advantages are normalised.
    """
    log_ratio = evaluated.log_probs - batch.log_probs
    ratio = log_ratio.sum(dim=1).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    policy_loss = -torch.minimum(ratio * batch.advantages, clipped * batch.advantages)
    if batch.weights is not None:
        policy_loss = policy_loss * batch.weights
    squared = (values - batch.returns).square()
    value_loss = squared
    is_clipped = torch.zeros_like(squared, dtype=torch.bool)
    if config.value_clip is not None:
        near = batch.values + (values - batch.values).clamp(-config.value_clip, config.value_clip)
        value_loss = torch.maximum(squared, (near - batch.returns).square())
        is_clipped = (values.detach() - batch.values).abs() > config.value_clip
    entropy = evaluated.entropy.sum(dim=1)
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return total.sum(), Terms(
        log_ratio=log_ratio.detach(), log_probs=evaluated.log_probs.detach(),
        entropy=evaluated.entropy.detach(), possible=evaluated.possible, used=evaluated.used,
        policy_loss=policy_loss.detach(), value_loss=value_loss.detach(),
        value_loss_unclipped=squared.detach(), total_loss=total.detach(), value_clipped=is_clipped,
    )  # fmt: skip


class PopArt(nn.Module):
    """Running mean and deviation of returns; a critic that predicts in their units.

    Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude"; the moments of Adam
    are rescaled with the weights, so that the next step is the one it would have been.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.square: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("square", torch.ones((), dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))  # rollouts seen

    def std(self) -> Tensor:
        """Scalar float64, the deviation that values are measured in."""
        return (self.square - self.mean.square()).clamp(min=_STD_MIN**2).sqrt()

    def raw(self, values: Tensor) -> Tensor:
        """From the critic's units to returns."""
        return values * self.std().to(values.dtype) + self.mean.to(values.dtype)

    def scaled(self, returns: Tensor) -> Tensor:
        """From returns to the critic's units."""
        return (returns - self.mean.to(returns.dtype)) / self.std().to(returns.dtype)

    @torch.no_grad()
    def update(
        self, returns: Tensor, value: nn.Linear, optimizer: torch.optim.Optimizer, ranks: Ranks
    ) -> None:
        """Move to the returns of a rollout, B, and keep what the critic predicts unchanged.

        Returns that are not finite move nothing. `value` is the critic's last layer.
        """
        _, mean, variance = moments(returns, ranks)
        square = variance + mean.square()
        go = torch.isfinite(square)
        beta = torch.clamp(1.0 / (self.count + 1.0), min=_BETA_MIN)
        before_mean, before_std = self.mean.clone(), self.std()
        # `where`, since NaN times a weight of zero is NaN.
        self.mean += torch.where(go, beta * (mean - self.mean), 0.0)
        self.square += torch.where(go, beta * (square - self.square), 0.0)
        self.count += go
        std = self.std()
        ratio = (before_std / std).to(value.weight.dtype)
        value.weight *= ratio
        shifted = (before_std * value.bias.double() + before_mean - self.mean) / std
        value.bias.copy_(torch.where(go, shifted, value.bias.double()))
        for parameter in (value.weight, value.bias):
            kept = optimizer.state.get(parameter, {})
            if "exp_avg" in kept:
                kept["exp_avg"] *= ratio
                kept["exp_avg_sq"] *= ratio.square()


def averaged(parameters: Sequence[Tensor], ranks: Ranks) -> list[Tensor]:
    """The gradient of each parameter over all ranks, in place; zero where it has none."""
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    ranks.average(gradients)
    return gradients


@torch.no_grad()
def gated_step(
    optimizer: torch.optim.Optimizer, gradients: list[Tensor], ranks: Ranks, stopped: Tensor,
    max_grad_norm: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Clip `averaged` gradients and step unless the gate is shut; the norm of each before, and of all."""
    norms = torch.stack(torch._foreach_norm(gradients))  # noqa: SLF001 as torch's own clipping does
    norm = torch.linalg.vector_norm(norms)
    torch._foreach_mul_(gradients, (max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
    if not norm.is_meta:
        skip = ranks.any(stopped | ~torch.isfinite(norm))
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]  # read by the fused step
    optimizer.step()
    return norms, norm


class PPO:
    """A policy, its critic and their optimiser."""

    def __init__(
        self, spec: WorldSpec, config: PPOConfig, *, seed: int, device: str = "cpu",
        ranks: Ranks | None = None,
    ) -> None:  # fmt: skip
        """Raises `ValueError` when the network or the normaliser does not fit the world."""
        self.config = config
        self.device = torch.device(device)
        self._ranks: Ranks = Alone() if ranks is None else ranks
        self.policy = Policy(spec, config, seed=seed)
        self.popart = PopArt()
        self.policy.add_module("popart", self.popart)
        self.policy.to(self.device)
        self.network, self.actions, self.normaliser = (
            self.policy.network, self.policy.actions, self.policy.normaliser
        )  # fmt: skip
        self._ranks.share([value.detach() for value in self.policy.state_dict().values()])
        self._parameters = list(self.policy.parameters())
        self._rate = config.learning_rate
        self._updates = 0
        # The gate needs the fused optimiser, which tensors without values have not.
        is_gated = self.device.type != "meta"
        rate = torch.tensor(self._rate, device=self.device) if is_gated else self._rate
        self._optimizer = Adam(self._parameters, lr=rate, eps=_ADAM_EPS, fused=is_gated, foreach=not is_gated)
        self._order = torch.Generator(self.device).manual_seed(seed + 1) if is_gated else None
        named = spec.action.heads if isinstance(spec.action, Factored) else ()
        self._heads = tuple(head.name for head in named) if len(named) > 1 else ()
        self._last_layers = [
            (layer, torch.tensor(rows, device=self.device)) for layer, rows in self.network.last_layers()
        ]

    @property
    def plan(self) -> Plan:
        """How it computes now."""
        return self.policy.plan

    def apply_plan(self, plan: Plan) -> None:
        """Compute by another plan from now on; the weights stay as they are."""
        self.policy.apply_plan(plan)
        for parameter, state in self._optimizer.state.items():
            # The fused step walks through memory: moments lie as their weights do.
            for name, value in state.items():
                state[name] = laid_like(parameter, value)

    def clone(self) -> "PPO":
        """A copy of everything that learning changes, alone, which shares nothing with this one."""
        # What is compiled is bound to its own weights.
        memo: dict[int, object] = {id(self._ranks): Alone(), id(self.policy.compiled): ()}
        if self._order is not None:
            memo[id(self._order)] = order = torch.Generator(self.device)
            order.set_state(self._order.get_state())
        made = copy.deepcopy(self, memo)
        made.apply_plan(self.plan)
        return made

    def benchmark_backward(self, batch: Batch) -> None:
        """Compute the gradients of a batch as of one minibatch, and take no step."""
        self._optimizer.zero_grad(set_to_none=True)
        self._backward(self._scaled(batch), len(batch))

    @torch.inference_mode()
    def act(
        self, observation: Observation, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Decision:
        """Actions with their log-probabilities and values; drawn, or the likeliest."""
        outputs, values, memory = self.policy.step(observation.features, observation.memory)
        sampled = self.actions.sample(outputs, observation.mask, generator, greedy=greedy)
        choices = None if sampled.ops is None else sampled.ops.exp()
        return Decision(
            actions=sampled.actions, log_probs=sampled.log_probs, values=self._raw(values), choices=choices,
            memory=memory,
        )  # fmt: skip

    @torch.no_grad()
    def prepare(self, rollout: Rollout) -> Batch:
        """The rollout as one batch, with advantages and the returns that the critic shall predict.

        Raises `ValueError` where a policy with memory is given what older policies collected.
        """
        config = self.config
        sequences = self._sequences(rollout)
        log_ratio = rho = weights = None
        stats: Stats = {}
        if rollout.age is not None:
            rollout, log_ratio = self._evaluated_again(rollout)
            rho, weights = log_ratio.exp().clamp(max=1.0), log_ratio.flatten().exp()
            stats = of_staleness(log_ratio.flatten(), config.importance_cap)
        following = next_values(rollout, *self._values_beyond(rollout, sequences))
        ahead = advantages(rollout, following, config.gamma, config.gae_lambda, rho)
        td_errors = rollout.rewards + config.gamma * following - rollout.values
        returns = (ahead if rho is None else rho * ahead) + rollout.values
        if config.popart:
            self.popart.update(returns.flatten(), self.network.value, self._optimizer, self._ranks)
        features = rollout.features.flatten(0, 1)
        stats |= of_advantages(ahead.flatten())
        stats |= of_values(rollout.values.flatten(), returns.flatten(), td_errors.flatten())
        if self.normaliser is not None:
            stats |= self.normaliser.report(features)
        return Batch(
            features=features,
            mask=None if rollout.mask is None else rollout.mask.flatten(0, 1),
            actions=rollout.actions.flatten(0, 1),
            log_probs=rollout.log_probs.flatten(0, 1),
            values=rollout.values.flatten(),
            advantages=ahead.flatten(),
            returns=returns.flatten(),
            weights=None if weights is None else weights.clamp(max=config.importance_cap),
            sequences=sequences,
            stats=stats,
        )

    def _sequences(self, rollout: Rollout) -> Sequences | None:
        """Where its episodes begin, and from which memory it starts; `None` without one."""
        if self.policy.num_memory is None:
            return None
        if rollout.age is not None:
            raise ValueError(
                f"network {self.config.network!r} has a memory, which experience of other processes does not "
                "hold; use a network without, or train in one process"
            )
        ended = rollout.terminated | rollout.truncated
        memory = rollout.memory
        if memory is None:
            memory = torch.zeros(ended.shape[1], self.policy.num_memory, device=self.device)
        return Sequences(begins=torch.cat([torch.zeros_like(ended[:1]), ended[:-1]]), memory=memory)

    def _values_beyond(self, rollout: Rollout, sequences: Sequences | None) -> tuple[Tensor, Tensor | None]:
        """N, values of the last observations, and F N, of the final ones that the rollout keeps."""
        last = self._raw(self.policy.step(rollout.last.features, rollout.last.memory)[1])
        if rollout.final is None or rollout.final_at is None:
            return last, None
        left = None
        if sequences is not None:
            memories = self.policy.unroll(rollout.features, sequences.memory, sequences.begins)[2]
            places = rollout.final_at.clamp(max=len(memories) - 1)[..., None]
            left = memories.gather(0, places.expand(-1, -1, memories.shape[2])).flatten(0, 1)
        values = self.policy.step(rollout.final.flatten(0, 1), left)[1]
        return last, self._raw(values).view(rollout.final.shape[:2])

    def _evaluated_again(self, rollout: Rollout) -> tuple[Rollout, Tensor]:
        """With log-probabilities and values of now; and how far they moved, T N, joint and clamped."""
        outputs, values = self.policy(rollout.features.flatten(0, 1))
        mask = None if rollout.mask is None else rollout.mask.flatten(0, 1)
        evaluated = self.actions.evaluate(outputs, mask, rollout.actions.flatten(0, 1))
        log_probs = evaluated.log_probs.view_as(rollout.log_probs)
        log_ratio = (log_probs - rollout.log_probs).sum(dim=-1).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        again = replace(rollout, log_probs=log_probs, values=self._raw(values).view_as(rollout.values))
        return again, log_ratio

    def set_learning_rate(self, rate: float) -> None:
        """The step size that the schedule starts from, from now on."""
        self._rate = rate
        over = self.config.anneal_updates
        if over is not None:
            rate *= 1.0 - min(self._updates, over - 1) / over
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def update(self, batch: Batch) -> Stats:
        """Learn from one batch, which has at least as many rows as there are minibatches.

        Of a policy with memory it has as many envs.
        """
        config = self.config
        scaled = self._scaled(batch)
        seen = Minibatches(config.minibatches, config.epochs * config.minibatches, self._heads, config.clip)
        self.set_learning_rate(self._rate)
        stopped = torch.zeros((), dtype=torch.bool, device=self.device)
        for epoch in range(config.epochs):
            order = torch.randperm(batch.num_samples, generator=self._order, device=self.device)
            for drawn in order.tensor_split(config.minibatches):
                self._optimizer.zero_grad(set_to_none=True)
                minibatch = scaled.drawn(drawn)
                seen.add(self._backward(minibatch, len(minibatch)), self._step(stopped), ~stopped)
            if config.target_kl is not None and epoch + 1 < config.epochs:
                moved = seen.epoch_kl() > _STOP_FACTOR * config.target_kl
                stopped = self._ranks.any(stopped | moved)
                if self.device.type == "cpu" and self._ranks.size == 1:
                    with sync_point("ppo.early_stop"):
                        if bool(stopped):
                            break
        self._updates += 1
        stats = batch.stats | seen.stats()
        stats["clip_range"] = torch.full((), config.clip, device=self.device)
        rate = self._optimizer.param_groups[0]["lr"]
        stats["learning_rate"] = rate + torch.zeros((), device=self.device)
        if self.normaliser is not None:
            self.normaliser.update(batch.features, self._ranks)
        if isinstance(self.actions, Gaussian):
            stats["action_std"] = self.actions.deviations().detach().mean()
        if config.popart:
            stats |= {
                "popart_mean": self.popart.mean.clone(),
                "popart_std": self.popart.std(),
                "popart_count": self.popart.count.clone(),
            }
        return stats

    def _scaled(self, batch: Batch) -> Batch:
        """Values and returns in the critic's units."""
        if not self.config.popart:
            return batch
        return replace(
            batch, values=self.popart.scaled(batch.values), returns=self.popart.scaled(batch.returns)
        )

    def _raw(self, values: Tensor) -> Tensor:
        return self.popart.raw(values) if self.config.popart else values

    def _backward(self, minibatch: Batch, num_rows: int) -> list[Terms]:
        """Leave the gradient of the minibatch's mean loss in the parameters, a chunk at a time."""
        _, mean, variance = moments(minibatch.advantages, self._ranks)
        spread = variance.sqrt() + _NO_SPREAD
        found: list[Terms] = []
        for chunk in minibatch.chunks(self.policy.plan.chunk):
            # In float64: equal advantages then differ from their mean by nothing.
            part = replace(chunk, advantages=((chunk.advantages - mean) / spread).float())
            outputs, values, memory = self.policy.outputs_of(chunk)
            total, terms = loss(
                self.actions.evaluate(outputs, chunk.mask, chunk.actions), values, part, self.config
            )
            if memory is not None:
                terms.hidden_square = memory.detach().square().mean(dim=-1).flatten()
            torch.autograd.backward(total / num_rows)
            found.append(terms)
        return found

    def _step(self, stopped: Tensor) -> Norms:
        """Take the step unless the gate is shut."""
        gradients = averaged(self._parameters, self._ranks)
        heads = self._norms_of_heads()
        layers, whole = gated_step(
            self._optimizer, gradients, self._ranks, stopped, self.config.max_grad_norm
        )
        return Norms(layers=layers, whole=whole, heads=heads)

    def _norms_of_heads(self) -> Tensor:
        """H; nothing where there is one head, whose layer is one among others."""
        squares = torch.zeros(len(self._heads), device=self.device)
        for layer, heads in self._last_layers if self._heads else ():
            for gradient in (layer.weight.grad, layer.bias.grad):
                if gradient is not None:
                    squares.index_add_(0, heads, gradient.view(len(heads), -1).square().sum(dim=1))
        return squares.sqrt()

    def state_dict(self) -> dict[str, Tensor]:
        """`policy.*`, `optimizer.*` (number of the parameter, then the moment), `updates` and `order`."""
        state = {f"policy.{name}": value for name, value in self.policy.state_dict().items()}
        state |= moments_of(self._optimizer, self._parameters)
        state["optimizer.lr"] = torch.tensor(self._rate, dtype=torch.float64)
        state["updates"] = torch.tensor(self._updates)
        if self._order is not None:
            state["order"] = self._order.get_state()
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was when `state` was taken; raises `ValueError` when it is of another shape."""
        try:
            self.policy.load_state_dict(below("policy.", state))
        except RuntimeError as error:
            raise ValueError(f"these weights are of another network: {error}") from error
        load_moments(self._optimizer, self._parameters, state)
        self._updates = int(state["updates"])
        self.set_learning_rate(float(state["optimizer.lr"]))
        if self._order is not None:
            self._order.set_state(state["order"].cpu())

    def acting_keys(self) -> frozenset[str]:
        """Everything of the policy."""
        return frozenset(f"policy.{name}" for name in self.policy.state_dict())
