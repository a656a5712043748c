"""What a step of morphogenesis pays, by its parts, and the rows of an update that follow from seeds' lives.

Owns the formulas. Accuracy is 0..1. Terms of the original system were in percentage points of accuracy and in
rewards of several units an episode; they keep its numbers here and are multiplied by `shaping`, so that what
a task earns (gains of accuracy) stays the largest part. Rules: every part is bounded, has one sign unless it
states otherwise, and is 0 where nothing happened; a number that was not measured pays nothing. Pure but for
the credit that waits, which `Rewards` holds; must not know networks or policies.

Shape letters: T steps, N envs, K slots.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, Life, Stage, of_life
from overwatch_rl.undefined import ratio, where_defined
from overwatch_rl.worlds.morphogenesis.actions import Op
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.lifecycle import CONNECTED, within

MAX_RENT: Final = 0.006
OCCUPANCY: Final = 0.001
"""Of each step, a growing seed beyond the first."""
FOSSIL_RENT: Final = 0.0005
"""Of each step, a seed that became part of the host."""
CONTRIBUTION: Final = 0.002
ATTRIBUTION: Final = 0.004
STAGE_WEIGHT: Final = 0.3
ALPHA_SHOCK: Final = 0.1958
MAX_CLAIM: Final = 5.0
"""Contribution over improvement above which a seed claims too much."""
CLAIM_PENALTY: Final = 0.3
WARM_UP: Final = 4
"""Steps of an episode in which a host learns by itself: who germinates a seed then earns less by it."""
LEGITIMATE_AFTER: Final = 5
"""Steps of holding from which on the fossil bonus is paid in full."""
PATIENCE: Final = 5
"""Steps of holding that cost nothing."""
SCAFFOLD: Final = 0.2
"""The most that is paid at once for what was pruned after it had helped."""
SCAFFOLD_DECAY: Final = 0.95
"""Of that credit, left after each step."""
SCAFFOLD_FULL: Final = 0.05
"""Interaction, in accuracy, from which on that credit is full."""
TERMINAL: Final = 0.05
ROLLBACK: Final = 10.0

TRIED: Final = (Stage.BLENDING, Stage.HOLDING)
"""Connected, and may still be pruned."""
POTENTIALS: Final = {
    Stage.GERMINATED: 1.0, Stage.TRAINING: 2.0, Stage.BLENDING: 3.5, Stage.HOLDING: 5.5,
    Stage.FOSSILISED: 6.0,
}  # fmt: skip
"""Of a slot, 0 in all other stages."""
OP_COSTS: Final = {Op.GERMINATE: 0.15, Op.FOSSILISE: 0.01, Op.PRUNE: 0.005, Op.SET_ALPHA_TARGET: 0.005}
ADVANCE_COST: Final = 0.1
"""Of advancing out of training."""
REFUSED: Final = {Op.FOSSILISE: 1.0, Op.GERMINATE: 0.3}
"""Of an operation that its gate refused."""
AUTO_PRUNE: Final = 0.2
BIG_JUMP: Final = 0.5
"""A change of alpha in one step that counts as gaming."""
LARGEST: Final = 10.0
"""Size of a grown host, in multiples of the host alone, from which on no trade is worth anything."""
STARVED: Final = 0.01
"""Share of a host's gradient below which its newest connected seeds do not learn."""
_LEAST_CLAIM: Final = 0.01
"""Contributions below are too near the noise of a validation to claim anything."""
_PERCENT: Final = 100.0

PARTS: Final = (
    "gain", "contribution", "attribution", "rent", "occupancy", "stage_bonus", "alpha_shock",
    "attribution_penalty", "blending_warning", "holding_warning", "action_cost", "fossil_bonus", "hindsight",
    "terminal", "penalty",
)  # fmt: skip
"""In the order of their columns."""
SHAPING: Final = frozenset({
    "contribution", "attribution", "stage_bonus", "blending_warning", "holding_warning", "fossil_bonus",
    "hindsight",
})  # fmt: skip
"""Parts that help on the way to what is wanted."""


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
        return within(self.stage, *stages)

    def reached(self, stage: Stage) -> Tensor:
        """N K bool: slots that came into `stage`."""
        return self.within(stage) & (self.stage_before != stage.code)


def charges(evidence: Evidence, config: MorphogenesisConfig) -> dict[str, Tensor]:
    """Return parts that are at most 0, N each.

    `rent` is -min(rent ln(1 + overhead), max): each parameter costs less than the last. `occupancy` is of
    seeds that grow beyond the first, and of fossils. `alpha_shock` is -0.1958 Σ (Δα)², so that many small
    changes cost less than a jump. `attribution_penalty` is of seeds that claim too much, full at twice the
    ratio. The warnings are of seeds that do harm while they blend, and of seeds held beyond the patience;
    both rise with the steps. `action_cost` is of the operation, more where its gate refused it, and of what
    the lifecycle had to prune.
    """
    growing = evidence.within(*of_life(Life.GROWING)).sum(dim=1)
    fossils = evidence.within(Stage.FOSSILISED).sum(dim=1)
    excess = ((_claim(evidence) - MAX_CLAIM) / MAX_CLAIM).clamp(0.0, 1.0)
    harmful = evidence.within(Stage.BLENDING) & (evidence.contribution < 0)
    beyond = evidence.age - PATIENCE
    late = evidence.within(Stage.HOLDING) & (beyond > 0)
    costs, refused = (torch.tensor([table.get(op, 0.0) for op in Op]) for table in (OP_COSTS, REFUSED))
    cost = costs[evidence.op] + refused[evidence.op].where(evidence.refused, 0.0)
    stage = evidence.stage_before.gather(1, evidence.slot[:, None])[:, 0]
    cost += ADVANCE_COST * ((evidence.op == Op.ADVANCE) & (stage == Stage.TRAINING.code))
    shaped = {
        "alpha_shock": (ALPHA_SHOCK * evidence.alpha_change.square().sum(dim=1)).clamp(max=1.0),
        "attribution_penalty": CLAIM_PENALTY * excess.where(_claims(evidence), 0.0).sum(dim=1).clamp(max=1.0),
        "blending_warning": (0.1 + 0.05 * (evidence.age - 1)).clamp(max=0.4).where(harmful, 0.0).sum(dim=1),
        "holding_warning": (0.1 + 0.05 * (beyond - 1)).clamp(max=0.3).where(late, 0.0).sum(dim=1),
        "action_cost": cost + AUTO_PRUNE * evidence.auto_pruned.sum(dim=1),
        "penalty": ROLLBACK * (evidence.governor > 0),
    }
    return {name: -config.shaping * value for name, value in shaped.items()} | {
        "rent": -(config.rent * evidence.overhead.log1p()).clamp(max=MAX_RENT),
        "occupancy": -(OCCUPANCY * (growing - 1).clamp(min=0) + FOSSIL_RENT * fossils),
    }


def earnings(evidence: Evidence, config: MorphogenesisConfig) -> dict[str, Tensor]:
    """Return parts of either sign, N each; `terminal` alone is never below 0.

    `gain` is accuracy gained by the step, `terminal` of the final accuracy; `contribution` is what all
    connected seeds contribute by ablation, at most the whole accuracy.

    `attribution` is contribution that also showed as progress, bounded attribution of the original: of each
    connected seed the harmonic mean 2pc / (p + c) of its improvement p and its contribution c, times a
    sigmoid of 3p (in percentage points) and a timing factor that rises from 0.4 over the warm-up. 0 where
    there was no progress; c itself where it does harm.

    `stage_bonus` is potential-based shaping, w (g Φ(s') - Φ(s)): g the discount, Φ the sum of the slots'
    potentials. Over an episode the discounted sum is w (g^T Φ(end) - Φ(start)), and Φ of a terminal state is
    0, so that it moves no optimum (Ng, Harada and Russell 1999; Grzes 2017).
    """
    connected = evidence.within(*CONNECTED)
    contribution = evidence.contribution.nan_to_num().where(connected, 0.0)
    p, c = evidence.improvement.nan_to_num().clamp(0.0, 1.0), contribution.clamp(-1.0, 1.0)
    shared = 2.0 * p * c / (p + c).clamp(min=1e-6)
    timing = (0.4 + 0.6 * (evidence.step[:, None] - evidence.life) / WARM_UP).clamp(max=1.0)
    attribution = torch.where(c > 0, shared * torch.sigmoid(3.0 * _PERCENT * p) * timing, c)
    table = torch.tensor([POTENTIALS.get(stage, 0.0) for stage in BY_CODE])
    before, after = (table[codes].sum(dim=1) for codes in (evidence.stage_before, evidence.stage))
    bonus = STAGE_WEIGHT * (config.gamma * after.where(~evidence.is_end, 0.0) - before)
    return {
        "gain": evidence.progress,
        "contribution": CONTRIBUTION * contribution.sum(dim=1).clamp(-1.0, 1.0),
        "attribution": ATTRIBUTION * attribution.sum(dim=1),
        "stage_bonus": config.shaping * bonus,
        "terminal": config.shaping * TERMINAL * _PERCENT * evidence.accuracy.where(evidence.is_end, 0.0),
    }


def overclaims(evidence: Evidence) -> Tensor:
    """N K bool: seeds tried out whose contribution is more than `MAX_CLAIM` times their improvement."""
    return _claims(evidence) & (_claim(evidence) > MAX_CLAIM)


def holds_to_ransom(evidence: Evidence) -> Tensor:
    """N K bool: seeds tried out that are missed when taken away, of hosts that are worse since they came.

    The original's signs are a contribution above 0.1 and an improvement below -0.2, in percentage points; in
    accuracy of 0..1 a hundredth of both.
    """
    is_missed = evidence.contribution > 0.1 / _PERCENT
    return evidence.within(*TRIED) & is_missed & (evidence.improvement < -0.2 / _PERCENT)


def _claims(evidence: Evidence) -> Tensor:
    return evidence.within(*TRIED) & (evidence.contribution > _LEAST_CLAIM)


def _claim(evidence: Evidence) -> Tensor:
    """Contribution over improvement; very large where there was none."""
    return evidence.contribution.nan_to_num() / evidence.improvement.nan_to_num().clamp(min=1e-6)


class Rewards:
    """The reward of N envs with K slots, with credit that waits."""

    STATE: Final = ("bond", "credit", "delay")

    def __init__(self, num_envs: int, config: MorphogenesisConfig) -> None:
        self._config = config
        self.bond = torch.zeros(num_envs, config.slots, config.slots)
        """N K K float32, the largest interaction seen of two seeds."""
        self.credit = torch.zeros_like(self.bond)  # N K K, 0..1, of slot j, by what was pruned in slot i
        self.delay = self.bond.long()  # N K K, steps since it was pruned

    def step(self, evidence: Evidence) -> tuple[Tensor, dict[str, Tensor]]:
        """N float32, what the step pays, and `reward_<part>` N of all parts.

        Also `scaffolds` and `scaffold_delay` N: seeds that were credited in hindsight, and their delays.
        """
        bonus = self._fossil_bonus(evidence)
        hindsight, scaffolds, delays = self._hindsight(evidence)
        parts = charges(evidence, self._config) | earnings(evidence, self._config)
        parts |= {"fossil_bonus": bonus, "hindsight": hindsight}
        columns = {f"reward_{name}": parts[name] for name in PARTS}
        reward = torch.stack(list(columns.values())).sum(dim=0)
        return reward, columns | {"scaffolds": scaffolds, "scaffold_delay": delays}

    def restart(self, envs: Tensor) -> None:
        """Forget the seeds of `envs` (N bool): a new episode begins."""
        for name in self.STATE:
            getattr(self, name)[envs] = 0

    def _fossil_bonus(self, evidence: Evidence) -> Tensor:
        """0.5 + 0.1 c (in percentage points) + 3 tanh(1/3) + 0.1 tanh(I / 2) for a fossil that contributes.

        Times its legitimacy: steps of holding, as a share of those it takes. I is the largest interaction
        with another seed, in percentage points.
        """
        self.bond = torch.maximum(self.bond, evidence.pairs.nan_to_num())
        worth = _PERCENT * evidence.contribution.nan_to_num().clamp(0.0, 1.0)
        synergy = (_PERCENT * self.bond.amax(dim=2) / 2.0).tanh()
        bonus = 0.5 + 0.1 * worth + 3.0 * math.tanh(1 / 3) + 0.1 * synergy
        legitimacy = (evidence.age_before / LEGITIMATE_AFTER).clamp(max=1.0)
        earns = evidence.reached(Stage.FOSSILISED) & (worth > 0)
        return self._config.shaping * (bonus * legitimacy).where(earns, 0.0).sum(dim=1)

    def _hindsight(self, evidence: Evidence) -> tuple[Tensor, Tensor, Tensor]:
        """Credit for seeds that helped another one and were pruned before that one became part of the host.

        At most 0.2 a step, less by the decay for each step since the prune. Also how many such seeds were
        credited, and the sum of their delays.
        """
        seeded = evidence.within(*of_life(Life.GROWING, Life.GRAFTED))
        pruned = evidence.reached(Stage.PRUNED)[:, :, None] & seeded[:, None, :]
        helped = (self.bond / SCAFFOLD_FULL).clamp(0.0, 1.0)
        self.delay = torch.where(pruned & (helped > 0), 0, self.delay + 1)
        self.credit = torch.where(pruned & (helped > 0), helped, self.credit)
        due = evidence.reached(Stage.FOSSILISED)[:, None, :] & (self.credit > 0)
        paid = (self.credit * SCAFFOLD_DECAY**self.delay).where(due, 0.0)
        scaffolds, delays = due.sum(dim=(1, 2)), self.delay.where(due, 0).sum(dim=(1, 2))
        self.credit = self.credit.where(~due & seeded[:, None, :], 0.0)
        self.bond = self.bond.where(seeded[:, :, None] & seeded[:, None, :], 0.0)
        credit = self._config.shaping * SCAFFOLD * paid.sum(dim=(1, 2)).clamp(max=1.0)
        return credit, scaffolds.to(torch.uint8), delays.to(torch.int32)


def seed_counts(evidence: Evidence) -> dict[str, Tensor]:
    """What a step did to seeds, N each."""
    pruned, fossilised = evidence.reached(Stage.PRUNED), evidence.reached(Stage.FOSSILISED)
    ends = evidence.is_end[:, None] & evidence.within(*of_life(Life.GROWING, Life.GRAFTED))
    tried = evidence.within(*TRIED)
    life = (evidence.life + ends.long()).where(pruned | ends, 0)
    claims = overclaims(evidence)
    gamed = claims.any(dim=1) | (evidence.alpha_change.abs() > BIG_JUMP).any(dim=1)
    counts = {
        "germinated": evidence.reached(Stage.GERMINATED),
        "pruned": pruned,
        "fossilised": fossilised,
        "blends_ended": fossilised | (pruned & within(evidence.stage_before, *TRIED)) | (ends & tried),
        "lives_ended": pruned | ends,
        "tried": tried,
        "overclaimed": claims,
        "ransomed": holds_to_ransom(evidence),
    }
    columns = {f"seeds_{name}": where.sum(dim=1).to(torch.uint8) for name, where in counts.items()}
    return columns | {"seeds_life": life.sum(dim=1).to(torch.int32), "gamed": gamed}


SUMMARISED: Final = (
    *(f"reward_{name}" for name in PARTS),
    "shaping_share", "gaming_share", "scaffolds", "scaffold_delay", "hypervolume", "germination_rate",
    "prune_rate", "fossilise_rate", "blend_success", "seed_lifespan", "overclaimed_seeds", "ransom_seeds",
    "starved_seeds", "rollbacks",
)  # fmt: skip
"""Names of what `summary` gives, in its order."""


def summary(columns: Mapping[str, Tensor], ended: Tensor) -> dict[str, Tensor]:
    """Rows of the policy from the columns of a rollout, T N each; `ended` T N bool, where an episode did.

    A mean over what did not happen is undefined.
    """
    parts = {name: columns[f"reward_{name}"] for name in PARTS}
    sizes = {name: value.abs().sum() for name, value in parts.items()}
    shaping = torch.stack([sizes[name] for name in PARTS if name in SHAPING]).sum()
    episodes, scaffolds = ended.sum(), columns["scaffolds"].sum()
    share = columns["seed_share"]

    def seeds(name: str, over: Tensor | str = episodes) -> Tensor:
        """Such seeds an episode, or as a share of others."""
        count = columns[f"seeds_{over}"].sum() if isinstance(over, str) else over
        return ratio(columns[f"seeds_{name}"].sum(), count)

    return {f"reward_{name}": value.mean() for name, value in parts.items()} | {
        "shaping_share": ratio(shaping, torch.stack(list(sizes.values())).sum()),
        "gaming_share": columns["gamed"].float().mean(),
        "scaffolds": scaffolds.float(),
        "scaffold_delay": ratio(columns["scaffold_delay"].sum(), scaffolds),
        "hypervolume": hypervolume(columns["metric"], columns["growth_ratio"], ended),
        "germination_rate": seeds("germinated"),
        "prune_rate": seeds("pruned"),
        "fossilise_rate": seeds("fossilised"),
        "blend_success": seeds("fossilised", "blends_ended"),
        "seed_lifespan": seeds("life", "lives_ended"),
        "overclaimed_seeds": seeds("overclaimed", "tried"),
        "ransom_seeds": seeds("ransomed", "tried"),
        "starved_seeds": ratio((share < STARVED).sum(), share.isfinite().sum()),
        "rollbacks": ratio((columns["governor"] > 0).sum(), episodes),
    }


def hypervolume(metric: Tensor, size: Tensor, ended: Tensor) -> Tensor:
    """The area that the best trades of episodes that ended leave behind them; undefined without any.

    Each final metric reaches from its size (in multiples of the host alone) up to `LARGEST`, so that a trade
    which is both larger and worse than another adds nothing (Zitzler and Thiele 1998). 1 is a perfect metric
    at no growth. All T N.
    """
    at = size.flatten().clamp(1.0, LARGEST).where(ended.flatten(), LARGEST)
    order = at.argsort()
    ends = torch.cat([at[order], at.new_full((1,), LARGEST)])
    height = metric.flatten().clamp(0.0, 1.0)[order].cummax(dim=0).values
    area = (height * ends.diff()).sum() / (LARGEST - 1.0)
    return where_defined(ended.any(), area)
