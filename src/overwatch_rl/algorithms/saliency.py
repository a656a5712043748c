"""Which cells of what it sees a policy's decision hangs on: the gradient at the input.

Source: Simonyan et al. 2014, "Deep inside convolutional networks", section 3: the weight of a cell is the
largest magnitude over its channels. Where the observation is a grid of codes, which has no gradient, channels
are what the network's table makes of them. A gradient is of one state and its surroundings: it measures how
sensitive a decision is to a cell, not what would happen without it.

Shape letters: B rows, V rows and columns of a grid.
"""

from typing import Final

import torch
from torch import Tensor, nn

from overwatch_rl.algorithms.networks import Encoder
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.types import Observation

OF: Final = ("action", "value")
"""The log-probability of the likeliest action, or the value, in the critic's units."""


def saliency(policy: PPO, observation: Observation, of: str = "action") -> Tensor:
    """B V V float32, 0 or more: each cell's weight in each state.

    Raises `ValueError` where `of` is unknown, or the policy does not see a grid.
    """
    if of not in OF:
        raise ValueError(f"of is {of!r}; use one of {', '.join(OF)}")
    [encoder] = [module for module in policy.policy.modules() if isinstance(module, Encoder)]
    if len(encoder.shape) != 3:
        raise ValueError(f"saliency needs a policy that sees a grid; this one sees {encoder.shape} numbers")
    seen: list[Tensor] = []

    def part(_: nn.Module, __: tuple[Tensor, ...], encoded: Tensor) -> Tensor:
        seen.append(encoded.detach().requires_grad_())
        return seen[0]

    hook = encoder.register_forward_hook(part)
    try:
        outputs, values = policy.policy(observation.features)
    finally:
        hook.remove()
    if of == "action":
        values = policy.actions.sample(outputs, observation.mask, None, greedy=True).log_probs.sum(dim=1)
    [gradient] = torch.autograd.grad(values.sum(), seen)
    return gradient.abs().amax(dim=1)
