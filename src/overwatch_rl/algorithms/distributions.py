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
class Judged:
    """Actions, and how likely and how free they were."""

    actions: Tensor  # B H int64, 0 where unused; B D float32
    log_probs: Tensor  # B H, 0 where unused
    entropy: Tensor  # B H nat, 0 where unused
    used: Tensor  # B H bool, heads that the operation depends on
    possible: Tensor  # B H nat, the entropy of choosing uniformly among what was legal; 0 where continuous
    ops: Tensor | None = None  # B P, log-probability of each operation; None where continuous


class Distribution(Protocol):
    """A kind of action as a module, since some have parameters."""

    def sample(
        self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None, *, greedy: bool
    ) -> Judged:
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
    ) -> Judged:
        """Draw actions, or take the likeliest; outputs: B L, mask: B L bool."""

        def choose(log_probs: Tensor, _: int) -> Tensor:
            if greedy:
                return log_probs.argmax(dim=1)
            # The least of exponential draws scaled by 1/p falls on a choice with probability p, and unlike
            # `multinomial` this never waits for the device.
            noise = torch.empty_like(log_probs).exponential_(generator=generator)
            # A draw of zero would make any choice certain, an illegal one too.
            return (log_probs - noise.clamp(min=_TINY).log()).argmax(dim=1)

        return self._decide(outputs, mask, choose)

    def judge(self, outputs: Tensor, mask: Tensor | None, actions: Tensor) -> Judged:
        """The log-probabilities and entropies of given actions, B H int64."""
        return self._decide(outputs, mask, lambda _, number: actions[:, number])

    def _decide(
        self, outputs: Tensor, mask: Tensor | None, choose: Callable[[Tensor, int], Tensor]
    ) -> Judged:
        logits = self._logit_scale * outputs.float()
        blocks = self.spec.unpack(logits)
        masks = [None] * len(blocks) if mask is None else self.spec.unpack(mask)
        rows = torch.arange(len(logits), device=logits.device)
        columns: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        ops = rows
        of_ops: Tensor | None = None
        for number, (block, legal) in enumerate(zip(blocks, masks, strict=True)):
            scores = block if number == 0 else block[rows, ops]
            if legal is None:
                possible = torch.full_like(scores[:, 0], math.log(scores.shape[1]))
            else:
                allowed = legal if number == 0 else legal[rows, ops]
                scores = scores.masked_fill(~allowed, _ILLEGAL)
                possible = allowed.sum(dim=1).clamp(min=1).to(scores.dtype).log()
            log_probs = scores.log_softmax(dim=1)
            of_ops = log_probs if number == 0 else of_ops
            chosen = choose(log_probs, number)
            entropy = -(log_probs.exp() * log_probs).sum(dim=1)
            columns.append((chosen, log_probs.gather(1, chosen[:, None]).squeeze(1), entropy, possible))
            ops = chosen if number == 0 else ops
        chosen, taken, entropy, possible = (
            torch.stack(column, dim=1) for column in zip(*columns, strict=True)
        )
        used = self.uses[ops]
        return Judged(
            actions=chosen * used,
            log_probs=taken * used,
            entropy=entropy * used,
            used=used,
            possible=possible * used,
            ops=of_ops,
        )


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
    ) -> Judged:
        """Draw actions, or take the means; outputs: B D."""
        means = outputs.float()
        if greedy:
            return self.judge(outputs, mask, means)
        noise = torch.empty_like(means).normal_(generator=generator)
        return self.judge(outputs, mask, means + noise * self.deviations())

    def judge(self, outputs: Tensor, mask: Tensor | None, actions: Tensor) -> Judged:  # noqa: ARG002 all is legal
        """The log-densities and entropies of given actions, B D float32."""
        spread = self.deviations()
        z = (actions - outputs.float()) / spread
        constant = spread.log().sum() + 0.5 * math.log(2 * math.pi) * self.spec.num_outputs
        log_probs = -0.5 * z.square().sum(dim=1, keepdim=True) - constant
        entropy = (constant + 0.5 * self.spec.num_outputs).expand_as(log_probs)
        return Judged(
            actions=actions,
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
