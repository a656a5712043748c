"""Distributions over actions: factored categorical choices under a mask, and Gaussians.

Rules: an illegal choice has probability zero; heads that the chosen operation does not use give no
log-probability, no entropy and no gradient; nothing is read from the device. Randomness comes from a passed
generator, on the device of the outputs. One row of `DISTRIBUTIONS` a kind of action.

Shape letters as in `types`: B rows, L outputs, H heads, D dimensions; P operations, C choices of one head.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

import torch
from torch import Tensor, nn

from overwatch_rl.types import ActionSpec, Box, Factored

_ILLEGAL: Final = -1e9
_TINY: Final = torch.finfo(torch.float32).tiny
_LOG_STD: Final = (-5.0, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Actions, and how likely they were."""

    actions: Tensor  # B H int64, 0 where unused; B D float32
    log_probs: Tensor  # B H, 0 where unused
    ops: Tensor | None = None  # B P, log-probability of each operation; None where continuous


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
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

    def judge(self, outputs: Tensor, mask: Tensor | None, actions: Tensor) -> Judged:
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

    def judge(self, outputs: Tensor, mask: Tensor | None, actions: Tensor) -> Judged:
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
            return Judged(log_probs=taken, entropy=entropy, used=used, possible=possible)
        taken, entropy, possible = (torch.stack(column, dim=1) for column in zip(*columns, strict=True))
        used = self.uses[actions[:, 0]]
        return Judged(log_probs=taken * used, entropy=entropy * used, used=used, possible=possible * used)

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
        return Sampled(actions=actions, log_probs=self.judge(outputs, mask, actions).log_probs)

    def judge(self, outputs: Tensor, mask: Tensor | None, actions: Tensor) -> Judged:  # noqa: ARG002 all is legal
        """The log-densities and entropies of given actions, B D float32."""
        spread = self.deviations()
        z = (actions - outputs.float()) / spread
        constant = spread.log().sum() + 0.5 * math.log(2 * math.pi) * self.spec.num_outputs
        log_probs = -0.5 * z.square().sum(dim=1, keepdim=True) - constant
        entropy = (constant + 0.5 * self.spec.num_outputs).expand_as(log_probs)
        return Judged(
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
