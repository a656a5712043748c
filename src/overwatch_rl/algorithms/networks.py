"""The policy and its critic, and the factored distribution over actions.

Rules: an illegal choice has probability zero; heads that the chosen operation does not use give no
log-probability, no entropy and no gradient. Randomness comes from a passed generator.

Shape letters as in `types`: B rows, D features, L logits, H heads; P operations, C choices of one head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from overwatch_rl.types import ActionSpec, Observation

HIDDEN: Final = 64
LOGIT_SCALE: Final = 0.25
"""Logits are this share of the last layer's output: a step too large then moves the policy too far, which can
be seen and undone, rather than saturating it for ever at once."""
_ILLEGAL: Final = -1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Actions and what they cost and left open."""

    actions: Tensor  # B H int64, 0 where unused
    log_probs: Tensor  # B H, 0 where unused
    entropy: Tensor  # B H nat, 0 where unused
    used: Tensor  # B H bool, heads that the operation depends on
    num_legal: Tensor  # B H int64, choices that were legal, 0 where unused


class ActorCritic(nn.Module):
    """Two tanh networks of two layers: one for the logits of all heads, one for the value."""

    def __init__(self, num_features: int, spec: ActionSpec, generator: torch.Generator) -> None:
        super().__init__()
        self.spec = spec
        self.actor = _network(num_features, spec.num_logits, generator, gain=0.01)
        self.critic = _network(num_features, 1, generator, gain=1.0)
        self.uses: Tensor
        self.register_buffer("uses", torch.tensor(spec.uses), persistent=False)

    def value(self, features: Tensor) -> Tensor:
        """B from B D."""
        values: Tensor = self.critic(features)
        return values.squeeze(-1)

    def act(self, observation: Observation, generator: torch.Generator | None) -> Decision:
        """Draw actions; without a generator take the likeliest."""
        return self._decide(observation, None, generator)

    def judge(self, observation: Observation, actions: Tensor) -> Decision:
        """The log-probabilities and entropies of given actions, B H int64."""
        return self._decide(observation, actions, None)

    def _decide(
        self, observation: Observation, given: Tensor | None, generator: torch.Generator | None
    ) -> Decision:
        logits = (LOGIT_SCALE * self.actor(observation.features)).masked_fill(~observation.mask, _ILLEGAL)
        rows = torch.arange(len(logits), device=logits.device)
        columns: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        ops = rows
        blocks = zip(self.spec.unpack(logits), self.spec.unpack(observation.mask), strict=True)
        for number, (block, allowed) in enumerate(blocks):
            scores, legal = (block, allowed) if number == 0 else (block[rows, ops], allowed[rows, ops])
            log_probs = scores.log_softmax(dim=1)
            chosen = _choose(log_probs, generator) if given is None else given[:, number]
            entropy = -(log_probs.exp() * log_probs).sum(dim=1)
            taken = log_probs.gather(1, chosen[:, None]).squeeze(1)
            columns.append((chosen, taken, entropy, legal.sum(dim=1)))
            ops = chosen if number == 0 else ops
        chosen, taken, entropy, num_legal = (
            torch.stack(column, dim=1) for column in zip(*columns, strict=True)
        )
        used = self.uses[ops]
        return Decision(
            actions=chosen * used,
            log_probs=taken * used,
            entropy=entropy * used,
            used=used,
            num_legal=num_legal * used,
        )


def player(policy: ActorCritic, generator: torch.Generator | None = None) -> Callable[[Observation], Tensor]:
    """A frozen policy as a function from an observation to actions, N H int64; drawn with a generator."""

    @torch.no_grad()
    def act(observation: Observation) -> Tensor:
        return policy.act(observation, generator).actions

    return act


def _choose(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """B int64 from B C."""
    if generator is None:
        return log_probs.argmax(dim=1)
    return torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1)


def _network(inputs: int, outputs: int, generator: torch.Generator, gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width_in, width_out, scale in (
        (inputs, HIDDEN, 2**0.5),
        (HIDDEN, HIDDEN, 2**0.5),
        (HIDDEN, outputs, gain),
    ):
        layer = nn.Linear(width_in, width_out)
        nn.init.orthogonal_(layer.weight, gain=scale, generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])
