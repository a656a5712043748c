"""Numbers of the episodes and actions of a rollout, as scalars on the device, by short catalogue name.

Rules: nothing is read from the device; what is undefined is `UNDEFINED`. Must not know algorithms.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from overwatch_rl.algorithms.common import varies
from overwatch_rl.undefined import ratio, where_defined

_QUANTILES: Final = {"return_p10": 0.1, "return_p50": 0.5, "return_p90": 0.9}


def of_episodes(returns: Tensor, ended: Tensor, truncated: Tensor) -> dict[str, Tensor]:
    """Of the episodes that ended; returns: T N, valid where ended (T N bool); truncated: T N bool.

    Episodes whose return is not known, NaN, count in `timeout_rate` alone.
    """
    all_ended, ended = ended, ended & returns.isfinite()
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
        "return_skewness": where_defined(varies(variance, mean), skewness),
    }
    values = {name: where_defined(count > 0, value) for name, value in values.items()}
    return values | {"timeout_rate": ratio((truncated & all_ended).sum(), all_ended.sum())}


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
