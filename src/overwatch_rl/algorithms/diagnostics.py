"""Numbers about a batch and its gradients, as scalars on the device, by short catalogue name.

Rules: nothing is read from the device; what is undefined is `UNDEFINED`. Computed once an update from tensors
that are there anyway. Must not know losses or networks.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from overwatch_rl.undefined import ratio, where_defined

_NO_VARIANCE: Final = 1e-12
"""Of numbers about 1; of larger ones their square decides, since equal numbers then scatter by rounding."""
_QUANTILES: Final = {"return_p10": 0.1, "return_p50": 0.5, "return_p90": 0.9}
LAYER_DEAD: Final = 1e-6
"""A layer whose gradient is shorter than this learns next to nothing."""
LAYER_EXPLODING: Final = 100.0
"""A layer whose gradient is longer than this gets far too much."""


def _varies(variance: Tensor, mean: Tensor) -> Tensor:
    # Negated: a variance that is NaN is a fault to report, not numbers that are all alike.
    return ~(variance <= _NO_VARIANCE * (1.0 + mean.square()))


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Share of the returns' variance that the values predict; undefined when returns do not vary."""
    variance = returns.var(unbiased=False)
    share = 1 - (returns - values).var(unbiased=False) / variance
    return where_defined(_varies(variance, returns.mean()), share)


def of_advantages(advantages: Tensor) -> dict[str, Tensor]:
    """Moments before normalisation; kurtosis is the excess over a normal distribution."""
    mean, std = advantages.mean(), advantages.std(unbiased=False)
    z = (advantages - mean) / std
    varies = _varies(std.square(), mean)
    return {
        "advantage_mean": mean,
        "advantage_std": std,
        "advantage_skewness": where_defined(varies, z.pow(3).mean()),
        "advantage_kurtosis": where_defined(varies, z.pow(4).mean() - 3.0),
        "advantage_positive": (advantages > 0).to(advantages.dtype).mean(),
    }


def of_staleness(log_ratio: Tensor, cap: float) -> dict[str, Tensor]:
    """How far the policy is from the one that collected; B, the joint log-ratio of actions, clamped.

    The KL is k3 with actions of the collecting policy; the effective sample size is a share of the rows (Kong
    1992, "A note on importance sampling using standardized weights").
    """
    weights = log_ratio.exp()
    return {
        "mismatch_kl": (log_ratio.expm1() - log_ratio).mean(),
        "importance_clipped": (weights > cap).to(weights.dtype).mean(),
        "effective_sample_size": weights.sum().square() / (weights.square().sum() * len(weights)),
    }


def of_values(values: Tensor, returns: Tensor, td_errors: Tensor) -> dict[str, Tensor]:
    """What the collecting critic expected, and how wrong it was; all in the scale of returns."""
    error = returns - values
    spread = returns.std(unbiased=False)
    expected = values.std(unbiased=False)
    varies = _varies(spread.square(), returns.mean())
    both = varies & _varies(expected.square(), values.mean())
    together = ((returns - returns.mean()) * (values - values.mean())).mean()
    return {
        "explained_variance": explained_variance(values, returns),
        "value_mean": values.mean(),
        "value_std": expected,
        "value_min": values.min(),
        "value_max": values.max(),
        "value_nrmse": where_defined(varies, error.square().mean().sqrt() / spread),
        "value_correlation": where_defined(both, together / (spread * expected)),
        "td_error_mean": td_errors.mean(),
        "td_error_std": td_errors.std(unbiased=False),
        "bellman_error": td_errors.abs().mean(),
    }


def of_episodes(returns: Tensor, ended: Tensor, truncated: Tensor) -> dict[str, Tensor]:
    """Of the episodes that ended; returns: T N, valid where ended (T N bool); truncated: T N bool."""
    count = ended.sum()
    picked = torch.where(ended, returns, torch.nan).flatten().float()
    mean = torch.where(ended, returns, 0.0).float().sum() / count
    deviations = torch.where(ended.flatten(), picked - mean, 0.0)
    variance = deviations.square().sum() / count
    skewness = deviations.pow(3).sum() / count / variance.pow(1.5)
    ordered = picked.sort().values  # NaN last
    values = {
        "return": mean,
        **{name: _quantile(ordered, count, share) for name, share in _QUANTILES.items()},
        "return_variance": variance,
        "return_skewness": where_defined(_varies(variance, mean), skewness),
        "timeout_rate": (truncated & ended).sum() / count,
    }
    return {name: where_defined(count > 0, value) for name, value in values.items()}


def of_actions(ops: Tensor, labels: Sequence[str]) -> dict[str, Tensor]:
    """The share of each operation in what was done, `action/LABEL`; ops: int64 of any shape."""
    numbers = torch.arange(len(labels), device=ops.device)
    shares = (ops.flatten()[:, None] == numbers).double().mean(dim=0)
    return {f"action/{label}": share for label, share in zip(labels, shares.unbind(), strict=True)}


def _quantile(ordered: Tensor, count: Tensor, share: float) -> Tensor:
    """Of the first `count` of sorted numbers, between neighbours; torch's own takes at most 2^24."""
    at = (share * (count - 1)).clamp(min=0.0)
    low = at.long()
    high = torch.minimum(low + 1, (count - 1).clamp(min=0))
    below, above = ordered.gather(0, torch.stack([low, high]))
    return torch.lerp(below, above, (at - low).to(ordered.dtype))


def of_gradients(norms: Tensor, layers: Tensor, live: Tensor) -> dict[str, Tensor]:
    """norms: M, before clipping; layers: M P, of each parameter; live: M, 1 where a minibatch counts."""
    count = live.sum()
    mean = torch.where(live > 0, norms, 0.0).sum() / count
    spread = (torch.where(live > 0, norms - mean, 0.0).square().sum() / count).sqrt()
    counts = live[:, None] > 0
    typical = torch.where(counts, layers, 0.0).sum(dim=0) / count
    return {
        "grad_norm": where_defined(count > 0, mean),
        "grad_variation": where_defined(count > 0, ratio(spread, mean)),
        "grad_nan": (layers.isnan() & counts).sum(),
        "grad_inf": (layers.isinf() & counts).sum(),
        "layers_dead": where_defined(count > 0, (typical < LAYER_DEAD).sum()),
        "layers_exploding": where_defined(count > 0, (typical > LAYER_EXPLODING).sum()),
    }


def merged(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """All of them; a name must not come twice."""
    names = [name for part in parts for name in part]
    if len(names) != len(set(names)):
        raise AssertionError(
            f"a number is computed twice: {sorted({n for n in names if names.count(n) > 1})}"
        )
    return {name: value for part in parts for name, value in part.items()}
