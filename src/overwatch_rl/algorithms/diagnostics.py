"""Numbers about a batch and its gradients, as scalars on the device, by short catalogue name.

Rules: nothing is read from the device; a number that is undefined is NaN. Computed once an update from
tensors that are there anyway. Must not know losses or networks.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

_NO_VARIANCE: Final = 1e-12
LAYER_DEAD: Final = 1e-6
"""A layer whose gradient is shorter than this learns next to nothing."""
LAYER_EXPLODING: Final = 100.0
"""A layer whose gradient is longer than this gets far too much."""


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Share of the returns' variance that the values predict; NaN when returns do not vary."""
    variance = returns.var(unbiased=False)
    share = 1 - (returns - values).var(unbiased=False) / variance
    return torch.where(variance > _NO_VARIANCE, share, torch.nan)


def of_advantages(advantages: Tensor) -> dict[str, Tensor]:
    """Moments before normalisation; kurtosis is the excess over a normal distribution."""
    mean, std = advantages.mean(), advantages.std(unbiased=False)
    z = (advantages - mean) / std
    varies = std.square() > _NO_VARIANCE
    return {
        "advantage_mean": mean,
        "advantage_std": std,
        "advantage_skewness": torch.where(varies, z.pow(3).mean(), torch.nan),
        "advantage_kurtosis": torch.where(varies, z.pow(4).mean() - 3.0, torch.nan),
        "advantage_positive": (advantages > 0).to(advantages.dtype).mean(),
    }


def of_values(values: Tensor, returns: Tensor, td_errors: Tensor) -> dict[str, Tensor]:
    """What the collecting critic expected, and how wrong it was; all in the scale of returns."""
    error = returns - values
    spread = returns.std(unbiased=False)
    apart = spread * values.std(unbiased=False)
    together = ((returns - returns.mean()) * (values - values.mean())).mean()
    return {
        "explained_variance": explained_variance(values, returns),
        "value_mean": values.mean(),
        "value_std": values.std(unbiased=False),
        "value_min": values.min(),
        "value_max": values.max(),
        "value_nrmse": torch.where(
            spread.square() > _NO_VARIANCE, error.square().mean().sqrt() / spread, torch.nan
        ),
        "value_correlation": torch.where(apart > _NO_VARIANCE, together / apart, torch.nan),
        "td_error_mean": td_errors.mean(),
        "td_error_std": td_errors.std(unbiased=False),
        "bellman_error": td_errors.abs().mean(),
    }


def of_episodes(returns: Tensor, ended: Tensor, truncated: Tensor) -> dict[str, Tensor]:
    """Of the episodes that ended; returns: T N, valid where ended (T N bool); truncated: T N bool."""
    count = ended.sum()
    picked = torch.where(ended, returns, torch.nan).flatten().float()
    quantiles = torch.nanquantile(picked, torch.tensor([0.1, 0.5, 0.9], device=picked.device))
    mean = picked.nansum() / count
    deviations = torch.where(ended.flatten(), picked - mean, 0.0)
    variance = deviations.square().sum() / count
    skewness = deviations.pow(3).sum() / count / variance.pow(1.5)
    return {
        "return": mean,
        "return_p10": quantiles[0],
        "return_p50": quantiles[1],
        "return_p90": quantiles[2],
        "return_variance": variance,
        "return_skewness": torch.where(variance > _NO_VARIANCE, skewness, torch.nan),
        "timeout_rate": (truncated & ended).sum() / count,
    }


def of_actions(ops: Tensor, labels: Sequence[str]) -> dict[str, Tensor]:
    """The share of each operation in what was done, `action/LABEL`; ops: int64 of any shape."""
    numbers = torch.arange(len(labels), device=ops.device)
    shares = (ops.flatten()[:, None] == numbers).double().mean(dim=0)
    return {f"action/{label}": share for label, share in zip(labels, shares.unbind(), strict=True)}


def of_gradients(norms: Tensor, layers: Tensor, live: Tensor) -> dict[str, Tensor]:
    """norms: M, before clipping; layers: M P, of each parameter; live: M, 1 where a minibatch counts."""
    count = live.sum()
    counted = torch.where(live > 0, norms, 0.0)
    mean = counted.sum() / count
    spread = (torch.where(live > 0, norms - mean, 0.0).square().sum() / count).sqrt()
    typical = torch.where(live[:, None] > 0, layers, 0.0).sum(dim=0) / count
    return {
        "grad_norm": mean,
        "grad_variation": spread / mean,
        "layers_dead": (typical < LAYER_DEAD).sum(),
        "layers_exploding": (typical > LAYER_EXPLODING).sum(),
    }


def merged(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """All of them; a name must not come twice."""
    names = [name for part in parts for name in part]
    if len(names) != len(set(names)):
        raise AssertionError(
            f"a number is computed twice: {sorted({n for n in names if names.count(n) > 1})}"
        )
    return {name: value for part in parts for name, value in part.items()}
