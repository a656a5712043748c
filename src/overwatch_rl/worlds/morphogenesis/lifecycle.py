"""The seed lifecycle of all slots: stages, gates, alpha, and the facts they give.

Owns which operation is legal where, and every move between stages, as operations on N x K tensors. Rules: a
move is made only where the catalogue's table of transitions allows it; a slot moves at most once a step; only
what is measured can make a gate refuse, since what a slot knows of itself is in the mask. There is no G4.
Must not know networks, rewards or policies.

In one step: what follows a prune; the action; a seed that held too long is pruned; every alpha takes a step,
and a seed that has faded out is pruned.

Shape letters: N envs, K slots, P operations, C choices of one head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, TRANSITIONS, Life, Stage, of_life
from overwatch_rl.types import Factored, SeedFacts
from overwatch_rl.worlds.morphogenesis.actions import (
    ALPHA_SPEEDS,
    ALPHA_TARGETS,
    NO_OP,
    TEMPOS,
    Action,
    Curve,
    Op,
    Style,
)
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig

GROWING: Final = of_life(Life.GROWING)
CLEANING: Final = of_life(Life.CLEANING)
CONNECTED: Final = (Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED)
"""Stages in which a branch is part of its host."""
BUSY: Final = (Stage.GERMINATED, Stage.TRAINING, *CLEANING)
"""While a slot of an env is in one of these, no other seed germinates there."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The condition of one move onward; it is passed when all of its checks are."""

    name: str
    op: Op
    before: Stage
    after: Stage
    checks: tuple[str, ...]
    score: str = ""
    """Which reading its score is, if any: `health`, `alpha` or `contribution`."""


GATES: Final = (
    Gate("G0", Op.GERMINATE, Stage.DORMANT, Stage.GERMINATED, ("ids",)),
    Gate("G1", Op.ADVANCE, Stage.GERMINATED, Stage.TRAINING, ("stage",)),
    Gate(
        "G2", Op.ADVANCE, Stage.TRAINING, Stage.BLENDING, ("age", "gradient", "stable", "health"), "health"
    ),
    Gate("G3", Op.ADVANCE, Stage.BLENDING, Stage.HOLDING, ("alpha", "hold"), "alpha"),
    Gate(
        "G5", Op.FOSSILISE, Stage.HOLDING, Stage.FOSSILISED, ("age", "counterfactual", "positive"),
        "contribution",
    ),
)  # fmt: skip
"""In order; the code of a gate in a column is its place, from 1."""
MEASURED: Final = frozenset({"gradient", "stable", "health", "counterfactual", "positive"})
"""Checks that a slot cannot answer of itself."""

BY_POLICY: Final = "pruned by the policy"
FADING: Final = "fading out"
RETARGETED: Final = "new alpha target"
TOO_LONG: Final = "held too long"
ROLLED_BACK: Final = "rolled back"
_CLEANUP: Final = (
    (Stage.PRUNED, Stage.EMBARGOED, "pruned"),
    (Stage.EMBARGOED, Stage.RESETTING, "embargo over"),
    (Stage.RESETTING, Stage.DORMANT, "reset"),
)
"""What follows a prune, and why."""
REASONS: Final = (
    BY_POLICY, *(reason for *_, reason in _CLEANUP), *(f"passed {gate.name}" for gate in GATES), FADING,
    RETARGETED, TOO_LONG, ROLLED_BACK,
)  # fmt: skip
"""Why a stage was left; the code of a reason is its place, from 1."""

MAY_FOLLOW: Final = torch.tensor([[after in TRANSITIONS[before] for after in BY_CODE] for before in BY_CODE])
"""Whether a stage (column) may follow another (row), by code."""
_CHOICES: Final = ("blueprint", "style", "tempo", "alpha_target")
"""What a slot keeps of the action that germinated its seed; -1 where it has none."""
_READINGS: Final = ("health", "ratio", "contribution")
_ALPHA: Final = ("alpha", "alpha_start", "alpha_end", "alpha_steps", "alpha_left", "alpha_curve")
STATE: Final = ("stage", "age", "life", *_CHOICES, *_READINGS, *_ALPHA)
"""Tensors that the next step depends on."""
_STEEPNESS: Final = torch.tensor([1.0, 1.0, 6.0, 12.0, 24.0])
"""How steep the sigmoid of each curve is in its middle."""


def seed_facts(action: Factored, codes: Sequence[str], sizes: Sequence[int], embargo: int) -> SeedFacts:
    """The words that the columns of `Lifecycle.facts` count into; two letters and a size a blueprint."""
    labels = {head.name: head.labels for head in action.heads}
    return SeedFacts(
        slots=labels["slot"],
        embargo=embargo,
        blueprints=tuple(zip(labels["blueprint"], codes, strict=True)),
        reasons=REASONS,
        gates=tuple((gate.name, gate.checks) for gate in GATES),
        styles=labels["style"],
        curves=labels["alpha_curve"],
        tempos=labels["tempo"],
        sizes=tuple(sizes),
        panics=("nan",),
    )


def progress(curve: Tensor, share: Tensor) -> Tensor:
    """How far alpha has come after a share of the steps: 0 at 0, 1 at 1, rising; any shape.

    Cosine is (1 - cos πx) / 2. A sigmoid of s (x - 1/2) is stretched so that it begins at 0 and ends at 1.
    """
    steepness = _STEEPNESS[curve]
    low, high = torch.sigmoid(-steepness / 2), torch.sigmoid(steepness / 2)
    sigmoid = (torch.sigmoid(steepness * (share - 0.5)) - low) / (high - low)
    cosine = (1 - (torch.pi * share).cos()) / 2
    return torch.where(curve == Curve.LINEAR, share, torch.where(curve == Curve.COSINE, cosine, sigmoid))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What one step did."""

    germinated: Tensor  # N K bool
    fossilised: Tensor  # N K bool
    auto_pruned: Tensor  # N K bool, pruned because it held too long
    refused: Tensor  # N bool, a gate that the action asked for refused
    stage_before: Tensor  # N K int64
    age_before: Tensor  # N K int64
    alpha_before: Tensor  # N K float32


class Lifecycle:
    """N x K slots and the seeds in them."""

    def __init__(self, num_envs: int, config: MorphogenesisConfig, action: Factored) -> None:
        self._config, self._action = config, action
        zeros = torch.zeros((num_envs, config.slots), dtype=torch.int64)
        self.stage = zeros + Stage.DORMANT.code  # N K int64
        self.age = zeros.clone()  # N K, steps in the stage
        self.life = zeros.clone()  # N K, steps since the seed germinated
        self.blueprint = zeros - 1  # N K int64, -1 where there is none; so the next three
        self.style = zeros - 1
        self.tempo = zeros - 1
        self.alpha_target = zeros - 1
        self.alpha = zeros.float()  # N K, share of the branch that is let into its host, 0..1
        self.alpha_start = zeros.float()  # N K, where its movement began
        self.alpha_end = zeros.float()  # N K, where that goes
        self.alpha_steps = zeros.clone()  # N K, of the whole movement
        self.alpha_left = zeros.clone()  # N K, of them left; 0 while alpha holds
        self.alpha_curve = zeros.clone()  # N K, of `Curve`
        self.health, self.ratio, self.contribution = (torch.full(zeros.shape, torch.nan) for _ in range(3))
        """N K, NaN where unknown: gradient health; gradient a weight over the host's; accuracy added."""
        self._begin_step()

    def _begin_step(self) -> None:
        self._reason = torch.zeros_like(self.stage)  # N K, code of `REASONS`, 0 is no move
        self._gate = torch.zeros_like(self.stage[:, 0])  # N, code of `GATES`, 0 is none
        self._gate_slot = torch.zeros_like(self._gate)
        self._gate_score = torch.full(self._gate.shape, torch.nan)  # NaN where nothing is measured
        self._gate_failed = torch.zeros_like(self._gate)  # a bit for each of the gate's checks

    def restart(self, envs: Tensor) -> None:
        """All slots of `envs` (N bool) dormant, as a new episode finds them."""
        self.stage[envs] = Stage.DORMANT.code
        self.age[envs] = 0
        for name in _READINGS:
            getattr(self, name)[envs] = torch.nan
        self._clear()

    def facts(self) -> dict[str, Tensor]:
        """Every slot after the step, N K each, and the gate that each env asked for, N each; copies."""
        return {
            "slot_stage": self.stage.to(torch.uint8),
            "slot_blueprint": self.blueprint.to(torch.int16),
            "slot_alpha": self.alpha.clone(),
            "slot_age": self.age.to(torch.int32),
            "slot_grad": self.health.clone(),
            "slot_reason": self._reason.to(torch.uint8),
            "slot_contribution": self.contribution.clone(),
            "slot_style": self.style.to(torch.int8),
            "slot_tempo": self.tempo.to(torch.int8),
            "slot_curve": torch.where(self.blueprint >= 0, self.alpha_curve, -1).to(torch.int8),
            "gate": self._gate.to(torch.uint8),
            "gate_slot": self._gate_slot.to(torch.uint8),
            "gate_passed": (self._gate > 0) & (self._gate_failed == 0),
            "gate_score": self._gate_score,
            "gate_failed": self._gate_failed.to(torch.uint8),
        }

    def within(self, *stages: Stage) -> Tensor:
        """N K bool: which slots are in one of `stages`."""
        return within(self.stage, *stages)

    def mask(self) -> Tensor:
        """N L bool in the flat layout of the action."""
        slots = self.legal_slots()
        ops = slots.any(dim=2)
        ops[:, Op.WAIT] = True
        uses = torch.tensor(self._action.uses)
        arguments = [
            (ops & uses[:, number])[:, :, None] & torch.tensor([label != NO_OP for label in head.labels])
            for number, head in list(enumerate(self._action.heads))[2:]
        ]
        return torch.cat([ops, slots.flatten(1), *(block.flatten(1) for block in arguments)], dim=1)

    def legal_slots(self) -> Tensor:
        """N P K bool: on which slot each operation is legal; waiting has none."""
        is_due, holds = self._failed(MEASURED) == 0, self.alpha_left == 0
        is_free = ~self.within(*BUSY).any(dim=1, keepdim=True)
        by_op = {gate.op: torch.zeros_like(holds) for gate in GATES}
        for gate in GATES:
            by_op[gate.op] |= is_due & self.within(gate.before)
        by_op[Op.GERMINATE] &= is_free
        by_op[Op.SET_ALPHA_TARGET] = self.within(Stage.BLENDING, Stage.HOLDING) & holds
        by_op[Op.PRUNE] = self.within(*GROWING) & holds & (self.life >= self._config.min_prune_age)
        return torch.stack([by_op.get(op, torch.zeros_like(holds)) for op in Op], dim=1)

    def _failed(self, unasked: frozenset[str] = frozenset()) -> Tensor:
        """N K int64: a bit for each check that the gate before each slot fails, but for those `unasked`."""
        config, contribution = self._config, self.contribution
        least_age = self._of_stage({Stage.TRAINING: config.min_train, Stage.HOLDING: config.min_hold})
        answers = {
            "age": self.age >= least_age,
            "alpha": (self.alpha >= 1) & (self.alpha_end >= 1),
            "hold": self.alpha_left == 0,
            "gradient": self.health.isfinite(),
            "stable": self.ratio <= config.max_ratio,
            "health": self.health >= config.min_health,
            "counterfactual": contribution.isfinite(),
            "positive": contribution > 0,
        }
        failed = torch.zeros_like(self.stage)
        for gate in GATES:
            for place, check in enumerate(gate.checks):
                if check in answers and check not in unasked:
                    failed += (self.within(gate.before) & ~answers[check]) << place
        return failed

    def step(self, action: Action, contribution: Tensor) -> Transition:
        """Take one step; an action that `mask()` forbids is not done.

        `contribution`: N K float32 as last measured, NaN where unknown.
        """
        self._begin_step()
        self.contribution = contribution.clone()
        before = {name: getattr(self, name).clone() for name in ("stage", "age", "alpha")}
        legal = self.legal_slots()[torch.arange(len(self.stage)), action.op]
        aimed = legal & one_hot(action.slot, self.stage.shape[1])
        retargeted = aimed & (action.op == Op.SET_ALPHA_TARGET)[:, None]
        pruned = aimed & (action.op == Op.PRUNE)[:, None]
        requested = aimed & ~retargeted & ~pruned
        failed = self._failed()
        passed = requested & (failed == 0)
        self._record_gate(requested, failed)
        self._act(action, passed, retargeted, pruned)
        self._move_alpha()
        is_faded = self.within(Stage.BLENDING) & (self.alpha_end == 0) & (self.alpha_left == 0)
        self._move(is_faded, Stage.PRUNED, BY_POLICY)
        self._clear()
        changed = self.stage != before["stage"]
        return Transition(
            germinated=changed & self.within(Stage.GERMINATED),
            fossilised=changed & self.within(Stage.FOSSILISED),
            auto_pruned=changed & (self._reason == _code(TOO_LONG)),
            refused=(requested & ~passed).any(dim=1),
            **{f"{name}_before": value for name, value in before.items()},
        )

    def discard(self, envs: Tensor) -> None:
        """Prune every seed of `envs` (N bool) that learned and is no fossil: its host was rolled back."""
        growing = self.within(Stage.TRAINING, Stage.BLENDING, Stage.HOLDING)
        self._move(growing & envs[:, None], Stage.PRUNED, ROLLED_BACK)
        self._clear()

    def record_gradients(self, health: Tensor, ratio: Tensor) -> None:
        """Keep this step's gradients (N K, NaN where nothing learned); a pruned seed keeps its last."""
        is_pruned = self.within(Stage.PRUNED)
        self.health = torch.where(is_pruned, self.health, health)
        self.ratio = torch.where(is_pruned, self.ratio, ratio)

    def end_step(self) -> None:
        """Count the step that ended."""
        self.age = self.age + 1
        self.life = torch.where(self.blueprint >= 0, self.life + 1, 0)

    def _record_gate(self, requested: Tensor, failed: Tensor) -> None:
        """Record the gate that each env's action asks (N K bool, one slot at most) and what `failed`."""
        codes = self._of_stage({gate.before: place for place, gate in enumerate(GATES, start=1)})
        readings = {"health": self.health, "alpha": self.alpha, "contribution": self.contribution}
        score = torch.full_like(self.alpha, torch.nan)
        for gate in GATES:
            if gate.score:
                score = torch.where(self.within(gate.before), readings[gate.score], score)
        is_requested, slot = requested.any(dim=1), requested.to(torch.uint8).argmax(dim=1)

        def at_slot(values: Tensor, absent: float) -> Tensor:
            """N: of N K the value of the slot whose gate is requested."""
            return torch.where(is_requested, values.gather(1, slot[:, None]).squeeze(1), absent)

        self._gate, self._gate_failed = at_slot(codes, 0), at_slot(failed, 0)
        self._gate_slot = torch.where(is_requested, slot, 0)
        self._gate_score = at_slot(score, torch.nan)

    def _act(self, action: Action, passed: Tensor, retargeted: Tensor, pruned: Tensor) -> None:
        """Make the moves of one step; passed, retargeted and pruned: N K bool, no slot in two of them."""
        config, now = self._config, {stage: self.within(stage) for stage in Stage}
        for name in _CHOICES:
            chosen = passed & now[Stage.DORMANT]
            if name in ("style", "alpha_target"):
                chosen = chosen | retargeted
            setattr(self, name, torch.where(chosen, getattr(action, name)[:, None], getattr(self, name)))
        speed = torch.tensor([steps for _, steps in ALPHA_SPEEDS])[action.alpha_speed][:, None]
        fades, blends = pruned & self.within(*CONNECTED) & (speed > 0), passed & now[Stage.TRAINING]
        target = torch.tensor(ALPHA_TARGETS)[self.alpha_target.clamp(min=0)].masked_fill(fades, 0.0)
        tempo = torch.tensor([steps for _, steps in TEMPOS])[self.tempo.clamp(min=0)]
        first_curve = torch.where(self.style == Style.SIGMOID_ADD, int(Curve.SIGMOID), int(Curve.LINEAR))
        self._aim_alpha(
            fades | blends | retargeted,
            target,
            torch.where(blends, tempo, speed),
            torch.where(blends, first_curve, action.alpha_curve[:, None]),
        )
        age = self.age
        for before, after, reason in _CLEANUP:
            rests = config.embargo if before is Stage.EMBARGOED else 1
            self._move(now[before] & (age >= rests), after, reason)
        for gate in GATES:
            self._move(passed & now[gate.before], gate.after, f"passed {gate.name}")
        self._move(pruned & ~fades, Stage.PRUNED, BY_POLICY)
        self._move(fades & now[Stage.HOLDING], Stage.BLENDING, FADING)
        self._move(retargeted & now[Stage.HOLDING] & (target < 1), Stage.BLENDING, RETARGETED)
        late = now[Stage.HOLDING] & (age >= config.max_hold) & (self._reason == 0)
        self._move(late, Stage.PRUNED, TOO_LONG)

    def _aim_alpha(self, where: Tensor, end: Tensor, steps: Tensor, curve: Tensor) -> None:
        """Begin a movement `where` (N K bool); in 0 steps, or to where it is, it ends at once. All N K."""
        steps = torch.where(end == self.alpha, 0, steps)
        value = torch.where(where & (steps == 0), end, self.alpha)
        columns = (value, value, end, steps, steps, curve)
        for name, new in zip(_ALPHA, columns, strict=True):
            setattr(self, name, torch.where(where, new, getattr(self, name)))

    def _move_alpha(self) -> None:
        """Take one step of every movement."""
        moves = self.alpha_left > 0
        self.alpha_left = self.alpha_left - moves.long()
        share = 1 - self.alpha_left / self.alpha_steps.clamp(min=1)
        between = torch.lerp(self.alpha_start, self.alpha_end, progress(self.alpha_curve, share))
        value = torch.where(self.alpha_left == 0, self.alpha_end, between)
        self.alpha = torch.where(moves, value, self.alpha)

    def _move(self, where: Tensor, after: Stage, reason: str) -> None:
        """Change the stage of the slots `where` (N K bool) where the table allows it, and keep why."""
        moves = where & MAY_FOLLOW[self.stage, after.code]
        self._reason = torch.where(moves, _code(reason), self._reason)
        self.stage = torch.where(moves, after.code, self.stage)
        self.age = torch.where(moves, 0, self.age)

    def _clear(self) -> None:
        """Only a connected seed has alpha; nothing is left of one whose stage names no blueprint."""
        is_gone = ~self.within(*(stage for stage in Stage if stage.shows_blueprint))
        for name in _CHOICES:
            setattr(self, name, torch.where(is_gone, -1, getattr(self, name)))
        self.life = torch.where(is_gone, 0, self.life)
        nothing = torch.zeros_like(self.alpha)
        self._aim_alpha(~self.within(*CONNECTED), nothing, self.alpha_left * 0, self.alpha_curve)

    def _of_stage(self, values: dict[Stage, int]) -> Tensor:
        """N K: the value of each slot's stage, 0 for a stage that is not named."""
        return torch.tensor([values.get(stage, 0) for stage in BY_CODE])[self.stage]


def within(codes: Tensor, *stages: Stage) -> Tensor:
    """Bool of the same shape: which codes are of one of `stages`."""
    return _is_one_of(stages)[codes]


@cache
def _is_one_of(stages: tuple[Stage, ...]) -> Tensor:
    return torch.tensor([stage in stages for stage in BY_CODE])


def one_hot(codes: Tensor, count: int) -> Tensor:
    """... C bool: which of `count` codes each is; none where it is below 0."""
    return codes.unsqueeze(-1) == torch.arange(count)


def _code(reason: str) -> int:
    return REASONS.index(reason) + 1
