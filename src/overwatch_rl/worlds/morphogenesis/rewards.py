"""What a step of morphogenesis pays: the parts of the reward by name, and which of them a mode pays.

Owns the formulas and their settings. Accuracy is 0..1. Terms of the original system were in percentage points
of accuracy and in rewards of several units an episode; they keep its numbers here and are multiplied by
`shaping`, so that what a task earns (gains of accuracy) stays the largest part. Rules: every part is bounded,
has one sign unless it states otherwise, and is 0 where nothing happened; a number that was not measured pays
nothing. Pure but for the credit that waits, which `Rewards` holds; must not know networks or policies.

Shape letters: N envs, K slots, R parts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import torch
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, Life, Stage, of_life

Role = Literal["task", "cost", "shaping", "guard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """Settings of the reward. Raises `ValueError` naming the one that is wrong.

    Those of the first group are in accuracy, those of the second in the original's units.
    """

    mode: str = "shaped"
    """Which parts are paid: `shaped`, `simplified`, `minimal` or `sparse`."""
    rent: float = 0.002
    """Of each step, times ln(1 + parameters grown / parameters of the host)."""
    max_rent: float = 0.006
    occupancy: float = 0.001
    """Of each step, a seed that is tried out, beyond the first."""
    fossil_rent: float = 0.0005
    """Of each step, a seed that became part of the host."""
    contribution: float = 0.002
    """Of each step, times what all connected seeds contribute."""
    attribution: float = 0.004
    """Of each step, times what each connected seed contributed that also showed as progress."""
    shaping: float = 0.02
    """What one unit of the original's reward is worth in accuracy."""

    gamma: float = 0.995
    """The learner's: with another one the stage bonus would move what is optimal."""
    stage_weight: float = 0.3
    alpha_shock: float = 0.1958
    ratio: float = 5.0
    """Contribution over improvement above which a seed claims too much."""
    ratio_penalty: float = 0.3
    warm_up: int = 4
    """Steps of an episode in which a host learns by itself: who germinates a seed then earns less by it."""
    legitimate_after: int = 5
    """Steps of holding from which on the fossil bonus is paid in full."""
    patience: int = 5
    """Steps of holding that cost nothing."""
    scaffold: float = 0.2
    """The most that is paid at once for what was pruned after it had helped."""
    scaffold_decay: float = 0.95
    """Of that credit, left after each step."""
    scaffold_full: float = 0.05
    """Interaction, in accuracy, from which on that credit is full."""
    rollback: float = 10.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"reward_mode is {self.mode!r}; use {', '.join(MODES)}")
        for name, least in (("warm_up", 1), ("legitimate_after", 1), ("patience", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; use at least {least}")
        for name in ("gamma", "scaffold_decay"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use a number above 0, at most 1")
        for name in (*_AMOUNTS, "ratio", "scaffold_full"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0) or (value == 0 and name not in _AMOUNTS):
                kind = "at least 0" if name in _AMOUNTS else "above 0"
                raise ValueError(f"{name} is {value}; use a number {kind}")


_AMOUNTS: Final = (
    "rent", "max_rent", "occupancy", "fossil_rent", "contribution", "attribution", "shaping", "stage_weight",
    "alpha_shock", "ratio_penalty", "scaffold", "rollback",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What happened in one step, after any rollback; NaN where a number was not measured."""

    progress: Tensor  # N float32, accuracy gained by the step
    accuracy: Tensor  # N, after the step
    contribution: Tensor  # N K, accuracy lost without the branch
    improvement: Tensor  # N K, accuracy gained since just before the seed germinated
    pairs: Tensor  # N K K, interactions as attributed in this step
    stage_before: Tensor  # N K int64, codes
    stage: Tensor  # N K int64, after the step
    age: Tensor  # N K int64, steps in that stage, this one included
    age_before: Tensor  # N K int64, steps in the stage before
    life: Tensor  # N K int64, steps since the seed germinated, 0 in that step
    alpha_change: Tensor  # N K float32
    overhead: Tensor  # N float32, parameters grown over those of the host
    op: Tensor  # N int64
    slot: Tensor  # N int64
    refused: Tensor  # N bool, a gate refused the operation
    auto_pruned: Tensor  # N K bool, pruned by a rule of the lifecycle, not by the policy
    governor: Tensor  # N uint8, why the host was rolled back, 0 where it was not
    step: Tensor  # N int64, of the episode, from 0
    is_end: Tensor  # N bool, the episode ended with it

    def within(self, *stages: Stage) -> Tensor:
        """N K bool: slots that are in one of `stages` after the step."""
        return _within(self.stage, *stages)

    def was_within(self, *stages: Stage) -> Tensor:
        """N K bool: slots that were in one of `stages` before it."""
        return _within(self.stage_before, *stages)

    def reached(self, stage: Stage) -> Tensor:
        """N K bool: slots that came into `stage`."""
        return self.within(stage) & (self.stage_before != stage.code)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the reward."""

    name: str
    role: Role
    """`task` is what is wanted, `cost` its price, `shaping` help on the way, `guard` against gaming."""
    formula: "Callable[[Evidence, RewardConfig], Tensor] | None"
    """N float32; `None` for those that depend on the mode, the operations or earlier steps."""


@dataclass(frozen=True, slots=True)
class Mode:
    """What is paid."""

    parts: frozenset[str]
    terminal: float
    """Of the final accuracy in percentage points; in the original's units."""
    at_end: bool = False
    """Whether everything is paid with the last step."""


TRIED: Final = (Stage.BLENDING, Stage.HOLDING)
"""Connected, and may still be pruned."""
CONNECTED: Final = (*TRIED, Stage.FOSSILISED)
POTENTIALS: Final = {
    Stage.GERMINATED: 1.0,
    Stage.TRAINING: 2.0,
    Stage.BLENDING: 3.5,
    Stage.HOLDING: 5.5,
    Stage.FOSSILISED: 6.0,
}
"""Of a slot, 0 in all other stages."""
OP_COSTS: Final = {"germinate": 0.15, "fossilise": 0.01, "prune": 0.005, "set_alpha_target": 0.005}
ADVANCE_COST: Final = 0.1
"""Of advancing out of training."""
REFUSED: Final = {"fossilise": 1.0, "germinate": 0.3}
"""Of an operation that its gate refused."""
AUTO_PRUNE: Final = 0.2
BIG_JUMP: Final = 0.5
"""A change of alpha in one step that counts as gaming."""
_LEAST_CLAIM: Final = 0.01
"""Contributions below are too near the noise of a validation to claim anything."""
_PERCENT: Final = 100.0


def gain(evidence: Evidence, _: RewardConfig) -> Tensor:
    """What the step gained in accuracy; either sign."""
    return evidence.progress


def contribution(evidence: Evidence, config: RewardConfig) -> Tensor:
    """What all connected seeds contribute by ablation, at most the whole accuracy; either sign."""
    found = evidence.contribution.nan_to_num().where(evidence.within(*CONNECTED), 0.0)
    return config.contribution * found.sum(dim=1).clamp(-1.0, 1.0)


def attribution(evidence: Evidence, config: RewardConfig) -> Tensor:
    """Contribution that also showed as progress: bounded attribution of the original.

    Of each connected seed the harmonic mean 2pc / (p + c) of its improvement p and its contribution c, which
    is near the smaller of the two; times a sigmoid of 3p (in percentage points) and a timing factor that
    rises from 0.4 over the warm-up. 0 where there was no progress; c itself where it does harm.
    """
    progress, found = evidence.improvement.nan_to_num(), evidence.contribution.nan_to_num()
    p, c = progress.clamp(0.0, 1.0), found.clamp(-1.0, 1.0)
    shared = 2.0 * p * c / (p + c).clamp(min=1e-6)
    born = evidence.step[:, None] - evidence.life
    timing = (0.4 + 0.6 * born / config.warm_up).clamp(max=1.0)
    earned = torch.where(c > 0, shared * torch.sigmoid(3.0 * _PERCENT * p) * timing, c)
    return config.attribution * earned.where(evidence.within(*CONNECTED), 0.0).sum(dim=1)


def rent(evidence: Evidence, config: RewardConfig) -> Tensor:
    """-min(rent ln(1 + overhead), max_rent): each parameter costs less than the one before."""
    return -(config.rent * evidence.overhead.log1p()).clamp(max=config.max_rent)


def occupancy(evidence: Evidence, config: RewardConfig) -> Tensor:
    """-occupancy for each seed tried out beyond the first, -fossil_rent for each fossil."""
    growing = evidence.within(*of_life(Life.GROWING)).sum(dim=1)
    fossils = evidence.within(Stage.FOSSILISED).sum(dim=1)
    return -(config.occupancy * (growing - 1).clamp(min=0) + config.fossil_rent * fossils)


def stage_bonus(evidence: Evidence, config: RewardConfig) -> Tensor:
    """Potential-based shaping, F = w (g Φ(s') - Φ(s)): g the discount, Φ the sum of the slots' potentials.

    Over an episode the discounted sum is w (g^T Φ(end) - Φ(start)), and Φ of a terminal state is 0, so that
    it moves no optimum (Ng, Harada and Russell 1999; Grzes 2017). Either sign.
    """
    potentials = _potentials(evidence.stage.device)
    before, after = (potentials[codes].sum(dim=1) for codes in (evidence.stage_before, evidence.stage))
    return config.shaping * config.stage_weight * (config.gamma * after.where(~evidence.is_end, 0.0) - before)


def alpha_shock(evidence: Evidence, config: RewardConfig) -> Tensor:
    """-0.1958 Σ (Δα)², at most 1: many small changes cost less than one jump."""
    shock = config.alpha_shock * evidence.alpha_change.square().sum(dim=1)
    return -config.shaping * shock.clamp(max=1.0)


def attribution_penalty(evidence: Evidence, config: RewardConfig) -> Tensor:
    """For seeds tried out whose contribution is far beyond their improvement; full at twice the ratio."""
    excess = ((_ratio(evidence) - config.ratio) / config.ratio).clamp(0.0, 1.0)
    return (
        -config.shaping
        * config.ratio_penalty
        * excess.where(_claims(evidence), 0.0).sum(dim=1).clamp(max=1.0)
    )


def blending_warning(evidence: Evidence, config: RewardConfig) -> Tensor:
    """-0.1 for each blending seed that does harm, 0.05 more each step, at most 0.4 a seed."""
    harmful = evidence.within(Stage.BLENDING) & (evidence.contribution < 0)
    return -config.shaping * (0.1 + 0.05 * (evidence.age - 1)).clamp(max=0.4).where(harmful, 0.0).sum(dim=1)


def holding_warning(evidence: Evidence, config: RewardConfig) -> Tensor:
    """-0.1 for each seed held beyond the patience, 0.05 more each step, at most 0.3 a seed."""
    beyond = evidence.age - config.patience
    late = evidence.within(Stage.HOLDING) & (beyond > 0)
    return -config.shaping * (0.1 + 0.05 * (beyond - 1)).clamp(max=0.3).where(late, 0.0).sum(dim=1)


def penalty(evidence: Evidence, config: RewardConfig) -> Tensor:
    """-10 for a rollback by the governor."""
    return -config.shaping * config.rollback * (evidence.governor > 0)


def overclaims(evidence: Evidence, config: RewardConfig) -> Tensor:
    """N K bool: seeds tried out whose contribution is more than `ratio` times their improvement."""
    return _claims(evidence) & (_ratio(evidence) > config.ratio)


def holds_to_ransom(evidence: Evidence) -> Tensor:
    """N K bool: seeds tried out that are missed when taken away, of hosts that are worse since they came.

    The original's signs are a contribution above 0.1 and an improvement below -0.2, in percentage points; in
    accuracy of 0..1 a hundredth of both.
    """
    is_missed = evidence.contribution > 0.1 / _PERCENT
    return evidence.within(*TRIED) & is_missed & (evidence.improvement < -0.2 / _PERCENT)


def _claims(evidence: Evidence) -> Tensor:
    return evidence.within(*TRIED) & (evidence.contribution > _LEAST_CLAIM)


def _ratio(evidence: Evidence) -> Tensor:
    """Contribution over improvement; very large where there was none."""
    return evidence.contribution.nan_to_num() / evidence.improvement.nan_to_num().clamp(min=1e-6)


def _within(codes: Tensor, *stages: Stage) -> Tensor:
    return torch.isin(codes, _codes(stages, codes.device))


@cache
def _codes(stages: tuple[Stage, ...], device: torch.device) -> Tensor:
    """On the device once: a copy at each step would wait for it."""
    return torch.tensor([stage.code for stage in stages], device=device)


@cache
def _potentials(device: torch.device) -> Tensor:
    """By code of a stage."""
    return torch.tensor([POTENTIALS.get(stage, 0.0) for stage in BY_CODE], device=device)


PARTS: Final = (
    Part("gain", "task", gain),
    Part("contribution", "shaping", contribution),
    Part("attribution", "shaping", attribution),
    Part("rent", "cost", rent),
    Part("occupancy", "cost", occupancy),
    Part("stage_bonus", "shaping", stage_bonus),
    Part("alpha_shock", "guard", alpha_shock),
    Part("attribution_penalty", "guard", attribution_penalty),
    Part("blending_warning", "shaping", blending_warning),
    Part("holding_warning", "shaping", holding_warning),
    Part("action_cost", "cost", None),
    Part("fossil_bonus", "shaping", None),
    Part("hindsight", "shaping", None),
    Part("terminal", "task", None),
    Part("penalty", "cost", penalty),
)
"""One row a part; `Rewards` has what those without a formula need."""

_COSTS: Final = frozenset({"rent", "occupancy", "penalty"})
MODES: Final[Mapping[str, Mode]] = {
    "shaped": Mode(frozenset(part.name for part in PARTS), terminal=0.05),
    "simplified": Mode(_COSTS | {"stage_bonus", "action_cost", "terminal"}, terminal=0.5),
    "minimal": Mode(_COSTS | {"action_cost", "terminal"}, terminal=0.5),
    "sparse": Mode(_COSTS | {"terminal"}, terminal=0.5, at_end=True),
}
"""In all but `shaped` the whole final accuracy is paid; rent is the same in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """What a step paid."""

    reward: Tensor  # N float32, the sum of the parts
    columns: Mapping[str, Tensor]
    """`reward_<part>` N of all parts; `scaffolds`, `scaffold_delay`: credits that came, and their delays."""


class Rewards:
    """The reward of N envs, with credit that waits."""

    def __init__(
        self, shape: tuple[int, int], config: RewardConfig, ops: tuple[str, ...], device: str = "cpu"
    ) -> None:
        """`shape`: envs and slots; `ops`: names of the operations, in order."""
        self._config, self._mode = config, MODES[config.mode]
        self._ops = ops
        with torch.device(device):
            self._op_costs = torch.tensor([OP_COSTS.get(op, 0.0) for op in ops])
            self._refused = torch.tensor([REFUSED.get(op, 0.0) for op in ops])
            self._pays = torch.tensor([part.name in self._mode.parts for part in PARTS])
            two = (*shape, shape[1])
            self._bond = torch.zeros(two)  # N K K float32, the largest interaction seen of two seeds
            self._credit = torch.zeros(two)  # N K K, 0..1, of slot j, by what was pruned in slot i
            self._delay = torch.zeros(two, dtype=torch.int64)  # N K K, steps since it was pruned
            self._owed = torch.zeros(shape[0], len(PARTS))  # N R, earned and not yet paid

    def step(self, evidence: Evidence) -> Paid:
        """What the step pays."""
        config, mode = self._config, self._mode
        bonus = self._fossil_bonus(evidence)
        hindsight, scaffolds, delays = self._hindsight(evidence)
        more = {
            "action_cost": self._action_cost(evidence),
            "fossil_bonus": bonus,
            "hindsight": hindsight,
            "terminal": config.shaping
            * mode.terminal
            * _PERCENT
            * evidence.accuracy.where(evidence.is_end, 0.0),
        }
        found = [part.formula(evidence, config) if part.formula else more[part.name] for part in PARTS]
        earned = torch.stack(found, dim=1) * self._pays
        if mode.at_end:
            earned += self._owed
            self._owed = earned.where(~evidence.is_end[:, None], 0.0)
            earned = earned - self._owed
        columns = {f"reward_{part.name}": earned[:, place] for place, part in enumerate(PARTS)}
        columns |= {"scaffolds": scaffolds, "scaffold_delay": delays}
        return Paid(reward=earned.sum(dim=1), columns=columns)

    def restart(self, envs: Tensor) -> None:
        """Forget the seeds of `envs` (N bool) and what is owed: a new episode begins."""
        for tensor in self._state().values():
            tensor.masked_fill_(envs.view(-1, *[1] * (tensor.dim() - 1)), 0)

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        return {name: tensor.clone() for name, tensor in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Become as it was."""
        for name, tensor in self._state().items():
            tensor.copy_(state[name])

    def _state(self) -> dict[str, Tensor]:
        return {name: getattr(self, f"_{name}") for name in ("bond", "credit", "delay", "owed")}

    def _action_cost(self, evidence: Evidence) -> Tensor:
        """What the operation costs, more where its gate refused it, and what the lifecycle had to prune."""
        cost = self._op_costs[evidence.op] + self._refused[evidence.op].where(evidence.refused, 0.0)
        if "advance" in self._ops:
            from_training = (
                evidence.stage_before.gather(1, evidence.slot[:, None])[:, 0] == Stage.TRAINING.code
            )
            cost += ADVANCE_COST * (from_training & (evidence.op == self._ops.index("advance")))
        return -self._config.shaping * (cost + AUTO_PRUNE * evidence.auto_pruned.sum(dim=1))

    def _fossil_bonus(self, evidence: Evidence) -> Tensor:
        """0.5 + 0.1 c (in percentage points) + 3 tanh(1/3) + 0.1 tanh(I / 2) for a fossil that contributes.

        Times its legitimacy: steps of holding, as a share of those it takes. I is the largest interaction
        with another seed, in percentage points.
        """
        self._bond = torch.maximum(self._bond, evidence.pairs.nan_to_num())
        worth = _PERCENT * evidence.contribution.nan_to_num().clamp(0.0, 1.0)
        synergy = (_PERCENT * self._bond.amax(dim=2) / 2.0).tanh()
        bonus = 0.5 + 0.1 * worth + 3.0 * math.tanh(1 / 3) + 0.1 * synergy
        legitimacy = (evidence.age_before / self._config.legitimate_after).clamp(max=1.0)
        earns = evidence.reached(Stage.FOSSILISED) & (worth > 0)
        return self._config.shaping * (bonus * legitimacy).where(earns, 0.0).sum(dim=1)

    def _hindsight(self, evidence: Evidence) -> tuple[Tensor, Tensor, Tensor]:
        """Credit for seeds that helped another one and were pruned before that one became part of the host.

        At most 0.2 a step, less by `scaffold_decay` for each step since the prune. Also how many such seeds
        were credited, and the sum of their delays.
        """
        config = self._config
        seeded = evidence.within(*of_life(Life.GROWING, Life.GRAFTED))
        pruned = evidence.reached(Stage.PRUNED)[:, :, None] & seeded[:, None, :]
        helped = (self._bond / config.scaffold_full).clamp(0.0, 1.0)
        self._delay = torch.where(pruned & (helped > 0), 0, self._delay + 1)
        self._credit = torch.where(pruned & (helped > 0), helped, self._credit)
        due = evidence.reached(Stage.FOSSILISED)[:, None, :] & (self._credit > 0)
        paid = (self._credit * config.scaffold_decay**self._delay).where(due, 0.0)
        scaffolds, delays = due.sum(dim=(1, 2)), self._delay.where(due, 0).sum(dim=(1, 2))
        self._credit = self._credit.where(~due & seeded[:, None, :], 0.0)
        self._bond = self._bond.where(seeded[:, :, None] & seeded[:, None, :], 0.0)
        credit = config.shaping * config.scaffold * paid.sum(dim=(1, 2)).clamp(max=1.0)
        return credit, scaffolds.to(torch.uint8), delays.to(torch.int32)
