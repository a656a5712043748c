"""Statistics that scale what is learned: PopArt for values, running moments for observations.

Rules: statistics are over all ranks; nothing is read from the device; an update that is not to happen leaves
every tensor bit-unchanged. Must not know losses or worlds.

Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude" (PopArt); the moments of
Adam are rescaled with the weights, so that the next step is the one it would have been. Moments of
rollouts are joined as in Chan et al. 1979, "Updating formulae and a pairwise algorithm for computing sample
variances".

Shapes: B rows, S an observation.
"""

from typing import Final

import torch
from torch import Tensor, nn

from overwatch_rl.algorithms.ranks import Ranks

BETA_MIN: Final = 1e-3
"""Least weight of the newest rollout in the running moments."""
STD_MIN: Final = 1e-4
"""Least deviation: returns that do not vary do not make the critic's scale vanish."""
FAR: Final = 3.0
"""Deviations beyond which an observation is an outlier."""
_REACH: Final = 10.0
"""Deviations at which a normalised observation is cut off."""


def moments(values: Tensor, ranks: Ranks, rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and variance of the rows of all ranks in float64; values: B or B S.

    `rows`: B bool, those that count; of none of them the mean is 0.
    """
    values = values.double()
    if rows is None:
        if ranks.size == 1:
            return (
                torch.full_like(values.flatten()[0], len(values)),
                values.mean(dim=0),
                values.var(dim=0, unbiased=False),
            )
        rows = torch.ones(len(values), dtype=torch.bool, device=values.device)
    wide = rows.view(-1, *(1,) * (values.dim() - 1))
    count = ranks.sum(rows.sum().double())
    least = count.clamp(min=1.0)
    mean = ranks.sum(torch.where(wide, values, 0.0).sum(dim=0)) / least
    # Around the mean of all ranks: far from 0 a mean of squares less the square of the mean is rounding.
    return count, mean, ranks.sum(torch.where(wide, values - mean, 0.0).square().sum(dim=0)) / least


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
        """Move to the returns of a rollout, B, and keep what the critic predicts unchanged.

        Returns that are not finite move nothing. `value` is the critic's last layer.
        """
        _, mean, variance = moments(returns, ranks)
        square = variance + mean.square()
        go = torch.isfinite(square)
        beta = torch.clamp(1.0 / (self.count + 1.0), min=BETA_MIN)
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
        scaled = centred / self.variance.sqrt().clamp(min=STD_MIN).float()
        return scaled.clamp(-_REACH, _REACH)

    @torch.no_grad()
    def report(self, features: Tensor) -> dict[str, Tensor]:
        """How well it fits rows that it has not seen yet, B S."""
        scaled = self(features)
        return {
            "observation_outliers": (scaled.abs() > FAR).float().mean(),
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
