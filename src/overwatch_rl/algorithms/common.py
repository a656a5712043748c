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
from collections.abc import Mapping, Sequence
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
        every = torch.arange(len(self), device=self.values.device)
        return [self.rows(part) for part in torch.split(every, size)]


_NO_COLUMNS: Final = ("sequences", "stats")


def _tensors(batch: Batch) -> dict[str, Tensor | None]:
    return {one.name: getattr(batch, one.name) for one in fields(batch) if one.name not in _NO_COLUMNS}


LOG_RATIO_LIMIT: Final = 20.0


def k3(log_ratio: Tensor) -> Tensor:
    """The estimator (ratio - 1) - ln ratio, never negative; any shape."""
    clamped = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return clamped.expm1() - clamped


@dataclass(slots=True, kw_only=True)
class Terms:
    """What a loss leaves of each of R rows, without gradients; what is reported follows from it."""

    log_ratio: Tensor  # R H, 0 for heads that the operation does not use
    log_probs: Tensor  # R H
    entropy: Tensor  # R H nat
    possible: Tensor  # R H nat, the entropy of choosing uniformly among what was legal
    used: Tensor  # R H bool
    policy_loss: Tensor  # R
    value_loss: Tensor  # R
    value_loss_unclipped: Tensor  # R
    total_loss: Tensor  # R
    value_clipped: Tensor  # R bool
    hidden_square: Tensor | None = None  # R, the mean square of a memory

    def columns(self, clip: float) -> dict[str, Tensor]:
        """Of each row, R: what is averaged over minibatches by its name."""
        joint = self.log_ratio.sum(dim=1)
        change = joint.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).expm1()
        names = ("policy_loss", "value_loss", "value_loss_unclipped", "total_loss", "value_clipped")
        hidden = {} if self.hidden_square is None else {"hidden_square": self.hidden_square}
        return (
            {name: getattr(self, name) for name in names}
            | hidden
            | {
                "kl_joint": k3(joint),
                "clip_fraction_up": change > clip,
                "clip_fraction_down": -change > clip,
                "log_ratio_clamped": joint.abs() > LOG_RATIO_LIMIT,
                "ratio_mean": 1 + change,
                "entropy_nats": self.entropy.sum(dim=1),
            }
        )

    def of_heads(self, clip: float) -> Tensor:
        """R 6 H: entropy, the most of it, and 1 where there was a choice; KL, 1, and beyond the clip."""
        used, is_open = self.used, self.used & (self.possible > 0)
        beyond = (self.log_ratio.clamp(max=LOG_RATIO_LIMIT).expm1().abs() > clip) & used
        columns = (self.entropy * is_open, self.possible * is_open, is_open, k3(self.log_ratio) * used, used)
        return torch.stack([one.to(self.entropy.dtype) for one in (*columns, beyond)], dim=1)


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

    def __init__(self, per_epoch: int, planned: int, heads: tuple[str, ...], clip: float) -> None:
        """`planned` minibatches, so many an epoch; `heads` are named where there are several."""
        self._per_epoch, self._planned, self._heads, self._clip = per_epoch, planned, heads, clip
        self._terms: list[Terms] = []
        self._norms: list[Norms] = []
        self._live: list[Tensor] = []

    def add(self, chunks: list[Terms], norms: Norms, live: Tensor) -> None:
        """Keep one, in the chunks that it was learned in; `live` is false once the update had stopped."""
        self._terms.append(_joined(chunks))
        self._norms.append(norms)
        self._live.append(live)

    def epoch_kl(self) -> Tensor:
        """Joint KL of the newest epoch, the mean over its minibatches."""
        newest = [terms.log_ratio.sum(dim=1) for terms in self._terms[-self._per_epoch :]]
        return torch.stack([k3(log_ratio).mean() for log_ratio in newest]).mean()

    def _of_heads(self, heads: Tensor, last: Tensor, live: Tensor, largest: Tensor) -> Stats:
        """Of each head: from 6 H, sums over the minibatches that ran, and over those of the last epoch."""
        if not self._heads:
            return {}
        ran = live[:, None] > 0
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

    def stats(self) -> Stats:
        """All numbers."""
        live = torch.stack(self._live).to(torch.float32)  # M
        norms = torch.stack([one.whole for one in self._norms])
        layers = torch.stack([one.layers for one in self._norms])
        not_finite = (~torch.isfinite(norms) & (live > 0)).sum()
        sizes = [len(terms.log_ratio) for terms in self._terms]
        terms = _joined(self._terms)
        columns = terms.columns(self._clip)
        rows = torch.stack([column.to(norms.dtype) for column in columns.values()], dim=1)
        by_minibatch = torch.stack([part.mean(dim=0) for part in torch.split(rows, sizes)])
        means = dict(zip(columns, torch.where(live[:, None] > 0, by_minibatch, 0.0).sum(dim=0), strict=True))
        means = {name: total / live.sum() for name, total in means.items()}
        of_heads = torch.stack(
            [part.sum(dim=0) for part in torch.split(terms.of_heads(self._clip), sizes)]
        )  # M 6 H
        kl = of_heads[:, 3].sum(dim=1) / of_heads[:, 4].sum(dim=1)
        newest = (live.view(-1, self._per_epoch)[:, 0].sum().long() - 1)[None]

        def last_epoch(values: Tensor) -> Tensor:
            by_epoch = values.view(-1, self._per_epoch).mean(dim=1)
            return by_epoch.gather(0, newest).squeeze(0)

        ran = of_heads * live[:, None, None]
        heads = ran.sum(dim=0)
        last = ran.view(-1, self._per_epoch, *heads.shape).sum(dim=1).index_select(0, newest).squeeze(0)
        is_live = torch.cat([one.expand(size) for one, size in zip(self._live, sizes, strict=True)])
        taken, ratios = terms.log_probs.sum(dim=1), columns["ratio_mean"]
        largest = terms.log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
        largest = torch.where(terms.used & is_live[:, None], largest, -torch.inf).amax(dim=0)
        hidden = {"hidden_rms": means.pop("hidden_square").sqrt()} if "hidden_square" in means else {}
        return (
            means
            | hidden
            | of_gradients(norms, layers, live)
            | {
                "clip_fraction": means["clip_fraction_up"] + means["clip_fraction_down"],
                "kl_divergence": last_epoch(kl),
                "kl_joint": last_epoch(by_minibatch[:, list(columns).index("kl_joint")]),
                "kl_max": torch.where(live > 0, kl, -torch.inf).max(),
                "entropy": relative_entropy(*heads[:3]),
                "ratio_max": torch.where(is_live, ratios, -torch.inf).max(),
                "ratio_min": torch.where(is_live, ratios, torch.inf).min(),
                "log_prob_max": torch.where(is_live, taken, -torch.inf).max(),
                "log_prob_min": torch.where(is_live, taken, torch.inf).min(),
                "first_ratio_error": (ratios[: sizes[0]] - 1).abs().max(),
                "minibatches_skipped": self._planned - live.sum() + not_finite,
                "minibatches_not_finite": not_finite,
            }
            | self._of_heads(heads, last, live, largest)
        )


def _joined(parts: list[Terms]) -> Terms:
    if len(parts) == 1:
        return parts[0]
    columns = {one.name: [getattr(part, one.name) for part in parts] for one in fields(Terms)}
    made: dict[str, Any] = {
        name: None if rows[0] is None else torch.cat(rows) for name, rows in columns.items()
    }
    return Terms(**made)


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
