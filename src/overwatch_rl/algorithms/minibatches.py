"""The minibatches of one update as its numbers, as PPO reports them.

Rules: nothing is read from the device; what is undefined is `UNDEFINED`; minibatches after an early stop
count for nothing. Must not know losses, networks or optimisers.

Shape letters as in `types`: H heads; M minibatches of an update.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from overwatch_rl.algorithms import diagnostics
from overwatch_rl.types import Stats
from overwatch_rl.undefined import ratio, where_defined

HIDDEN_SQUARE: Final = "hidden_square"
"""The sum over rows of the mean square of a memory; not there without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is reported of one minibatch, without gradients: sums over rows, and extremes."""

    sums: dict[str, Tensor]
    """Scalars to be divided by the rows, or by another sum."""
    heads: Tensor  # 6 H: entropy in nat, the most it could be, and rows, over rows with a choice; then KL,
    # rows, and rows whose ratio of the head alone is beyond the clip, over rows that used it
    most: dict[str, Tensor]
    """Scalars, or numbers of each head, of which the largest counts."""

    def plus(self, other: "Terms") -> "Terms":
        """Both together."""
        return Terms(
            sums={name: value + other.sums[name] for name, value in self.sums.items()},
            heads=self.heads + other.heads,
            most={name: torch.maximum(value, other.most[name]) for name, value in self.most.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """Of the gradient of a minibatch, before clipping."""

    layers: Tensor  # of each parameter
    whole: Tensor  # scalar
    heads: Tensor  # H, of the last layer of each head


def relative_entropy(entropy: Tensor, possible: Tensor, rows: Tensor) -> Tensor:
    """Scalar in 0..1 from three H, sums over rows with a choice; undefined when no row had one."""
    count = rows.clamp(min=1)
    return ratio((entropy / count).sum(), (possible / count).sum())


class Minibatches:
    """The minibatches of one update, as tensors."""

    def __init__(self, per_epoch: int, planned: int, heads: tuple[str, ...]) -> None:
        """`planned` minibatches, so many an epoch; `heads` are named where there are several."""
        self._per_epoch, self._planned, self._heads = per_epoch, planned, heads
        self._terms: list[tuple[Terms, int]] = []
        self._norms: list[Norms] = []
        self._live: list[Tensor] = []

    def add(self, terms: Terms, rows: int, norms: Norms, live: Tensor) -> None:
        """Keep one; `live` is false where the update had stopped before it."""
        self._terms.append((terms, rows))
        self._norms.append(norms)
        self._live.append(live)

    def epoch_kl(self) -> Tensor:
        """Joint KL of the newest epoch, the mean over its minibatches."""
        newest = self._terms[-self._per_epoch :]
        return torch.stack([terms.sums["kl_joint"] / rows for terms, rows in newest]).mean()

    def _of_heads(self, heads: Tensor, last: Tensor, live: Tensor) -> Stats:
        """Of each head: from 6 H, sums over the minibatches that ran, and over those of the last epoch."""
        if not self._heads:
            return {}
        ran = live[:, None] > 0
        ratios = torch.stack([terms.most["ratio_max_of_heads"] for terms, _ in self._terms])
        largest = torch.where(ran, ratios, -torch.inf).amax(dim=0)
        norms = torch.where(ran, torch.stack([one.heads for one in self._norms]), 0.0).sum(dim=0)
        found = {
            "entropy": ratio(heads[0], heads[1]), "kl_divergence": ratio(last[3], last[4]),
            "clip_fraction": ratio(heads[5], heads[4]), "grad_norm": norms / live.sum(),
            "ratio_max": where_defined(heads[4] > 0, largest),
        }  # fmt: skip
        return {
            f"{row}/{head}": value
            for row, values in found.items()
            for head, value in zip(self._heads, values.unbind(), strict=True)
        }

    def _of_memory(self, mean: Callable[[Tensor], Tensor]) -> Stats:
        """How large it was over all steps; of a policy without it nothing."""
        if HIDDEN_SQUARE not in self._terms[0][0].sums:
            return {}
        squares = torch.stack([terms.sums[HIDDEN_SQUARE] / rows for terms, rows in self._terms])
        return {"hidden_rms": mean(squares).sqrt()}

    def stats(self) -> Stats:
        """All numbers."""
        live = torch.stack(self._live).to(torch.float32)  # M
        norms = torch.stack([one.whole for one in self._norms])
        layers = torch.stack([one.layers for one in self._norms])
        not_finite = (~torch.isfinite(norms) & (live > 0)).sum()

        def column(name: str) -> Tensor:
            return torch.stack([terms.sums[name] / rows for terms, rows in self._terms])

        def mean(values: Tensor) -> Tensor:
            return torch.where(live > 0, values, 0.0).sum() / live.sum()

        def last_epoch(values: Tensor) -> Tensor:
            by_epoch = values.view(-1, self._per_epoch).mean(dim=1)
            epoch = live.view(-1, self._per_epoch)[:, 0].sum().long() - 1
            return by_epoch.gather(0, epoch[None]).squeeze(0)

        def most(name: str) -> Tensor:
            values = torch.stack([terms.most[name] for terms, _ in self._terms])
            return torch.where(live > 0, values, -torch.inf).max()

        kl = torch.stack([terms.sums["kl"] / terms.sums["used"] for terms, _ in self._terms])
        every = torch.stack([terms.heads for terms, _ in self._terms]) * live[:, None, None]
        heads = every.sum(dim=0)
        ran = every.view(-1, self._per_epoch, *heads.shape).sum(dim=1)
        newest = (live.view(-1, self._per_epoch)[:, 0].sum().long() - 1)[None]
        names = (
            "policy_loss", "value_loss", "value_loss_unclipped", "total_loss", "clip_fraction_up",
            "clip_fraction_down", "log_ratio_clamped", "value_clipped", "ratio_mean",
        )  # fmt: skip
        means = {name: mean(column(name)) for name in names}
        return (
            means
            | diagnostics.of_gradients(norms, layers, live)
            | {
                "clip_fraction": means["clip_fraction_up"] + means["clip_fraction_down"],
                "kl_divergence": last_epoch(kl),
                "kl_joint": last_epoch(column("kl_joint")),
                "kl_max": torch.where(live > 0, kl, -torch.inf).max(),
                "entropy": relative_entropy(heads[0], heads[1], heads[2]),
                "ratio_max": most("ratio_max"),
                "ratio_min": -most("ratio_min"),
                "log_prob_max": most("log_prob_max"),
                "log_prob_min": -most("log_prob_min"),
                "first_ratio_error": self._terms[0][0].most["first_ratio_error"],
                "minibatches_skipped": self._planned - live.sum() + not_finite,
                "minibatches_not_finite": not_finite,
            }
            | self._of_heads(heads, ran.index_select(0, newest).squeeze(0), live)
            | self._of_memory(mean)
        )
