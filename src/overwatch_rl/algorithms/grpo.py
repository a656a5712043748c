"""Group relative policy optimisation: answers to one prompt are judged against one another, without a critic.

Rules: tensors in, tensors out; no logger, no clock; nothing is read from the device between the beginning and
the end of an update. The gate is PPO's. Must not know the task, the queue or telemetry.

Sources: Shao et al. 2024, "DeepSeekMath" (groups, the k3 penalty for leaving the reference); Yu et al. 2025,
"DAPO" (the mean over tokens, so that each counts the same however long its answer); Hilton et al. 2021,
"Batch size-invariance for policy optimization", and Fu et al. 2025, "AReaL" (the decoupled objective).

The numbers, where there is a choice:

- The advantage of an answer is (score - mean) / (std + 1e-4) of its group, the deviation of a sample (n - 1).
  A group whose scores are all the same has none: it is counted and is no part of the loss, of its penalty
  neither.
- Three policies: *behaviour* drew the letters, *proximal* is the learner before the update, *current* learns.
  The loss of a token is min(proximal / behaviour, cap) times PPO's clip of current / proximal, plus
  `reference_coef` times k3 from the reference; summed over tokens, divided by their number in the minibatch.
- `kl_divergence`, `kl_k1`, `clip_fraction`, `ratio_*` and `first_ratio_error` are proximal -> current.
  `sampler_weight` and `sampler_ess` are of the weights proximal / behaviour, before the cap: staleness and
  mismatch together. `sampler_kl` (k1) and `token_error` compare what the sampler sent with what the very
  weights that it names give here: 0 and 1 but for rounding. Undefined but for answers of today's weights and
  of the `recent` versions; only these cost a copy of the weights and a forward pass each.
- Entropy is of the whole distribution at each token; `entropy` is its share of the uniform's over all letters
  but 0, the empty place, which is never drawn.

Shape letters: B answers, S letters after the first of the longest sequence, V vocabulary; M minibatches.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from overwatch_rl.algorithms.common import (
    LOG_RATIO_LIMIT,
    Adam,
    Alone,
    Plan,
    Ranks,
    below,
    k3,
    load_moments,
    moments_of,
    of_advantages,
    of_gradients,
)
from overwatch_rl.algorithms.ppo import averaged, gated_step
from overwatch_rl.types import Stats
from overwatch_rl.undefined import UNDEFINED, ratio, where_defined

_STD_FLOOR: Final = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPOConfig:
    """How one update learns from one batch of groups."""

    learning_rate: float = 1e-3
    """Step size of Adam."""
    epochs: int = 1
    """Passes over the batch."""
    minibatches: int = 2
    """Parts of the batch, an optimiser step each."""
    clip: float = 0.2
    """How far the ratio may leave 1 before its gradient stops."""
    reference_coef: float = 0.01
    """Weight of the divergence from the reference model."""
    weight_cap: float = 2.0
    """The most by which a token of an older policy may count."""
    max_grad_norm: float = 1.0
    """Gradients longer than this are shortened to it."""
    recent: int = 0
    """Versions before today's whose weights stay, to compare samplers with."""
    shuffled: bool = False
    """A control that must not learn: advantages change places inside each group."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clip", "weight_cap", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; use a number above 0")
        for name in ("epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.recent < 0:
            raise ValueError(f"recent is {self.recent}; use 0 or more")
        if not 0 <= self.reference_coef < math.inf:
            raise ValueError(f"reference_coef is {self.reference_coef}; use 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What samplers drew and earned, a row an answer."""

    tokens: Tensor  # B S+1 int64, prompt and answer, 0 after the end
    learned: Tensor  # B S bool, true where the letter after is the policy's own
    behaviour: Tensor  # B S, log-probabilities of the policy that drew; 0 where not learned
    scores: Tensor  # B
    groups: Tensor  # B int64, which group, from 0
    versions: tuple[int | None, ...]  # B, number of the weights that drew; None where unknown
    cut: Tensor  # B bool, whether the answer was cut at the greatest length


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Answers with all that does not change while they are learned from."""

    tokens: Tensor  # B S+1
    live: Tensor  # B S float, 1 where a letter is part of the loss
    behaviour: Tensor  # B S
    proximal: Tensor  # B S
    reference: Tensor  # B S
    advantages: Tensor  # B
    stats: Stats

    def rows(self, index: Tensor) -> "Batch":
        """Some of its answers."""
        return replace(
            self,
            tokens=self.tokens[index],
            live=self.live[index],
            behaviour=self.behaviour[index],
            proximal=self.proximal[index],
            reference=self.reference[index],
            advantages=self.advantages[index],
        )


def group_advantages(scores: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """B, B and B: advantages, the deviation of each one's group, and whether that group's scores differ."""
    counts = torch.zeros_like(scores).index_add_(0, groups, torch.ones_like(scores))[groups]
    mean = torch.zeros_like(scores).index_add_(0, groups, scores)[groups] / counts
    apart = scores - mean
    squared = torch.zeros_like(scores).index_add_(0, groups, apart.square())[groups]
    std = (squared / (counts - 1).clamp(min=1)).sqrt()
    differ = std > 1e-6 * (1 + mean.abs())
    return torch.where(differ, apart / (std + _STD_FLOOR), 0.0), std, differ


def shuffled_in_groups(values: Tensor, groups: Tensor, generator: torch.Generator | None) -> Tensor:
    """B: the same values, each group's in another order."""
    keys = torch.rand(len(values), generator=generator, device=values.device)
    mixed = keys.argsort()
    source = mixed[groups[mixed].argsort(stable=True)]
    target = groups.argsort(stable=True)
    return torch.empty_like(values).index_copy_(0, target, values[source])


def distribution(model: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """B S V: log-probabilities of each letter after the first, by a model from letters to logits."""
    return functional.log_softmax(model(tokens[:, :-1]), dim=-1)


def log_probs_of(distribution: Tensor, tokens: Tensor) -> Tensor:
    """B S: the log-probability of each letter after the first."""
    return distribution.gather(2, tokens[:, 1:, None]).squeeze(2)


def loss(current: Tensor, batch: Batch, config: GRPOConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """The objective summed over live tokens, to be minimised, and sums over them of what is reported.

    current: B S, log-probabilities of the policy that learns.
    """
    live = batch.live
    log_ratio = torch.where(live > 0, current - batch.proximal, 0.0)
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    advantages = batch.advantages[:, None]
    weights = sampler_weights(batch).clamp(max=config.weight_cap)
    surrogate = -torch.minimum(ratio * advantages, clipped * advantages) * weights
    penalty = k3(torch.where(live > 0, batch.reference - current, 0.0))
    total = ((surrogate + config.reference_coef * penalty) * live).sum()
    with torch.no_grad():
        bound = {"clip_fraction_up": ratio - 1 > config.clip, "clip_fraction_down": 1 - ratio > config.clip}
        sums = {
            "policy_loss": (surrogate * live).sum(),
            "total_loss": total,
            "kl_reference": (penalty * live).sum(),
            "kl_divergence": (k3(log_ratio) * live).sum(),
            "kl_k1": -(log_ratio * live).sum(),
            "ratio_mean": (ratio * live).sum(),
            "log_ratio_clamped": ((log_ratio.abs() > LOG_RATIO_LIMIT) * live).sum(),
            **{name: (where * live).sum() for name, where in bound.items()},
        }
        most = {
            "ratio_max": ratio.max(),
            "ratio_min": -ratio.min(),
            "first_ratio_error": (ratio - 1).abs().max(),
            "log_prob_max": torch.where(live > 0, current, -torch.inf).max(),
            "log_prob_min": torch.where(live > 0, -current, -torch.inf).max(),
        }
    return total, {name: value.detach() for name, value in (sums | most).items()}


def sampler_weights(batch: Batch) -> Tensor:
    """B S: proximal / behaviour, 1 where nothing is learned."""
    apart = torch.where(batch.live > 0, batch.proximal - batch.behaviour, 0.0)
    return apart.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def of_scores(answers: Answers, std: Tensor, differ: Tensor) -> Stats:
    """Of answers and their groups; a group counts once, however many answers it has."""
    ones = torch.ones_like(answers.scores)
    share = ones / torch.zeros_like(ones).index_add_(0, answers.groups, ones)[answers.groups]
    total = share.sum()
    return {
        "return": answers.scores.mean(),
        "reward_std": (std * share).sum() / total,
        "groups_alike": (~differ * share).sum() / total,
        "answers_cut": answers.cut.double().mean(),
    }


class GRPO:
    """A language model, the reference that it must not leave, and its optimiser."""

    def __init__(
        self, model: nn.Module, config: GRPOConfig, *, seed: int, version: int, ranks: Ranks | None = None
    ) -> None:
        """`model`, from letters to logits, is beginning and reference; `version` is that of its weights.

        `ranks` are the processes that learn from other answers to the same weights.
        """
        self.config = config
        self._ranks = ranks or Alone()
        self.plan = Plan()
        self.policy = model
        self.reference = copy.deepcopy(model).requires_grad_(requires_grad=False)
        self.version = version
        """Number of the weights that `policy` has now."""
        self._recent: dict[int, dict[str, Tensor]] = {}
        self._parameters = list(model.parameters())
        self.device = self._parameters[0].device
        is_meta = self.device.type == "meta"
        self._optimizer = Adam(self._parameters, lr=config.learning_rate, fused=not is_meta, foreach=is_meta)
        self._order = None if is_meta else torch.Generator(self.device).manual_seed(seed + 1)

    def apply_plan(self, plan: Plan) -> None:
        """Compute by another plan from now on: there is only the plain one."""
        if plan != Plan():
            raise ValueError(f"the plan is {plan}; GRPO computes by the plain one only")

    @torch.no_grad()
    def prepare(self, rollout: Answers) -> Batch:
        """The answers as one batch: advantages, and the log-probabilities of proximal and reference."""
        advantages, std, differ = group_advantages(rollout.scores, rollout.groups)
        if self.config.shuffled:
            advantages = shuffled_in_groups(advantages, rollout.groups, self._order)
        log_probs = distribution(self.policy, rollout.tokens)
        learned = rollout.learned.to(log_probs.dtype)
        spread = -((log_probs.exp() * log_probs).sum(dim=2) * learned).sum()
        batch = Batch(
            tokens=rollout.tokens,
            live=learned * differ[:, None],
            behaviour=rollout.behaviour,
            proximal=log_probs_of(log_probs, rollout.tokens),
            reference=log_probs_of(distribution(self.reference, rollout.tokens), rollout.tokens),
            advantages=advantages,
            stats={},
        )
        stats = of_scores(rollout, std, differ) | self._of_sampler(
            replace(batch, live=learned), rollout.versions
        )
        stats |= {name: where_defined(differ.any(), one) for name, one in of_advantages(advantages).items()}
        stats["entropy_nats"] = ratio(spread, learned.sum())
        stats["entropy"] = ratio(spread / math.log(log_probs.shape[2] - 1), learned.sum())
        return replace(batch, stats=stats)

    def update(self, batch: Batch) -> Stats:
        """Learn from one batch; the weights have another number afterwards."""
        config = self.config
        seen = _Seen()
        if config.recent:
            self._recent[self.version] = {
                name: value.clone() for name, value in self.policy.state_dict().items()
            }
        while len(self._recent) > config.recent:
            del self._recent[next(iter(self._recent))]
        open_gate = torch.zeros((), dtype=torch.bool, device=self.device)
        for _ in range(config.epochs):
            order = torch.randperm(len(batch.tokens), generator=self._order, device=self.device)
            for rows in order.tensor_split(config.minibatches):
                part = batch.rows(rows)
                self._optimizer.zero_grad(set_to_none=True)
                current = log_probs_of(distribution(self.policy, part.tokens), part.tokens)
                total, terms = loss(current, part, config)
                tokens = part.live.sum()
                # Each token counts the same, whichever rank has it: the mean of gradients over ranks that
                # follows is of sums over the tokens of all of them.
                all_tokens = self._ranks.sum(tokens)
                torch.autograd.backward(total * self._ranks.size / all_tokens.clamp(min=1))
                # Without a token to learn from, momentum alone would move the weights.
                is_empty = all_tokens == 0
                gradients = averaged(self._parameters, self._ranks)
                norms, norm = gated_step(
                    self._optimizer, gradients, self._ranks, open_gate | is_empty, config.max_grad_norm
                )
                seen.add(terms, tokens, norms, norm)
        self.version += 1
        return (
            batch.stats
            | seen.stats(config)
            | {
                "learning_rate": torch.tensor(config.learning_rate),
                "clip_range": torch.tensor(config.clip),
            }
        )

    def state_dict(self) -> dict[str, Tensor]:
        """`policy.*`, `reference.*`, `optimizer.*` (parameter, then moment), `version`, `order`."""
        state = {f"policy.{name}": value for name, value in self.policy.state_dict().items()}
        state |= {f"reference.{name}": value for name, value in self.reference.state_dict().items()}
        state |= moments_of(self._optimizer, self._parameters)
        state["version"] = torch.tensor(self.version)
        if self._order is not None:
            state["order"] = self._order.get_state()
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was when `state` was taken; raises `ValueError` when it is of another shape."""
        try:
            self.policy.load_state_dict(below("policy.", state))
            self.reference.load_state_dict(below("reference.", state))
        except RuntimeError as error:
            raise ValueError(f"these weights are of another model: {error}") from error
        load_moments(self._optimizer, self._parameters, state)
        self.version = int(state["version"])
        self._recent.clear()
        if self._order is not None:
            self._order.set_state(state["order"].cpu())

    def acting_keys(self) -> frozenset[str]:
        """Everything of the policy."""
        return frozenset(f"policy.{name}" for name in self.policy.state_dict())

    def _of_sampler(self, batch: Batch, versions: tuple[int | None, ...]) -> Stats:
        """How samplers differ from here, over every token that was drawn; B: the weights that drew each."""
        weights, live = sampler_weights(batch), batch.live
        count = live.sum()
        mean, square = ((power * live).sum() / count for power in (weights, weights.square()))
        ages = [self.version - number for number in versions if number is not None]
        age = sum(ages) / len(ages) if ages else UNDEFINED
        named, is_known = self._of_named_weights(batch, versions)
        known = (live > 0) & is_known[:, None]
        apart = torch.where(known, batch.behaviour - named, 0.0)
        return {
            "sampler_weight": where_defined(count > 0, mean),
            "sampler_ess": where_defined(count > 0, mean.square() / square),
            "sampler_kl": ratio(apart.sum(), known.sum()),
            "token_error": ratio(torch.where(known, apart.abs().exp(), 0.0).sum(), known.sum()),
            "data_age_updates": torch.tensor(age, device=live.device),
        }

    def _of_named_weights(self, batch: Batch, versions: tuple[int | None, ...]) -> tuple[Tensor, Tensor]:
        """B S, log-probabilities of the weights that each answer names, and B bool, where these are here."""
        named, numbers = batch.proximal.clone(), [self.version, *self._recent]
        for number, weights in self._recent.items():
            rows = torch.tensor([row for row, name in enumerate(versions) if name == number])
            if len(rows):
                tokens = batch.tokens[rows]
                model = partial(functional_call, self.policy, weights)
                named[rows] = log_probs_of(distribution(model, tokens), tokens)
        return named, torch.tensor([name in numbers for name in versions], device=named.device)


class _Seen:
    """The minibatches of one update, as tensors; one without a token to learn from counts nowhere."""

    def __init__(self) -> None:
        self._terms: list[dict[str, Tensor]] = []
        self._tokens: list[Tensor] = []
        self._layers: list[Tensor] = []
        self._norms: list[Tensor] = []

    def add(self, terms: dict[str, Tensor], tokens: Tensor, layers: Tensor, norm: Tensor) -> None:
        """Keep one."""
        self._terms.append(terms)
        self._tokens.append(tokens)
        self._layers.append(layers)
        self._norms.append(norm)

    def stats(self, config: GRPOConfig) -> Stats:
        """All numbers; most are undefined where no group differed."""
        tokens = torch.stack(self._tokens)
        live = (tokens > 0).to(tokens.dtype)
        norms = torch.stack(self._norms)
        not_finite = (~torch.isfinite(norms) & (live > 0)).sum()
        columns = {name: torch.stack([terms[name] for terms in self._terms]) for name in self._terms[0]}

        def mean(name: str, first: int = 0) -> Tensor:
            """Return the mean over tokens from an epoch on."""
            return ratio(columns[name][first:].sum(), tokens[first:].sum())

        def most(values: Tensor) -> Tensor:
            """Return the largest of live tokens."""
            return torch.where(live > 0, values, -torch.inf).max()

        last = (config.epochs - 1) * config.minibatches
        means = (
            "policy_loss", "total_loss", "kl_reference", "clip_fraction_up", "clip_fraction_down",
            "ratio_mean", "log_ratio_clamped",
        )  # fmt: skip
        extremes = {
            "kl_max": most(columns["kl_divergence"] / tokens),
            "ratio_max": most(columns["ratio_max"]),
            "ratio_min": -most(columns["ratio_min"]),
            "log_prob_max": most(columns["log_prob_max"]),
            "log_prob_min": -most(columns["log_prob_min"]),
        }
        return {
            **{name: mean(name) for name in means},
            **of_gradients(norms, torch.stack(self._layers), live),
            **{name: where_defined(live.any(), value) for name, value in extremes.items()},
            "clip_fraction": ratio(
                (columns["clip_fraction_up"] + columns["clip_fraction_down"]).sum(), tokens.sum()
            ),
            "kl_divergence": mean("kl_divergence", last),
            "kl_k1": mean("kl_k1", last),
            "first_ratio_error": where_defined(live[0] > 0, columns["first_ratio_error"][0]),
            "minibatches_skipped": len(norms) - live.sum() + not_finite,
            "minibatches_not_finite": not_finite,
        }
