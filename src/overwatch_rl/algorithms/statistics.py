"""Statistics that scale what is learned: PopArt for values.

Rules: statistics are over all ranks; nothing is read from the device; an update that is not to happen leaves
every tensor bit-unchanged. Must not know losses or worlds.

Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude" (PopArt); the moments of
Adam are rescaled with the weights, so that the next step is the one it would have been.
"""

from typing import Final

import torch
from torch import Tensor, nn

from overwatch_rl.algorithms.ranks import Ranks

BETA_MIN: Final = 1e-3
"""Least weight of the newest rollout in the running moments."""
STD_MIN: Final = 1e-4
"""Least deviation: returns that do not vary do not make the critic's scale vanish."""


class PopArt(nn.Module):
    """Running mean and deviation of returns; a critic that predicts in their units."""

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
        return (self.square - self.mean.square()).clamp(min=STD_MIN**2).sqrt()

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
        """Move to the returns of a rollout and keep what the critic predicts unchanged.

        Returns that are not finite move nothing. `value` is the critic's last layer.
        """
        mean, square = ranks.mean(torch.stack([returns.double().mean(), returns.double().square().mean()]))
        go = torch.isfinite(mean) & torch.isfinite(square)
        beta = torch.clamp(1.0 / (self.count + 1.0), min=BETA_MIN) * go
        before_mean, before_std = self.mean.clone(), self.std()
        # `where`, since NaN times a weight of zero is NaN.
        self.mean += beta * torch.where(go, mean - self.mean, 0.0)
        self.square += beta * torch.where(go, square - self.square, 0.0)
        self.count += go
        std = self.std()
        ratio = (before_std / std).to(value.weight.dtype)
        value.weight *= ratio
        shifted = (before_std * value.bias.double() + before_mean - self.mean) / std
        value.bias.copy_(torch.where(go, shifted, value.bias.double()))
        for parameter in (value.weight, value.bias):
            moments = optimizer.state.get(parameter, {})
            if "exp_avg" in moments:
                moments["exp_avg"] *= ratio
                moments["exp_avg_sq"] *= ratio.square()
