"""What algorithms share: their contract, ranks, the optimiser, batches, and the numbers of an update.

Rules: tensors in, tensors out, on the algorithm's device; no logger, no clock; nothing is read from it but
under a named `sync_point`; a number that is undefined is `UNDEFINED`. Must not know losses, networks, worlds,
storage or telemetry.

The numbers of PPO, where there is a choice:

- KL is k3, (ratio - 1) - ln ratio, on a log-ratio clamped to +-20, against the policy that collected.
  `kl_divergence` averages over the heads that mattered causally; `kl_joint` takes the joint log-ratio and is
  what other libraries call `approx_kl`. Both are means over the minibatches of the last epoch that ran;
  `kl_max` is the worst `kl_divergence` of any minibatch of the update.
- Entropy is relative: for each head the mean over the rows that used it with more than one legal choice,
  summed over heads, as a share of the same sum of ln(legal choices). Undefined where actions are continuous.
  `entropy_nats` is the mean over all rows of the whole action's, as other libraries report it.
- Where there are several heads, `entropy/HEAD`, `kl_divergence/HEAD`, `clip_fraction/HEAD` and
  `ratio_max/HEAD` are those of one, over the rows that used it, the last two by the head's own ratio;
  undefined where no row did. `grad_norm/HEAD` is that of the weights which give the head's logits.
- `hidden_rms` is the root of the mean square of a recurrent policy's memory over all steps of the rollout.
- The advantage is normalised in each minibatch, over all ranks, by the deviation of a whole population.
  Losses, clip fractions and gradient norms (before clipping) are means over the minibatches that ran; value
  losses are in the critic's units.
- Explained variance is of the collecting policy's values before the update; undefined when returns do not
  vary.

Source of moments: Chan et al. 1979, "Updating formulae and a pairwise algorithm for computing sample
variances".

Shape letters as in `types`: T, N, B, S, H; M minibatches of an update, or the memory of an env.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from overwatch_rl.types import Decision, Observation, Rollout, Stats
from overwatch_rl.undefined import ratio, where_defined

PRECISIONS: Final = ("fp32", "bf16")

B = TypeVar("B")
R_contra = TypeVar("R_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the same numbers are computed: chosen by measurement, kept in checkpoints."""

    precision: str = "fp32"
    """Of all layers but the last ones, in acting and learning alike."""
    channels_last: bool = False
    """Whether images lie channels last in memory."""
    chunk: int | None = None
    """Most rows of one pass; gradients of chunks are added. `None` for whole minibatches."""
    is_compiled: bool = False
    """Whether the network is compiled; on CUDA only."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision is {self.precision!r}; use one of {', '.join(PRECISIONS)}")
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"chunk is {self.chunk}; use 1 or more, or leave it out")


class Learner(Protocol[R_contra, B]):
    """What learns from experience, whichever component made it."""

    config: Any
    """How it learns."""

    @property
    def plan(self) -> Plan:
        """How it computes now."""
        ...

    def apply_plan(self, plan: Plan) -> None:
        """Compute by another plan from now on."""
        ...

    def prepare(self, rollout: R_contra) -> B:
        """The estimates that an update learns from."""
        ...

    def update(self, batch: B) -> Stats:
        """Learn; scalars on the device by short catalogue name."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors only: policy, value, optimiser, statistics, generators."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was when `state` was taken."""
        ...

    def acting_keys(self) -> frozenset[str]:
        """The names in `state_dict` of every tensor that acting reads."""
        ...


class Algorithm(Learner[Rollout, B], Protocol[B]):
    """What acts in worlds and learns."""

    @property
    def policy(self) -> nn.Module:
        """What acts; its tensors are `policy.*` of the state."""
        ...

    def act(
        self, observation: Observation, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Decision:
        """Actions with their log-probabilities and values; drawn, or the likeliest."""
        ...


class Ranks(Protocol):
    """Reductions over all ranks; each is asked by every rank, in the same order."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        ...

    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks of a float tensor of any shape."""
        ...

    def any(self, flag: Tensor) -> Tensor:
        """Bool scalar: whether it is true on any rank."""
        ...

    def average(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its mean over ranks, in place; every rank counts the same."""
        ...

    def share(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by that of the first rank, in place."""
        ...


class Alone:
    """One process."""

    size = 1

    def sum(self, values: Tensor) -> Tensor:
        """Its own."""
        return values

    def any(self, flag: Tensor) -> Tensor:
        """Its own."""
        return flag

    def average(self, tensors: list[Tensor]) -> None:
        """They stay."""

    def share(self, tensors: list[Tensor]) -> None:
        """They stay."""


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


class Adam(torch.optim.Adam):
    """As `torch.optim.Adam`, of which the compiler is kept from nothing; it has no hooks of a step."""

    add_param_group: Any = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad: Any = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict: Any = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict: Any = inspect.unwrap(torch.optim.Optimizer.load_state_dict)

    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
    step.hooked = True


def moments_of(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    """By number of the parameter; tensors are not copied."""
    return {
        f"optimizer.{number}.{name}": value
        for number, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def load_moments(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], state: Mapping[str, Tensor]
) -> None:
    """Copy them back, as each parameter lies in memory."""
    optimizer.state.clear()
    for number, parameter in enumerate(parameters):
        if kept := below(f"optimizer.{number}.", state):
            optimizer.state[parameter] = {name: laid_like(parameter, value) for name, value in kept.items()}


def below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def laid_like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy of a moment where its parameter is and as it lies in memory; of a count, where it is."""
    if value.shape != parameter.shape:
        return value.detach().clone().to(parameter.device)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """What makes the rows of a batch the steps of envs, in order of time, then of envs."""

    begins: Tensor  # T N bool, whether an episode begins with the step; false in the first, see `memory`
    memory: Tensor  # N M, before the first step, zero where an episode begins with it

    def rows(self, envs: Tensor) -> Tensor:
        """The rows of these envs (int64), in the same order."""
        steps, count = self.begins.shape
        return (torch.arange(steps, device=envs.device)[:, None] * count + envs).flatten()

    def of(self, envs: Tensor) -> "Sequences":
        """Of these envs alone (int64)."""
        return Sequences(begins=self.begins[:, envs], memory=self.memory[envs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A rollout with its estimates, flattened over time and envs."""

    features: Tensor  # B S
    mask: Tensor | None  # B L bool
    actions: Tensor  # B H int64 or B D float32
    log_probs: Tensor  # B H
    values: Tensor  # B, of the collecting policy before the update
    advantages: Tensor  # B
    returns: Tensor  # B
    weights: Tensor | None = None  # B, of the policy's loss; None where every step is the policy's own
    sequences: Sequences | None = None
    """Of a policy with memory, which learns from whole envs; `None` where rows stand alone."""
    stats: Stats = field(default_factory=dict)
    """Numbers about the rollout."""

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def num_samples(self) -> int:
        """How many parts minibatches are drawn from: rows, or envs where there are sequences."""
        return len(self) if self.sequences is None else self.sequences.begins.shape[1]

    def drawn(self, index: Tensor) -> "Batch":
        """The units named by `index` (int64)."""
        if self.sequences is None:
            return self.rows(index)
        return replace(self.rows(self.sequences.rows(index)), sequences=self.sequences.of(index))

    def rows(self, index: Tensor) -> "Batch":
        """The rows named by `index` (int64), each alone."""
        columns = _tensors(self)
        picked = {name: None if column is None else column[index] for name, column in columns.items()}
        return replace(self, stats={}, sequences=None, **cast("Any", picked))

    def chunks(self, size: int | None) -> "list[Batch]":
        """Its rows in order, cut into parts of at most `size`; sequences stay whole."""
        if size is None or size >= len(self) or self.sequences is not None:
            return [self]
        columns = _tensors(self)
        count = math.ceil(len(self) / size)
        parts = {
            name: [None] * count if column is None else torch.split(column, size)
            for name, column in columns.items()
        }
        return [
            replace(self, stats={}, **cast("Any", {name: part[number] for name, part in parts.items()}))
            for number in range(count)
        ]


_NO_COLUMNS: Final = ("sequences", "stats")


def _tensors(batch: Batch) -> dict[str, Tensor | None]:
    return {one.name: getattr(batch, one.name) for one in fields(batch) if one.name not in _NO_COLUMNS}


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
            "clip_fraction_down", "log_ratio_clamped", "value_clipped", "ratio_mean", "entropy_nats",
        )  # fmt: skip
        means = {name: mean(column(name)) for name in names}
        return (
            means
            | of_gradients(norms, layers, live)
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


_NO_VARIANCE: Final = 1e-12
"""Of numbers about 1; of larger ones their square decides, since equal numbers then scatter by rounding."""
LAYER_DEAD: Final = 1e-6
"""A layer whose gradient is shorter than this learns next to nothing."""
LAYER_EXPLODING: Final = 100.0
"""A layer whose gradient is longer than this gets far too much."""


def varies(variance: Tensor, mean: Tensor) -> Tensor:
    """Whether numbers of this variance and mean differ by more than rounding."""
    # Negated: a variance that is NaN is a fault to report, not numbers that are all alike.
    return ~(variance <= _NO_VARIANCE * (1.0 + mean.square()))


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Share of the returns' variance that the values predict; undefined when returns do not vary."""
    variance = returns.var(unbiased=False)
    share = 1 - (returns - values).var(unbiased=False) / variance
    return where_defined(varies(variance, returns.mean()), share)


def of_advantages(advantages: Tensor) -> dict[str, Tensor]:
    """Moments before normalisation; kurtosis is the excess over a normal distribution."""
    mean, std = advantages.mean(), advantages.std(unbiased=False)
    z = (advantages - mean) / std
    is_spread = varies(std.square(), mean)
    return {
        "advantage_mean": mean,
        "advantage_std": std,
        "advantage_skewness": where_defined(is_spread, z.pow(3).mean()),
        "advantage_kurtosis": where_defined(is_spread, z.pow(4).mean() - 3.0),
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
    is_spread = varies(spread.square(), returns.mean())
    both = is_spread & varies(expected.square(), values.mean())
    together = ((returns - returns.mean()) * (values - values.mean())).mean()
    return {
        "explained_variance": explained_variance(values, returns),
        "value_mean": values.mean(),
        "value_std": expected,
        "value_min": values.min(),
        "value_max": values.max(),
        "value_nrmse": where_defined(is_spread, error.square().mean().sqrt() / spread),
        "value_correlation": where_defined(both, together / (spread * expected)),
        "td_error_mean": td_errors.mean(),
        "td_error_std": td_errors.std(unbiased=False),
        "bellman_error": td_errors.abs().mean(),
    }


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
