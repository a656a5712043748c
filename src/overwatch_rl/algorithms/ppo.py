"""Proximal policy optimisation with a clipped surrogate, over any kind of action.

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

The numbers, where there is a choice:

- KL is k3, (ratio - 1) - ln ratio, on a log-ratio clamped to +-20, against the policy that collected.
  `kl_divergence` averages over the heads that mattered causally; `kl_joint` takes the joint log-ratio. Both
  are means over the minibatches of the last epoch that ran; `kl_max` is the worst `kl_divergence` of any
  minibatch of the update.
- Entropy is relative: for each head the mean over the rows that used it with more than one legal choice,
  summed over heads, as a share of the same sum of ln(legal choices). Undefined where actions are continuous.
- Where there are several heads, `entropy/HEAD`, `kl_divergence/HEAD`, `clip_fraction/HEAD` and
  `ratio_max/HEAD` are those of one, over the rows that used it, the last two by the head's own ratio;
  undefined where no row did. `grad_norm/HEAD` is that of the weights which give the head's logits.
- `hidden_rms` is the root of the mean square of a recurrent policy's memory over all steps of the rollout.
- The advantage is normalised in each minibatch, over all ranks, by the deviation of a whole population.
  Losses, clip fractions and gradient norms (before clipping) are means over the minibatches that ran; value
  losses are in the critic's units.
- Explained variance is of the collecting policy's values before the update; undefined when returns do not
  vary.

A policy with memory (`networks.Recurrent`) learns from whole envs: a rollout has the memory before its first
step, the update goes through all steps anew from there, and forgets where an episode begins. That memory was
left by older weights; nothing is learned through the border of a rollout.

Shape letters as in `types`: T, N, B, S, L, H; M minibatches of an update, or the memory of an env.
"""

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final, cast

import torch
from torch import Tensor, nn

from overwatch_rl.algorithms import diagnostics
from overwatch_rl.algorithms.base import Plan
from overwatch_rl.algorithms.batch import Batch, Sequences
from overwatch_rl.algorithms.distributions import Distribution, Gaussian, Judged, distribution
from overwatch_rl.algorithms.gate import averaged, gated_step
from overwatch_rl.algorithms.minibatches import HIDDEN_SQUARE, Minibatches, Norms, Terms
from overwatch_rl.algorithms.moments import below, laid_like, load_moments, moments_of
from overwatch_rl.algorithms.networks import Encoder, Network, Recurrent, network
from overwatch_rl.algorithms.optimisers import Adam
from overwatch_rl.algorithms.ranks import Alone, Ranks
from overwatch_rl.algorithms.returns import ReturnsConfig, advantages, following_values
from overwatch_rl.algorithms.statistics import Normaliser, PopArt, moments
from overwatch_rl.sync_points import sync_point
from overwatch_rl.types import Decision, Factored, Observation, Rollout, Stats, WorldSpec

_LOG_RATIO_LIMIT: Final = 20.0
_STOP_FACTOR: Final = 1.5
_ADAM_EPS: Final = 1e-5
_NO_SPREAD: Final = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig:
    """How one update learns from one batch."""

    network: str = "mlp"
    """A row of `networks.NETWORKS`."""
    logit_scale: float = 0.25
    """Logits are this share of the network's outputs. Below 1 a step too large moves the policy too far,
    which can be seen and undone, rather than saturating it for ever at once; learning takes longer."""
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
    normalise_observations: bool = False
    """Whether vectors of floats are seen as deviations from their running mean."""
    importance_cap: float = 5.0
    """Most that a stale row's policy loss is weighted by."""
    returns: ReturnsConfig = field(default_factory=ReturnsConfig)
    """How advantages are estimated."""

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
        for name in ("target_kl", "value_clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; use a number above 0, or leave it out")


def k3(log_ratio: Tensor) -> Tensor:
    """The estimator (ratio - 1) - ln ratio, never negative; any shape."""
    clamped = log_ratio.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
    return clamped.expm1() - clamped


def loss(judged: Judged, values: Tensor, batch: Batch, config: PPOConfig) -> tuple[Tensor, Terms]:
    """The clipped objective summed over rows, to be minimised, and its terms.

    `values` and the batch's are in the critic's units, advantages are normalised.
    """
    log_ratio = judged.log_probs - batch.log_probs
    joint = log_ratio.sum(dim=1)
    ratio = joint.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT).exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    surrogate = -torch.minimum(ratio * batch.advantages, clipped * batch.advantages)
    if batch.weights is not None:
        surrogate = surrogate * batch.weights
    squared = (values - batch.returns).square()
    value_terms = squared
    is_clipped = torch.zeros_like(squared)
    if config.value_clip is not None:
        near = batch.values + (values - batch.values).clamp(-config.value_clip, config.value_clip)
        value_terms = torch.maximum(squared, (near - batch.returns).square())
        is_clipped = ((values - batch.values).abs() > config.value_clip).to(squared.dtype)
    entropy = judged.entropy.sum(dim=1)
    total = surrogate + config.value_coef * value_terms - config.entropy_coef * entropy
    with torch.no_grad():
        used = judged.used.to(log_ratio.dtype)
        kl = k3(log_ratio) * used
        beyond = (log_ratio.clamp(max=_LOG_RATIO_LIMIT).expm1().abs() > config.clip) & judged.used
        is_open = judged.used & (judged.possible > 0)
        sums = {
            "policy_loss": surrogate.sum(),
            "value_loss": value_terms.sum(),
            "value_loss_unclipped": squared.sum(),
            "total_loss": total.sum(),
            "kl": kl.sum(),
            "used": used.sum(),
            "kl_joint": k3(joint).sum(),
            "clip_fraction_up": (ratio - 1 > config.clip).sum(),
            "clip_fraction_down": (1 - ratio > config.clip).sum(),
            "log_ratio_clamped": (joint.abs() > _LOG_RATIO_LIMIT).sum(),
            "value_clipped": is_clipped.sum(),
            "ratio_mean": ratio.sum(),
        }
        heads = torch.stack(
            [
                torch.where(is_open, judged.entropy, 0.0).sum(dim=0),
                torch.where(is_open, judged.possible, 0.0).sum(dim=0),
                is_open.sum(dim=0).to(judged.entropy.dtype),
                kl.sum(dim=0),
                used.sum(dim=0),
                beyond.sum(dim=0).to(kl.dtype),
            ]
        )
        taken = judged.log_probs.sum(dim=1)
        most = {
            "ratio_max": ratio.max(),
            "ratio_min": -ratio.min(),
            "first_ratio_error": (ratio - 1).abs().max(),
            "log_prob_max": taken.max(),
            "log_prob_min": -taken.min(),
        }
        if log_ratio.shape[1] > 1:
            own = log_ratio.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT).exp()
            most["ratio_max_of_heads"] = torch.where(judged.used, own, -torch.inf).amax(dim=0)
    return total.sum(), Terms(
        sums={name: value.detach() for name, value in sums.items()}, heads=heads, most=most
    )


class PPO:
    """A policy, its critic and their optimiser."""

    def __init__(
        self,
        spec: WorldSpec,
        config: PPOConfig,
        *,
        seed: int,
        device: str = "cpu",
        ranks: Ranks | None = None,
    ) -> None:
        """Raises `ValueError` when the network or the normaliser does not fit the world."""
        self.config = config
        self.plan = Plan()
        self.device = torch.device(device)
        self._ranks: Ranks = Alone() if ranks is None else ranks
        init = torch.Generator().manual_seed(seed)
        made = network(config.network, spec.observation, spec.action, init)
        self.network = cast("Network", made.to(self.device))
        self._recurrent = made if isinstance(made, Recurrent) else None
        self.actions: Distribution = distribution(spec.action, config.logit_scale)
        self.popart = PopArt()
        parts = {"network": made, "actions": cast("nn.Module", self.actions), "popart": self.popart}
        self.normaliser: Normaliser | None = None
        if config.normalise_observations:
            parts["normaliser"] = self.normaliser = _normaliser(spec)
        self.policy = nn.ModuleDict(parts).to(self.device)
        self._ranks.share([value.detach() for value in self.policy.state_dict().values()])
        self._parameters = list(self.policy.parameters())
        self._rate = config.learning_rate
        self._updates = 0
        self._optimizer = Adam(
            self._parameters,
            lr=torch.tensor(config.learning_rate, device=self.device)
            if self._is_gated
            else config.learning_rate,
            eps=_ADAM_EPS,
            fused=self._is_gated,
            foreach=not self._is_gated,
        )
        self._order = (
            None if self.device.type == "meta" else torch.Generator(self.device).manual_seed(seed + 1)
        )
        self._forward: Callable[[Tensor], tuple[Tensor, Tensor]] = self.network
        named = spec.action.heads if isinstance(spec.action, Factored) else ()
        self._heads = tuple(head.name for head in named) if len(named) > 1 else ()
        self._last_layers = [
            (layer, torch.tensor(rows, device=self.device)) for layer, rows in self.network.last_layers()
        ]

    @property
    def _is_gated(self) -> bool:
        """Whether there is a fused optimiser; on tensors without values there is none."""
        return self.device.type != "meta"

    def follow(self, plan: Plan) -> None:
        """Compute by another plan from now on; the weights stay as they are."""
        self.plan = plan
        layout = torch.channels_last if plan.channels_last else torch.contiguous_format
        for module in self.policy.modules():
            if isinstance(module, Encoder):
                module.layout = layout
            elif isinstance(module, nn.Conv2d):
                module.weight.data = module.weight.data.contiguous(memory_format=layout)
        for parameter, kept in self._optimizer.state.items():
            # The fused step walks through memory: moments lie as their weights do.
            for name, value in kept.items():
                kept[name] = laid_like(parameter, value)
        self._forward = torch.compile(self.network) if plan.is_compiled else self.network

    def twin(self) -> "PPO":
        """A copy of everything that learning changes, alone, which shares nothing with this one."""
        memo: dict[int, object] = {id(self._ranks): Alone()}
        if self._order is not None:
            order = torch.Generator(self.device)
            order.set_state(self._order.get_state())
            memo[id(self._order)] = order
        if self.plan.is_compiled:
            memo[id(self._forward)] = self.network  # what is compiled is bound to its own weights
        made = copy.deepcopy(self, memo)
        made.follow(made.plan)
        return made

    def probe(self, batch: Batch) -> None:
        """Compute the gradients of a batch as of one minibatch, and take no step."""
        self._optimizer.zero_grad(set_to_none=True)
        self._backward(self._scaled(batch), len(batch))

    def outputs(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """B L and B, in the critic's units, in the plan's precision; of first steps where there is memory."""
        seen = features if self.normaliser is None else self.normaliser(features)
        with self._precision():
            return self._forward(seen)

    def _precision(self) -> AbstractContextManager[object]:
        if self.plan.precision == "fp32":
            return nullcontext()
        kind = "cpu" if self.device.type == "meta" else self.device.type
        return torch.autocast(kind, dtype=torch.bfloat16)

    def _unrolled(self, features: Tensor, memory: Tensor, begins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `outputs`, of T B S step by step with a memory: T B L, T B, and the memory after each, T B M."""
        if self._recurrent is None:
            raise AssertionError(f"network {self.config.network!r} has no memory")
        seen = features if self.normaliser is None else self.normaliser(features)
        with self._precision():
            return self._recurrent.unroll(seen, memory, begins)

    def _now(self, features: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """One step: B L, B, and the memory after it, B M or none."""
        if self._recurrent is None:
            return *self.outputs(features), None
        rows = len(features)
        if memory is None:
            memory = torch.zeros(rows, self._recurrent.num_memory, device=self.device)
        begins = torch.zeros(1, rows, dtype=torch.bool, device=self.device)
        outputs, values, memories = self._unrolled(features[None], memory, begins)
        return outputs[0], values[0], memories[0]

    @torch.inference_mode()
    def act(
        self, observation: Observation, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Decision:
        """Actions with their log-probabilities and values; drawn, or the likeliest."""
        outputs, values, memory = self._now(observation.features, observation.memory)
        sampled = self.actions.sample(outputs, observation.mask, generator, greedy=greedy)
        return Decision(
            actions=sampled.actions,
            log_probs=sampled.log_probs,
            values=self._raw(values),
            choices=None if sampled.ops is None else sampled.ops.exp(),
            memory=memory,
        )

    @torch.no_grad()
    def prepare(self, rollout: Rollout) -> Batch:
        """The rollout as one batch, with advantages and the returns that the critic shall predict.

        Raises `ValueError` where a policy with memory is given what older policies collected.
        """
        stale: Stats = {}
        sequences = self._sequences(rollout)
        log_ratio = trust = None
        if rollout.age is not None:
            rollout, log_ratio = self._judged_again(rollout)
            trust = log_ratio.exp().clamp(max=1.0)
            stale = diagnostics.of_staleness(log_ratio.flatten(), self.config.importance_cap)
        last = self._raw(self._now(rollout.last.features, rollout.last.memory)[1])
        final = None
        if rollout.final is not None and rollout.final_at is not None:
            left = None if sequences is None else self._left(rollout.features, sequences, rollout.final_at)
            values = self._now(rollout.final.flatten(0, 1), left)[1]
            final = self._raw(values).view(rollout.final.shape[:2])
        following = following_values(rollout, last, final)
        ahead = advantages(rollout, following, self.config.returns, trust)
        td_errors = rollout.rewards + self.config.returns.gamma * following - rollout.values
        returns = (ahead if trust is None else trust * ahead) + rollout.values
        if self.config.popart:
            self.popart.update(returns.flatten(), self.network.value, self._optimizer, self._ranks)
        return Batch(
            features=rollout.features.flatten(0, 1),
            mask=None if rollout.mask is None else rollout.mask.flatten(0, 1),
            actions=rollout.actions.flatten(0, 1),
            log_probs=rollout.log_probs.flatten(0, 1),
            values=rollout.values.flatten(),
            advantages=ahead.flatten(),
            returns=returns.flatten(),
            weights=None
            if log_ratio is None
            else log_ratio.flatten().exp().clamp(max=self.config.importance_cap),
            sequences=sequences,
            stats=diagnostics.merged(
                [
                    stale,
                    diagnostics.of_advantages(ahead.flatten()),
                    diagnostics.of_values(rollout.values.flatten(), returns.flatten(), td_errors.flatten()),
                    {} if self.normaliser is None else self.normaliser.report(rollout.features.flatten(0, 1)),
                ]
            ),
        )

    def _sequences(self, rollout: Rollout) -> Sequences | None:
        """Where its episodes begin, and from which memory it starts; `None` without one."""
        if self._recurrent is None:
            return None
        if rollout.age is not None:
            raise ValueError(
                f"network {self.config.network!r} has a memory, which experience of other processes does not "
                "hold; use a network without, or train in one process"
            )
        ended = rollout.terminated | rollout.truncated
        memory = rollout.memory
        if memory is None:
            memory = torch.zeros(ended.shape[1], self._recurrent.num_memory, device=self.device)
        return Sequences(begins=torch.cat([torch.zeros_like(ended[:1]), ended[:-1]]), memory=memory)

    def _left(self, features: Tensor, sequences: Sequences, at: Tensor) -> Tensor:
        """The memory after the steps `at` (F N; any where T), as FN M; features: T N S."""
        memories = self._unrolled(features, sequences.memory, sequences.begins)[2]
        places = at.clamp(max=len(memories) - 1)[..., None].expand(-1, -1, memories.shape[2])
        return memories.gather(0, places).flatten(0, 1)

    def _judged_again(self, rollout: Rollout) -> tuple[Rollout, Tensor]:
        """With log-probabilities and values of now; and how far they moved, T N, joint and clamped."""
        outputs, values = self.outputs(rollout.features.flatten(0, 1))
        mask = None if rollout.mask is None else rollout.mask.flatten(0, 1)
        judged = self.actions.judge(outputs, mask, rollout.actions.flatten(0, 1))
        log_probs = judged.log_probs.view_as(rollout.log_probs)
        log_ratio = (log_probs - rollout.log_probs).sum(dim=-1).clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
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
        seen = Minibatches(config.minibatches, config.epochs * config.minibatches, self._heads)
        self.set_learning_rate(self._rate)
        stopped = torch.zeros((), dtype=torch.bool, device=self.device)
        for epoch in range(config.epochs):
            order = torch.randperm(batch.units, generator=self._order, device=self.device)
            for units in order.tensor_split(config.minibatches):
                self._optimizer.zero_grad(set_to_none=True)
                minibatch = scaled.drawn(units)
                terms = self._backward(minibatch, len(minibatch))
                seen.add(terms, len(minibatch), self._step(stopped), ~stopped)
            if config.target_kl is not None and epoch + 1 < config.epochs:
                moved = seen.epoch_kl() > _STOP_FACTOR * config.target_kl
                stopped = self._ranks.any(stopped | moved)
                if self.device.type == "cpu" and self._ranks.size == 1:
                    with sync_point("ppo.early_stop"):
                        if bool(stopped):
                            break
        self._updates += 1
        stats = diagnostics.merged([batch.stats, seen.stats()])
        stats["clip_range"] = torch.full((), config.clip, device=self.device)
        stats["learning_rate"] = torch.as_tensor(
            self._optimizer.param_groups[0]["lr"], device=self.device
        ).clone()
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

    def _backward(self, minibatch: Batch, num_rows: int) -> Terms:
        """Leave the gradient of the minibatch's mean loss in the parameters, a chunk at a time."""
        _, mean, variance = moments(minibatch.advantages, self._ranks)
        spread = variance.sqrt() + _NO_SPREAD
        found: Terms | None = None
        for chunk in minibatch.chunks(self.plan.chunk):
            # In float64: equal advantages then differ from their mean by nothing.
            part = replace(chunk, advantages=((chunk.advantages - mean) / spread).float())
            outputs, values, memory = self._outputs_of(chunk)
            judged = self.actions.judge(outputs, chunk.mask, chunk.actions)
            total, terms = loss(judged, values, part, self.config)
            if memory is not None:
                terms.sums[HIDDEN_SQUARE] = memory.detach().square().mean(dim=-1).sum()
            torch.autograd.backward(total / num_rows)
            found = terms if found is None else found.plus(terms)
        if found is None:
            raise AssertionError("a minibatch has no rows")
        return found

    def _outputs_of(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """B L and B, and the memory after each step where there is one."""
        sequences = batch.sequences
        if sequences is None:
            return *self.outputs(batch.features), None
        features = batch.features.view(*sequences.begins.shape, *batch.features.shape[1:])
        outputs, values, memories = self._unrolled(features, sequences.memory, sequences.begins)
        return outputs.flatten(0, 1), values.flatten(), memories

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


def _normaliser(spec: WorldSpec) -> Normaliser:
    seen = spec.observation
    if len(seen.shape) != 1 or seen.codes or not seen.dtype.is_floating_point:
        raise ValueError(
            f"normalise_observations needs vectors of floats, not {seen.shape} of {seen.dtype}; leave it out"
        )
    return Normaliser(seen.shape)
