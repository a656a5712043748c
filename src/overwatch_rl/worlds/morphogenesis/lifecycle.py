"""The seed lifecycle of all slots: stages, gates, and the facts they give.

Owns which operation is legal where, what a gate asks, and every move between stages. Rules: a move that the
catalogue's table of transitions does not allow is a bug and asserted; what a slot can know of itself (age,
alpha) is in the mask, what must be measured (gain) is left to the gate, which may refuse. Must not know
networks, rewards or policies.

Shape letters: N envs, K slots, P operations, B blueprints.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import torch
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, TRANSITIONS, Stage
from overwatch_rl.types import Factored, Head, SeedFacts
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP


class Op(IntEnum):
    """What a policy may do in one step of one env."""

    WAIT = 0
    GERMINATE = 1
    ADVANCE = 2
    FOSSILISE = 3
    PRUNE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The condition of one move that a policy may ask for."""

    name: str
    op: Op
    before: Stage
    after: Stage
    min_age: int = 0
    """Steps in `before`; part of the mask."""
    measured: str | None = None
    """Name of the check that the seed's measured gain is above zero; `None` where nothing is measured."""

    @property
    def checks(self) -> tuple[str, ...]:
        """Names of what it asks, in order."""
        requested = {
            "stage": True,
            "age": self.min_age > 0,
            "alpha": self.after is Stage.HOLDING,
            self.measured: self.measured is not None,
        }
        return tuple(name for name, is_requested in requested.items() if is_requested and name is not None)


GATES: Final = (
    Gate(name="G0", op=Op.GERMINATE, before=Stage.DORMANT, after=Stage.GERMINATED),
    Gate(name="G1", op=Op.ADVANCE, before=Stage.GERMINATED, after=Stage.TRAINING, min_age=1),
    Gate(name="G2", op=Op.ADVANCE, before=Stage.TRAINING, after=Stage.BLENDING, min_age=3, measured="health"),
    Gate(name="G3", op=Op.ADVANCE, before=Stage.BLENDING, after=Stage.HOLDING),
    Gate(
        name="G5",
        op=Op.FOSSILISE,
        before=Stage.HOLDING,
        after=Stage.FOSSILISED,
        min_age=2,
        measured="contribution",
    ),
)

PRUNABLE: Final = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING)

EMBARGO_STEPS: Final = 3
"""Steps for which a slot stays embargoed after a prune."""

AUTOMATIC: Final = (
    (Stage.PRUNED, 1, Stage.EMBARGOED, "pruned"),
    (Stage.EMBARGOED, EMBARGO_STEPS, Stage.RESETTING, "embargo over"),
    (Stage.RESETTING, 1, Stage.DORMANT, "reset"),
)
"""Stage, steps in it, stage after it, reason."""

ALPHA_STEP: Final = 0.25
"""How much of a blending seed is let in each step."""

PRUNED_BY_POLICY: Final = "pruned by the policy"
REASONS: Final = (
    PRUNED_BY_POLICY,
    *(reason for *_, reason in AUTOMATIC),
    *(f"passed {gate.name}" for gate in GATES),
)
"""Why a stage was left; the code of a reason is its place, from 1."""

_FULL: Final = {Stage.HOLDING: 1.0, Stage.FOSSILISED: 1.0}
_GATE_BY_MOVE: Final = {(gate.op, gate.before): gate for gate in GATES}
_NO_ARGUMENTS: Final = (True, False, False)


def slot_names(num_slots: int) -> tuple[str, ...]:
    """`r{row}c{column}`, three to a row."""
    return tuple(f"r{index // 3}c{index % 3}" for index in range(num_slots))


def action_spec(num_slots: int) -> Factored:
    """Heads op, slot and blueprint; waiting uses no argument, only germinating names a blueprint."""
    uses = {Op.WAIT: _NO_ARGUMENTS, Op.GERMINATE: (True, True, True)}
    return Factored(
        heads=(
            Head(name="op", labels=tuple(op.name.lower() for op in Op)),
            Head(name="slot", labels=slot_names(num_slots)),
            Head(name="blueprint", labels=tuple(blueprint.id for blueprint in MLP)),
        ),
        uses=tuple(uses.get(op, (True, True, False)) for op in Op),
    )


def seed_facts(num_slots: int) -> SeedFacts:
    """The words that the columns of `Lifecycle.facts` count into."""
    return SeedFacts(
        slots=slot_names(num_slots),
        embargo=EMBARGO_STEPS,
        blueprints=tuple((blueprint.id, blueprint.code) for blueprint in MLP),
        reasons=REASONS,
        gates=tuple((gate.name, gate.checks) for gate in GATES),
    )


class Lifecycle:
    """N x K slots and the seeds in them."""

    def __init__(self, num_envs: int, num_slots: int) -> None:
        shape = (num_envs, num_slots)
        self.stage = torch.full(shape, Stage.DORMANT.code)  # N K int64
        self.age = torch.zeros(shape, dtype=torch.int64)  # N K, steps in the stage
        self.alpha = torch.zeros(shape)  # N K float32
        self.blueprint = torch.full(shape, -1)  # N K int64, -1 where there is none
        self.grad = torch.full(shape, torch.nan)  # N K float32, gradient health, NaN where there is none
        self._begin_step()

    def _begin_step(self) -> None:
        num_envs = len(self.stage)
        self._reason = torch.zeros_like(self.stage, dtype=torch.uint8)  # N K, code of `REASONS`, 0 is no move
        self._gate = torch.zeros(num_envs, dtype=torch.uint8)  # code of `GATES`, 0 is none
        self._gate_slot = torch.zeros(num_envs, dtype=torch.uint8)
        self._gate_passed = torch.zeros(num_envs, dtype=torch.bool)
        self._gate_score = torch.full((num_envs,), torch.nan)  # NaN where nothing is measured
        self._gate_failed = torch.zeros(num_envs, dtype=torch.uint8)  # a bit for each of the gate's checks

    def restart(self) -> None:
        """All slots dormant, as a new episode finds them."""
        self.stage.fill_(Stage.DORMANT.code)
        self.age.zero_()
        self.alpha.zero_()
        self.blueprint.fill_(-1)
        self.grad.fill_(torch.nan)

    def facts(self) -> dict[str, Tensor]:
        """Every slot after the step, N K each, and the gate that each env asked, N each; copies."""
        return {
            "slot_stage": self.stage.to(torch.uint8),
            "slot_blueprint": self.blueprint.to(torch.int16),
            "slot_alpha": self.alpha.clone(),
            "slot_age": self.age.to(torch.int32),
            "slot_grad": self.grad.clone(),
            "slot_reason": self._reason,
            "gate": self._gate,
            "gate_slot": self._gate_slot,
            "gate_passed": self._gate_passed,
            "gate_score": self._gate_score,
            "gate_failed": self._gate_failed,
        }

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        names = ("stage", "age", "alpha", "blueprint", "grad")
        return {name: getattr(self, name).clone() for name in names}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was."""
        for name, value in state.items():
            getattr(self, name).copy_(value)

    def within(self, *stages: Stage) -> Tensor:
        """N K bool: which slots are in one of `stages`."""
        return torch.isin(self.stage, torch.tensor([stage.code for stage in stages]))

    def legal_slots(self) -> Tensor:
        """N P K bool: on which slot each operation is legal; waiting has none."""
        num_envs, num_slots = self.stage.shape
        legal = torch.zeros(num_envs, len(Op), num_slots, dtype=torch.bool)
        for gate in GATES:
            ready = self.within(gate.before) & (self.age >= gate.min_age)
            if gate.after is Stage.HOLDING:
                ready &= self.alpha >= 1.0
            legal[:, gate.op] |= ready
        legal[:, Op.PRUNE] = self.within(*PRUNABLE) & (self.age >= 1)
        return legal

    def mask(self) -> Tensor:
        """N L bool in the flat layout of `action_spec`."""
        slots = self.legal_slots()
        ops = slots.any(dim=2)
        ops[:, Op.WAIT] = True
        blueprints = torch.zeros(len(slots), len(Op), len(MLP), dtype=torch.bool)
        blueprints[:, Op.GERMINATE] = ops[:, Op.GERMINATE, None]
        blueprints[:, :, -1] = False  # the no-op
        return torch.cat([ops, slots.flatten(1), blueprints.flatten(1)], dim=1)

    def step(self, actions: Tensor, gain: Tensor) -> Tensor:
        """Move what moves by itself, then what the actions ask for, then let blending seeds in further.

        `actions`: N 3 int64, legal under `mask()`; `gain`: N K float32, as last measured. Returns the rows
        (int64, env x K + slot) of the seeds that germinated.
        """
        self._begin_step()
        for stage, min_age, after, reason in AUTOMATIC:
            due = (self.within(stage) & (self.age >= min_age)).nonzero().tolist()
            for env, slot in due:
                self._move(env, slot, after, reason)
        germinated: list[int] = []
        num_slots = self.stage.shape[1]
        for env, (op, slot, blueprint) in enumerate(actions.tolist()):
            if op == Op.PRUNE:
                self._move(env, slot, Stage.PRUNED, PRUNED_BY_POLICY)
                continue
            if op == Op.WAIT:
                continue
            gate = _GATE_BY_MOVE[Op(op), self._stage(env, slot)]
            if op == Op.GERMINATE:
                self.blueprint[env, slot] = blueprint
                germinated.append(env * num_slots + slot)
            if self._query(gate, env, slot, float(gain[env, slot])):
                self._move(env, slot, gate.after, f"passed {gate.name}")
        blending = self.within(Stage.BLENDING)
        self.alpha = torch.where(blending, (self.alpha + ALPHA_STEP).clamp(max=1.0), self.alpha)
        return torch.tensor(germinated, dtype=torch.int64)

    def learned(self, health: Tensor) -> None:
        """Keep this step's gradient health (N K, NaN where nothing learned); a pruned seed keeps its last."""
        self.grad = torch.where(self.within(Stage.PRUNED), self.grad, health)

    def grow_older(self) -> None:
        """Count the step that ended."""
        self.age += 1

    def _stage(self, env: int, slot: int) -> Stage:
        return BY_CODE[int(self.stage[env, slot])]

    def _query(self, gate: Gate, env: int, slot: int, gain: float) -> bool:
        """Ask a gate and keep its answer as a fact."""
        alpha = float(self.alpha[env, slot])
        answers = {
            "stage": self._stage(env, slot) is gate.before,
            "age": int(self.age[env, slot]) >= gate.min_age,
            "alpha": alpha >= 1.0,
            gate.measured: gain > 0.0,
        }
        failed = sum(1 << place for place, name in enumerate(gate.checks) if not answers[name])
        score = gain if gate.measured is not None else alpha if gate.after is Stage.HOLDING else torch.nan
        self._gate[env] = GATES.index(gate) + 1
        self._gate_slot[env] = slot
        self._gate_passed[env] = not failed
        self._gate_score[env] = score
        self._gate_failed[env] = failed
        return not failed

    def _move(self, env: int, slot: int, after: Stage, reason: str) -> None:
        """Change the stage of one slot and keep why."""
        before = self._stage(env, slot)
        if after not in TRANSITIONS[before]:
            raise AssertionError(f"{before.label} to {after.label} is no legal move")
        self._reason[env, slot] = REASONS.index(reason) + 1
        self.stage[env, slot] = after.code
        self.age[env, slot] = 0
        if after in _FULL:
            self.alpha[env, slot] = _FULL[after]
        elif after is not Stage.BLENDING:
            self.alpha[env, slot] = 0.0
        if not after.shows_blueprint:
            self.blueprint[env, slot] = -1
