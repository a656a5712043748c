"""The seed lifecycle of all slots: stages, gates, alpha, and the facts they give.

Owns which operation is legal where, and every move between stages, as operations on N x K tensors: no loop
over envs or slots, nothing read from the device. Rules: a move is made only where the catalogue's table of
transitions allows it; a slot moves at most once a step; an env asks at most one gate a step, first the one
that its action asks, else the first that is due by itself. Must not know networks, rewards or policies.

In one step: what follows a prune by itself; the action, or else a gate that asks itself; a seed that held too
long is pruned; every alpha takes a step, and a seed that has faded out is pruned.

Shape letters: N envs, K slots, P operations, C choices of one head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, TRANSITIONS, Life, Stage, of_life
from overwatch_rl.types import Factored, SeedFacts
from overwatch_rl.worlds.morphogenesis.actions import (
    ALGORITHMS,
    ALPHA_SPEEDS,
    ALPHA_TARGETS,
    BLEND_CURVES,
    NO_OP,
    TEMPOS,
    Chosen,
    Op,
)
from overwatch_rl.worlds.morphogenesis.alpha import Alpha, Mode
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.gates import CHECKS, GATES, KNOWN_BEFORE, SCORES

GROWING: Final = of_life(Life.GROWING)
CLEANING: Final = of_life(Life.CLEANING)
CONNECTED: Final = (Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED)
"""Stages in which a branch is part of its host."""
BUSY: Final = (Stage.GERMINATED, Stage.TRAINING, *CLEANING)
"""While a slot of an env is in one of these, no other seed germinates there."""

BY_POLICY: Final = "pruned by the policy"
FADING: Final = "fading out"
RETARGETED: Final = "new alpha target"
TOO_LONG: Final = "held too long"
ROLLED_BACK: Final = "rolled back"
_BY_ITSELF: Final = {
    Stage.PRUNED: (Stage.EMBARGOED, "pruned"),
    Stage.EMBARGOED: (Stage.RESETTING, "embargo over"),
    Stage.RESETTING: (Stage.DORMANT, "reset"),
}
"""What follows a prune, and why."""
REASONS: Final = (
    BY_POLICY,
    *(reason for _, reason in _BY_ITSELF.values()),
    *(f"passed {gate.name}" for gate in GATES),
    FADING,
    RETARGETED,
    TOO_LONG,
    ROLLED_BACK,
)
"""Why a stage was left; the code of a reason is its place, from 1."""

MAY_FOLLOW: Final = torch.tensor([[after in TRANSITIONS[before] for after in BY_CODE] for before in BY_CODE])
"""Whether a stage (column) may follow another (row), by code."""
_CHOICES: Final = ("blueprint", "style", "tempo", "alpha_target")
"""What a slot keeps of the action that germinated its seed; -1 where it has none."""
_READINGS: Final = ("health", "ratio", "contribution")
_KEPT: Final = ("stage", "age", "life", *_CHOICES, *_READINGS)


def seed_facts(action: Factored, codes: tuple[str, ...], config: MorphogenesisConfig) -> SeedFacts:
    """The words that the columns of `Lifecycle.facts` count into; `codes`: two letters a blueprint."""
    labels = {head.name: head.labels for head in action.heads}
    return SeedFacts(
        slots=labels["slot"],
        embargo=config.embargo,
        blueprints=tuple(zip(labels["blueprint"], codes, strict=True)),
        reasons=REASONS,
        gates=tuple((gate.name, gate.checks(is_strict=config.is_strict)) for gate in GATES),
        styles=labels["style"],
        curves=labels["alpha_curve"],
        tempos=labels["tempo"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one step did."""

    germinated: Tensor  # N K bool
    fossilised: Tensor  # N K bool
    auto_pruned: Tensor  # N K bool, pruned because it held too long
    refused: Tensor  # N bool, a gate that the action queried refused
    stage_before: Tensor  # N K int64
    age_before: Tensor  # N K int64
    alpha_before: Tensor  # N K float32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The gate before each slot."""

    gate: Tensor  # N K int64, its code, 0 is none
    is_due: Tensor  # N K bool, whether all that the slot knows of itself lets it pass
    failed: Tensor  # N K int64, a bit for each check that would refuse it


class _Tables:
    """What is looked up by code: of a stage, of a gate (0 is none), of a choice."""

    def __init__(self, config: MorphogenesisConfig, action: Factored, device: str) -> None:
        def table(values: Sequence[object]) -> Tensor:
            return torch.tensor(values, device=device)

        self._stages: dict[tuple[Stage, ...], Tensor] = {}
        self._device = device
        self.may_follow = MAY_FOLLOW.to(device)
        least = {Stage.TRAINING: config.min_train, Stage.BLENDING: config.min_blend}
        least |= {Stage.HOLDING: config.min_hold, Stage.EMBARGOED: config.embargo}
        self.least_age = table([least.get(stage, 1) for stage in BY_CODE])
        self.shows = table([stage.shows_blueprint for stage in BY_CODE])
        self.next = table([_BY_ITSELF.get(stage, (stage,))[0].code for stage in BY_CODE])
        self.next_reason = table([_code(_BY_ITSELF[s][1]) if s in _BY_ITSELF else 0 for s in BY_CODE])
        before = {gate.before: place for place, gate in enumerate(GATES, start=1)}
        self.gate = table([before.get(stage, 0) for stage in BY_CODE])
        self.gate_op = table([Op.WAIT, *(gate.op for gate in GATES)])
        self.gate_after = table([Stage.UNKNOWN.code, *(gate.after.code for gate in GATES)])
        self.gate_reason = table([0, *(_code(f"passed {gate.name}") for gate in GATES)])
        self.gate_auto = table([False, *(gate.name in config.auto_gates for gate in GATES)])
        self.gate_score = table([0, *(SCORES.index(gate.score) for gate in GATES)])
        names_of = [(), *(gate.checks(is_strict=config.is_strict) for gate in GATES)]
        bits = [[1 << names.index(check) if check in names else 0 for check in CHECKS] for names in names_of]
        self.bits = table(bits)
        self.known_bits = self.bits * table([check in KNOWN_BEFORE for check in CHECKS])
        self.targets, self.tempos = table(ALPHA_TARGETS), table([steps for _, steps in TEMPOS])
        self.speeds = table([steps for _, steps in ALPHA_SPEEDS])
        self.curves, self.algorithms = table(BLEND_CURVES), table(ALGORITHMS)
        self.allowed = [
            table([row[number] for row in action.uses])[:, None]
            & table([one != NO_OP for one in head.labels])
            for number, head in list(enumerate(action.heads))[2:]
        ]
        """Of each head after the slot, P C: which choices an operation has where it is legal."""

    def of(self, stages: tuple[Stage, ...]) -> Tensor:
        """Bool by code: whether a stage is one of these."""
        if stages not in self._stages:
            self._stages[stages] = torch.tensor([stage in stages for stage in BY_CODE], device=self._device)
        return self._stages[stages]


class Lifecycle:
    """N x K slots and the seeds in them."""

    def __init__(
        self, num_envs: int, config: MorphogenesisConfig, action: Factored, device: str = "cpu"
    ) -> None:
        self._config, self._device = config, device
        self._tables = _Tables(config, action, device)
        shape = (num_envs, config.slots)
        zeros = torch.zeros(shape, dtype=torch.int64, device=device)
        self.stage = zeros + Stage.DORMANT.code  # N K int64
        self.age = zeros.clone()  # N K, steps in the stage
        self.life = zeros.clone()  # N K, steps since the seed germinated
        self.blueprint = zeros - 1  # N K int64, -1 where there is none; so the next three
        self.style = zeros - 1
        self.tempo = zeros - 1
        self.alpha_target = zeros - 1
        self.alpha = Alpha(*shape, device)
        self.health = torch.full(shape, torch.nan, device=device)  # N K, of gradients, NaN where unknown
        self.ratio = torch.full(shape, torch.nan, device=device)  # N K, gradient a weight over the host's
        self.contribution = torch.full(shape, torch.nan, device=device)  # N K, NaN where there is no branch
        self._begin_step()

    def _begin_step(self) -> None:
        envs = len(self.stage)
        device = self._device
        self._reason = torch.zeros_like(self.stage)  # N K, code of `REASONS`, 0 is no move
        self._gate = torch.zeros(envs, dtype=torch.int64, device=device)  # code of `GATES`, 0 is none
        self._gate_slot = torch.zeros_like(self._gate)
        self._gate_score = torch.full((envs,), torch.nan, device=device)  # NaN where nothing is measured
        self._gate_failed = torch.zeros_like(self._gate)  # a bit for each of the gate's checks

    def restart(self, envs: Tensor) -> None:
        """All slots of `envs` (N bool) dormant, as a new episode finds them."""
        here = envs[:, None].expand_as(self.stage)
        self.stage = torch.where(here, Stage.DORMANT.code, self.stage)
        self.age = torch.where(here, 0, self.age)
        for name in _READINGS:
            setattr(self, name, torch.where(here, torch.nan, getattr(self, name)))
        self._settle()

    def facts(self) -> dict[str, Tensor]:
        """Every slot after the step, N K each, and the gate that each env queried, N each; copies."""
        return {
            "slot_stage": self.stage.to(torch.uint8),
            "slot_blueprint": self.blueprint.to(torch.int16),
            "slot_alpha": self.alpha.value.clone(),
            "slot_age": self.age.to(torch.int32),
            "slot_grad": self.health.clone(),
            "slot_reason": self._reason.to(torch.uint8),
            "slot_contribution": self.contribution.clone(),
            "slot_style": self.style.to(torch.int8),
            "slot_tempo": self.tempo.to(torch.int8),
            "slot_curve": torch.where(self.blueprint >= 0, self.alpha.curve, -1).to(torch.int8),
            "gate": self._gate.to(torch.uint8),
            "gate_slot": self._gate_slot.to(torch.uint8),
            "gate_passed": (self._gate > 0) & (self._gate_failed == 0),
            "gate_score": self._gate_score,
            "gate_failed": self._gate_failed.to(torch.uint8),
        }

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        own = {name: getattr(self, name).clone() for name in _KEPT}
        return own | {f"alpha.{name}": value for name, value in self.alpha.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was."""
        for name in _KEPT:
            setattr(self, name, state[name].clone())
        self.alpha.load_state_dict(
            {key.removeprefix("alpha."): value for key, value in state.items() if key.startswith("alpha.")}
        )

    def within(self, *stages: Stage) -> Tensor:
        """N K bool: which slots are in one of `stages`."""
        return self._tables.of(stages)[self.stage]

    @property
    def algorithm(self) -> Tensor:
        """N K int64: how each branch is combined, 0 added, 1 multiplied, 2 gated."""
        return self._tables.algorithms[self.style.clamp(min=0)]

    def legal_slots(self) -> Tensor:
        """N P K bool: on which slot each operation is legal; waiting has none."""
        return self._legal(self._look())

    def _legal(self, look: _Look) -> Tensor:
        num_slots = self.stage.shape[1]
        holds = self.alpha.mode == Mode.HOLD
        seeds = self.within(*GROWING, Stage.FOSSILISED).sum(dim=1)
        is_free = ~self.within(*BUSY).any(dim=1) & (seeds < (self._config.max_seeds or num_slots))
        by_op = {
            op: look.is_due & (self._tables.gate_op[look.gate] == op) for op in {gate.op for gate in GATES}
        }
        by_op[Op.GERMINATE] &= is_free[:, None]
        by_op[Op.SET_ALPHA_TARGET] = self.within(Stage.BLENDING, Stage.HOLDING) & holds
        by_op[Op.PRUNE] = self.within(*GROWING) & holds & (self.life >= self._config.min_prune_age)
        nowhere = torch.zeros_like(holds)
        return torch.stack([by_op.get(op, nowhere) for op in Op], dim=1)

    def mask(self) -> Tensor:
        """N L bool in the flat layout of the action."""
        slots = self.legal_slots()
        ops = slots.any(dim=2)
        ops[:, Op.WAIT] = True
        arguments = [(ops[:, :, None] & allowed).flatten(1) for allowed in self._tables.allowed]
        return torch.cat([ops, slots.flatten(1), *arguments], dim=1)

    def step(self, action: Chosen, contribution: Tensor) -> Moved:
        """Take one step; an action that `mask()` forbids is not done.

        `contribution`: N K float32 as last measured, NaN where unknown.
        """
        self._begin_step()
        self.contribution = contribution
        stage_before, age_before, alpha_before = self.stage, self.age, self.alpha.value
        everyone = torch.arange(len(self.stage), device=self._device)
        aimed = one_hot(action.slot, self.stage.shape[1])
        look = self._look()
        aimed = aimed & self._legal(look)[everyone, action.op]
        retargeted = aimed & (action.op == Op.SET_ALPHA_TARGET)[:, None]
        pruned = aimed & (action.op == Op.PRUNE)[:, None]
        by_action = aimed & ~retargeted & ~pruned
        passed = self._query(look, by_action, aimed)
        refused = (by_action & ~passed).any(dim=1)
        self._let(action, look.gate, passed, retargeted, pruned)
        self.alpha.advance()
        is_faded = self.within(Stage.BLENDING) & (self.alpha.target == 0) & (self.alpha.mode == Mode.HOLD)
        self._move(is_faded, Stage.PRUNED, BY_POLICY)
        self._settle()
        changed = self.stage != stage_before
        return Moved(
            germinated=changed & self.within(Stage.GERMINATED),
            fossilised=changed & self.within(Stage.FOSSILISED),
            auto_pruned=changed & (self._reason == _code(TOO_LONG)),
            refused=refused,
            stage_before=stage_before,
            age_before=age_before,
            alpha_before=alpha_before,
        )

    def discard(self, envs: Tensor) -> None:
        """Prune every seed of `envs` (N bool) that learned and is no fossil: its host was rolled back."""
        growing = self.within(Stage.TRAINING, Stage.BLENDING, Stage.HOLDING)
        self._move(growing & envs[:, None], Stage.PRUNED, ROLLED_BACK)
        self._settle()

    def learned(self, health: Tensor, ratio: Tensor) -> None:
        """Keep this step's gradients (N K, NaN where nothing learned); a pruned seed keeps its last."""
        is_pruned = self.within(Stage.PRUNED)
        self.health = torch.where(is_pruned, self.health, health)
        self.ratio = torch.where(is_pruned, self.ratio, ratio)

    def grow_older(self) -> None:
        """Count the step that ended."""
        self.age = self.age + 1
        self.life = torch.where(self.blueprint >= 0, self.life + 1, 0)

    def _answers(self) -> Tensor:
        """N K checks, bool: what each slot answers; what is unknown is no."""
        config, contribution, alpha = self._config, self.contribution, self.alpha
        yes = torch.ones_like(self.stage, dtype=torch.bool)
        found = {
            "ids": yes,
            "stage": yes,
            "age": self.age >= self._tables.least_age[self.stage],
            "alpha": (alpha.value >= 1) & (alpha.target >= 1),
            "hold": alpha.mode == Mode.HOLD,
            "gradient": self.health.isfinite(),
            "stable": self.ratio <= config.max_ratio,
            "health": self.health >= config.min_health,
            "improvement": contribution >= config.min_improvement,
            "ratio": self.ratio >= config.min_ratio,
            "counterfactual": contribution.isfinite(),
            "positive": contribution > 0,
            "contribution": contribution >= config.min_contribution,
        }
        return torch.stack([found[check] for check in CHECKS], dim=2)

    def _look(self) -> _Look:
        """At the gate before each slot."""
        gate = self._tables.gate[self.stage]
        wrong = ~self._answers()
        is_due = ((self._tables.known_bits[gate] * wrong).sum(dim=2) == 0) & (gate > 0)
        return _Look(gate=gate, is_due=is_due, failed=(self._tables.bits[gate] * wrong).sum(dim=2))

    def _query(self, look: _Look, by_action: Tensor, touched: Tensor) -> Tensor:
        """Ask at most one gate an env, keep its answer, and return which slots passed (N K bool).

        That of the action; where it asks none, that of the first slot whose gate asks itself, beside those
        that the action `touched`.
        """
        failed, gate = look.failed, look.gate
        due = look.is_due & self._tables.gate_auto[gate] & ~touched & ~by_action.any(dim=1, keepdim=True)
        queried = by_action | (due & (due.cumsum(dim=1) == 1))
        here, slot = queried.any(dim=1), queried.to(torch.uint8).argmax(dim=1)
        readings = [torch.full_like(self.health, torch.nan), self.health, self.alpha.value, self.contribution]
        score = torch.stack(readings, dim=2).gather(2, self._tables.gate_score[gate][..., None]).squeeze(2)
        self._gate = torch.where(here, _at(gate, slot), 0)
        self._gate_slot = torch.where(here, slot, 0)
        self._gate_failed = torch.where(here, _at(failed, slot), 0)
        self._gate_score = torch.where(here, _at(score, slot), torch.nan)
        return queried & (failed == 0)

    def _let(self, action: Chosen, gate: Tensor, passed: Tensor, retargeted: Tensor, pruned: Tensor) -> None:
        """Make the moves of one step; passed, retargeted and pruned: N K bool, no slot in two of them."""
        tables = self._tables
        holds, trains = self.within(Stage.HOLDING), self.within(Stage.TRAINING)
        for name in _CHOICES:
            self._choose(passed & self.within(Stage.DORMANT), name, getattr(action, name))
        for name in ("style", "alpha_target"):
            self._choose(retargeted, name, getattr(action, name))
        speed = tables.speeds[action.alpha_speed][:, None]
        fades = pruned & self.within(*CONNECTED) & (speed > 0)
        blends = passed & trains
        target = torch.where(fades, 0.0, tables.targets[self.alpha_target.clamp(min=0)])
        steps = torch.where(blends, tables.tempos[self.tempo.clamp(min=0)], speed)
        curve = torch.where(blends, tables.curves[self.style.clamp(min=0)], action.alpha_curve[:, None])
        self.alpha.move(fades | blends | retargeted, target, steps, curve)
        cleans = self.within(*CLEANING) & (self.age >= tables.least_age[self.stage])
        late = holds & (self.age >= self._config.max_hold) & ~passed
        self._change(cleans, tables.next[self.stage], tables.next_reason[self.stage])
        self._change(passed, tables.gate_after[gate], tables.gate_reason[gate])
        self._move(pruned & ~fades, Stage.PRUNED, BY_POLICY)
        self._move(fades & holds, Stage.BLENDING, FADING)
        self._move(retargeted & holds & (target < 1), Stage.BLENDING, RETARGETED)
        self._move(late & (self._reason == 0), Stage.PRUNED, TOO_LONG)

    def _choose(self, where: Tensor, name: str, choice: Tensor) -> None:
        setattr(self, name, torch.where(where, choice[:, None], getattr(self, name)))

    def _move(self, where: Tensor, after: Stage, reason: str) -> None:
        """Change the stage of the slots `where` (N K bool) where the table allows it, and keep why."""
        after_all = torch.full_like(self.stage, after.code)
        self._change(where, after_all, torch.full_like(self.stage, _code(reason)))

    def _change(self, where: Tensor, after: Tensor, reason: Tensor) -> None:
        """The same by codes, N K int64."""
        moves = where & self._tables.may_follow[self.stage, after]
        self._reason = torch.where(moves, reason, self._reason)
        self.stage = torch.where(moves, after, self.stage)
        self.age = torch.where(moves, 0, self.age)

    def _settle(self) -> None:
        """Only a connected seed has alpha; nothing is left of one whose stage names no blueprint."""
        is_gone = ~self._tables.shows[self.stage]
        for name in _CHOICES:
            setattr(self, name, torch.where(is_gone, -1, getattr(self, name)))
        self.life = torch.where(is_gone, 0, self.life)
        self.alpha.hold(~self.within(*CONNECTED), 0.0)


def one_hot(codes: Tensor, count: int) -> Tensor:
    """... C bool: which of `count` codes each is; none where it is below 0. PyTorch's own reads the codes."""
    return codes.unsqueeze(-1) == torch.arange(count, device=codes.device)


def _code(reason: str) -> int:
    return REASONS.index(reason) + 1


def _at(values: Tensor, slot: Tensor) -> Tensor:
    """N: of N K the one of each env's slot."""
    return values.gather(1, slot[:, None]).squeeze(1)
