"""What acts: a network, the distribution over actions that its outputs describe, and how both compute.

Rules: an illegal choice has probability zero; heads that the chosen operation does not use give no
log-probability, no entropy and no gradient; nothing is read from the device. Randomness comes from a passed
generator, on the device of the outputs. One row of `DISTRIBUTIONS` a kind of action. Must not know losses.

Shape letters as in `types`: T, N, B, S, L, H, D, P, M; C choices of one head.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import torch
from torch import Tensor, nn

from overwatch_rl.algorithms.common import Batch, Plan, Ranks, moments
from overwatch_rl.algorithms.networks import Encoder, Recurrent, Size, network
from overwatch_rl.types import ActionSpec, Box, Factored, ObservationSpec, WorldSpec

_ILLEGAL: Final = -1e9
_TINY: Final = torch.finfo(torch.float32).tiny
_LOG_STD: Final = (-5.0, 2.0)
_STD_MIN: Final = 1e-4
"""Least deviation that a number of an observation is divided by."""
_FAR: Final = 3.0
"""Deviations beyond which an observation is an outlier."""
_REACH: Final = 10.0
"""Deviations at which a normalised observation is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Actions, and how likely they were."""

    actions: Tensor  # B H int64, 0 where unused; B D float32
    log_probs: Tensor  # B H, 0 where unused
    ops: Tensor | None = None  # B P, log-probability of each operation; None where continuous


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How likely and how free actions were."""

    log_probs: Tensor  # B H, 0 where unused
    entropy: Tensor  # B H nat, 0 where unused
    used: Tensor  # B H bool, heads that the operation depends on
    possible: Tensor  # B H nat, the entropy of choosing uniformly among what was legal; 0 where continuous


class Distribution(Protocol):
    """A kind of action as a module, since some have parameters."""

    def sample(
        self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool
    ) -> Sampled:
        """Draw actions, or take the likeliest; outputs: B L, mask: B L bool."""
        ...

    def evaluate(self, outputs: Tensor, mask: Tensor | None, actions: Tensor) -> Evaluation:
        """The log-probabilities and entropies of given actions."""
        ...


class Categorical(nn.Module):
    """Factored choices."""

    def __init__(self, spec: Factored, logit_scale: float = 1.0) -> None:
        """`logit_scale`: what outputs are multiplied by."""
        super().__init__()
        self.spec = spec
        self._logit_scale = logit_scale
        self.uses: Tensor
        self.register_buffer("uses", torch.tensor(spec.uses), persistent=False)

    def sample(
        self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool
    ) -> Sampled:
        """Draw actions, or take the likeliest; outputs: B L, mask: B L bool."""
        actions: list[Tensor] = []
        taken: list[Tensor] = []
        first: Tensor | None = None
        for block, legal in self._blocks(outputs, mask):
            log_probs, _ = _of_head(block, legal, actions[0] if actions else None)
            first = log_probs if first is None else first
            scores = log_probs
            if not greedy:
                # The least of exponential draws scaled by 1/p falls on a choice with probability p, and
                # unlike `multinomial` this never waits for the device. A draw of zero would make any choice
                # certain, an illegal one too.
                noise = torch.empty_like(log_probs).exponential_(generator=generator)
                scores = log_probs - noise.clamp_(min=_TINY).log_()
            chosen = scores.argmax(dim=1, keepdim=True)
            actions.append(chosen)
            taken.append(log_probs.gather(1, chosen))
        if len(actions) == 1:
            return Sampled(actions=actions[0], log_probs=taken[0], ops=first)
        used = self.uses[actions[0].squeeze(1)]
        return Sampled(
            actions=torch.cat(actions, dim=1) * used, log_probs=torch.cat(taken, dim=1) * used, ops=first
        )

    def evaluate(self, outputs: Tensor, mask: Tensor | None, actions: Tensor) -> Evaluation:
        """The log-probabilities and entropies of given actions, B H int64."""
        columns: list[tuple[Tensor, Tensor, Tensor]] = []
        for number, (block, legal) in enumerate(self._blocks(outputs, mask)):
            log_probs, allowed = _of_head(block, legal, actions[:, :1] if number else None)
            possible = (
                torch.full_like(log_probs[:, 0], math.log(log_probs.shape[1]))
                if allowed is None
                else allowed.sum(dim=1).clamp(min=1).to(log_probs.dtype).log()
            )
            entropy = -(log_probs.exp() * log_probs).sum(dim=1)
            columns.append((log_probs.gather(1, actions[:, number, None]).squeeze(1), entropy, possible))
        if len(columns) == 1:
            taken, entropy, possible = (column[:, None] for column in columns[0])
            used = torch.ones_like(taken, dtype=torch.bool)
            return Evaluation(log_probs=taken, entropy=entropy, used=used, possible=possible)
        taken, entropy, possible = (torch.stack(column, dim=1) for column in zip(*columns, strict=True))
        used = self.uses[actions[:, 0]]
        return Evaluation(log_probs=taken * used, entropy=entropy * used, used=used, possible=possible * used)

    def _blocks(self, outputs: Tensor, mask: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
        """The logits of each head, and what is legal of it."""
        logits = outputs.float() if self._logit_scale == 1.0 else self._logit_scale * outputs.float()
        blocks = self.spec.unpack(logits)
        masks = [None] * len(blocks) if mask is None else self.spec.unpack(mask)
        return list(zip(blocks, masks, strict=True))


def _of_head(block: Tensor, legal: Tensor | None, ops: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities B C of the choices under the operations B 1, and what is legal of them.

    An argument has a row of choices for each operation, B P C; the operation itself has B P.
    """
    if ops is not None:
        rows = torch.arange(len(block), device=block.device)
        block = block[rows, ops[:, 0]]
        legal = None if legal is None else legal[rows, ops[:, 0]]
    scores = block if legal is None else block.masked_fill(~legal, _ILLEGAL)
    return scores.log_softmax(dim=1), legal


class Gaussian(nn.Module):
    """Independent normal distributions with a deviation of its own for each dimension."""

    def __init__(self, spec: Box, logit_scale: float = 1.0) -> None:  # noqa: ARG002 there are no logits
        super().__init__()
        self.spec = spec
        self.log_std = nn.Parameter(torch.zeros(spec.num_outputs))

    def deviations(self) -> Tensor:
        """D."""
        return self.log_std.clamp(*_LOG_STD).exp()

    def sample(
        self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool
    ) -> Sampled:
        """Draw actions, or take the means; outputs: B D."""
        actions = outputs.float()
        if not greedy:
            noise = torch.empty_like(actions).normal_(generator=generator)
            actions = actions + noise * self.deviations()
        return Sampled(actions=actions, log_probs=self.evaluate(outputs, mask, actions).log_probs)

    def evaluate(self, outputs: Tensor, mask: Tensor | None, actions: Tensor) -> Evaluation:  # noqa: ARG002 all is legal
        """The log-densities and entropies of given actions, B D float32."""
        spread = self.deviations()
        z = (actions - outputs.float()) / spread
        constant = spread.log().sum() + 0.5 * math.log(2 * math.pi) * self.spec.num_outputs
        log_probs = -0.5 * z.square().sum(dim=1, keepdim=True) - constant
        entropy = (constant + 0.5 * self.spec.num_outputs).expand_as(log_probs)
        return Evaluation(
            log_probs=log_probs,
            entropy=entropy,
            used=torch.ones_like(log_probs, dtype=torch.bool),
            possible=torch.zeros_like(log_probs),
        )


DISTRIBUTIONS: Final[dict[type, Callable[..., nn.Module]]] = {Factored: Categorical, Box: Gaussian}
"""The distribution over each kind of action."""


def distribution(spec: ActionSpec, logit_scale: float) -> Distribution:
    """The distribution over actions of this kind."""
    return cast("Distribution", DISTRIBUTIONS[type(spec)](spec, logit_scale))


class Normaliser(nn.Module):
    """Running mean and deviation of each number of an observation; changes none before its first rows."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.mean: Tensor
        self.variance: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))  # rows seen

    def forward(self, features: Tensor) -> Tensor:
        """B S in deviations from the mean, float32."""
        # In float32, as what is far from 0 differs little: the difference is taken before rounding.
        centred = (features.double() - self.mean).float()
        scaled = centred / self.variance.sqrt().clamp(min=_STD_MIN).float()
        return scaled.clamp(-_REACH, _REACH)

    @torch.no_grad()
    def report(self, features: Tensor) -> dict[str, Tensor]:
        """How well it fits rows that it has not seen yet, B S."""
        scaled = self(features)
        return {
            "observation_outliers": (scaled.abs() > _FAR).float().mean(),
            "observation_drift": scaled.mean(dim=0).abs().mean(),
        }

    @torch.no_grad()
    def update(self, features: Tensor, ranks: Ranks) -> None:
        """Take in rows, B S; one of which any number is not finite moves nothing, the others do."""
        count, mean, variance = moments(features, ranks, torch.isfinite(features).all(dim=1))
        go = count > 0
        total = self.count + count
        apart = mean - self.mean
        spread = (self.count * self.variance + count * variance) / total
        spread = spread + apart.square() * self.count * count / total.square()
        self.mean.copy_(torch.where(go, self.mean + apart * count / total, self.mean))
        self.variance.copy_(torch.where(go, spread, self.variance))
        self.count += torch.where(go, count, 0.0)


class Policy(nn.Module):
    """A network with its distribution, and with a normaliser where observations are normalised.

    It computes by a plan: precision, layout in memory, compiled or not.
    """

    def __init__(self, spec: WorldSpec, config: Any, *, seed: int) -> None:
        """`config` has the first settings of `PPOConfig`; `ValueError` when they do not fit the world."""
        super().__init__()
        init = torch.Generator().manual_seed(seed)
        size = Size(width=config.width, depth=config.depth, activation=config.activation)
        made = network(config.network, spec.observation, spec.action, init, size)
        self.network: Any = made
        self.actions: Any = distribution(spec.action, config.logit_scale)
        self.normaliser = _normaliser(spec.observation) if config.normalise_observations else None
        self.plan = Plan()
        self.num_memory: int | None = made.num_memory if isinstance(made, Recurrent) else None
        """M, of a network with memory."""
        self.compiled: tuple[Callable[[Tensor], tuple[Tensor, Tensor]], ...] = ()
        """The network as the plan has it compiled; a tuple, which hides it from `nn.Module`."""

    def apply_plan(self, plan: Plan) -> None:
        """Compute by another plan from now on; the weights stay as they are."""
        self.plan = plan
        layout = torch.channels_last if plan.channels_last else torch.contiguous_format
        for module in self.modules():
            if isinstance(module, Encoder):
                module.layout = layout
            elif isinstance(module, nn.Conv2d):
                module.weight.data = module.weight.data.contiguous(memory_format=layout)
        self.compiled = (torch.compile(self.network),) if plan.is_compiled else ()

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """B L and B, in the critic's units, in the plan's precision; of first steps where there is memory."""
        seen = features if self.normaliser is None else self.normaliser(features)
        with self._precision(features.device):
            compute = self.compiled[0] if self.compiled else self.network
            found: tuple[Tensor, Tensor] = compute(seen)
        return found

    def unroll(self, features: Tensor, memory: Tensor, begins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `forward`, of T B S step by step with a memory: T B L, T B, and the memory after each, T B M."""
        seen = features if self.normaliser is None else self.normaliser(features)
        with self._precision(features.device):
            found: tuple[Tensor, Tensor, Tensor] = self.network.unroll(seen, memory, begins)
        return found

    def step(self, features: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """One step: B L, B, and the memory after it, B M or none."""
        if self.num_memory is None:
            return *self(features), None
        if memory is None:
            memory = features.new_zeros(len(features), self.num_memory, dtype=torch.float32)
        begins = torch.zeros(1, len(features), dtype=torch.bool, device=features.device)
        outputs, values, memories = self.unroll(features[None], memory, begins)
        return outputs[0], values[0], memories[0]

    def outputs_of(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """B L and B, and the memory after each step where there is one."""
        sequences = batch.sequences
        if sequences is None:
            return *self(batch.features), None
        features = batch.features.view(*sequences.begins.shape, *batch.features.shape[1:])
        outputs, values, memories = self.unroll(features, sequences.memory, sequences.begins)
        return outputs.flatten(0, 1), values.flatten(), memories

    def _precision(self, device: torch.device) -> AbstractContextManager[object]:
        if self.plan.precision == "fp32":
            return nullcontext()
        return torch.autocast("cpu" if device.type == "meta" else device.type, dtype=torch.bfloat16)


def _normaliser(seen: ObservationSpec) -> Normaliser:
    if len(seen.shape) != 1 or seen.codes or not seen.dtype.is_floating_point:
        raise ValueError(
            f"normalise_observations needs vectors of floats, not {seen.shape} of {seen.dtype}; leave it out"
        )
    return Normaliser(seen.shape)
