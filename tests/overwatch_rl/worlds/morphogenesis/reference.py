"""The lifecycle of one slot in plain Python, written from the tables of stages, gates and operations.

What the batched lifecycle is compared with: one slot, one step, branch by branch.
"""

import math
from dataclasses import dataclass, replace

from overwatch.catalog.stages import Stage
from overwatch_rl.worlds.morphogenesis.actions import ALPHA_SPEEDS, ALPHA_TARGETS, TEMPOS, Op
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig

GROWING = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING)
BLOCKS = (Stage.GERMINATED, Stage.TRAINING, Stage.PRUNED, Stage.EMBARGOED, Stage.RESETTING)
ONWARD = {Stage.GERMINATED: "G1", Stage.TRAINING: "G2", Stage.BLENDING: "G3", Stage.HOLDING: "G5"}
AFTER = {
    "G0": Stage.GERMINATED, "G1": Stage.TRAINING, "G2": Stage.BLENDING, "G3": Stage.HOLDING,
    "G5": Stage.FOSSILISED,
}  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """One slot; alpha moves along a line."""

    stage: Stage
    age: int
    life: int
    value: float
    target: float
    steps_left: int
    tempo: int = 0
    alpha_target: int = 2

    @property
    def holds(self) -> bool:
        """Whether alpha does not move."""
        return self.steps_left == 0


@dataclass(frozen=True)
class Readings:
    """What was measured; NaN where nothing was."""

    health: float
    ratio: float
    contribution: float


@dataclass(frozen=True)
class Act:
    """The operation and the arguments that matter here."""

    op: Op
    alpha_target: int = 2
    alpha_speed: int = 0


@dataclass(frozen=True)
class Asked:
    """A gate's answer."""

    gate: str
    failed: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The slot after a step, why it moved, and what gate was asked."""

    slot: Slot
    reason: str | None
    asked: Asked | None


def checks(gate: str, slot: Slot, seen: Readings, config: MorphogenesisConfig) -> dict[str, bool]:
    """What a gate asks, with the answers."""
    match gate:
        case "G0":
            return {"ids": True}
        case "G1":
            return {"stage": slot.stage is Stage.GERMINATED}
        case "G2":
            return {
                "age": slot.age >= config.min_train,
                "gradient": not math.isnan(seen.health),
                "stable": seen.ratio <= config.max_ratio,
                "health": seen.health >= config.min_health,
            }
        case "G3":
            return {"alpha": slot.value == slot.target == 1.0, "hold": slot.holds}
        case _:
            return {
                "age": slot.age >= config.min_hold,
                "counterfactual": not math.isnan(seen.contribution),
                "positive": seen.contribution > 0,
            }


def is_ready(gate: str, slot: Slot, seen: Readings, config: MorphogenesisConfig) -> bool:
    """Whether what a slot knows of itself lets the gate be asked."""
    known = ("ids", "stage", "age", "alpha", "hold")
    return all(is_ok for name, is_ok in checks(gate, slot, seen, config).items() if name in known)


def is_legal(op: Op, slot: Slot, seen: Readings, config: MorphogenesisConfig) -> bool:
    """Whether an operation is legal on the only slot of an env."""
    holds = slot.holds
    match op:
        case Op.WAIT:
            return True
        case Op.GERMINATE:
            return slot.stage is Stage.DORMANT
        case Op.SET_ALPHA_TARGET:
            return slot.stage in (Stage.BLENDING, Stage.HOLDING) and holds
        case Op.PRUNE:
            return slot.stage in GROWING and holds and slot.life >= config.min_prune_age
        case Op.ADVANCE:
            may = slot.stage in (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING)
            return may and is_ready(ONWARD[slot.stage], slot, seen, config)
        case Op.FOSSILISE:
            return slot.stage is Stage.HOLDING and is_ready("G5", slot, seen, config)


def to(slot: Slot, stage: Stage) -> Slot:
    """The slot in another stage."""
    if stage in (Stage.PRUNED, Stage.EMBARGOED, Stage.RESETTING, Stage.DORMANT):
        return replace(slot, stage=stage, age=0, value=0.0, target=0.0, steps_left=0)
    return replace(slot, stage=stage, age=0)


def headed(slot: Slot, target: float, steps: int) -> Slot:
    """Alpha begins to move."""
    if steps == 0 or target == slot.value:
        return replace(slot, value=target, target=target, steps_left=0)
    return replace(slot, target=target, steps_left=steps)


def asked_of(gate: str, slot: Slot, seen: Readings, config: MorphogenesisConfig) -> Outcome:
    """A gate is asked."""
    failed = tuple(name for name, is_ok in checks(gate, slot, seen, config).items() if not is_ok)
    if failed:
        return Outcome(slot, None, Asked(gate, failed))
    moved = to(slot, AFTER[gate])
    if gate == "G0":
        moved = replace(moved, life=0)
    if gate == "G2":
        moved = headed(moved, ALPHA_TARGETS[slot.alpha_target], TEMPOS[slot.tempo][1])
    return Outcome(moved, f"passed {gate}", Asked(gate, ()))


def acted(act: Act, slot: Slot, seen: Readings, config: MorphogenesisConfig) -> Outcome:
    """The operation is done."""
    target, speed = ALPHA_TARGETS[act.alpha_target], ALPHA_SPEEDS[act.alpha_speed][1]
    match act.op:
        case Op.WAIT:
            return Outcome(slot, None, None)
        case Op.GERMINATE:
            return asked_of("G0", slot, seen, config)
        case Op.ADVANCE | Op.FOSSILISE:
            return asked_of(ONWARD[slot.stage], slot, seen, config)
        case Op.SET_ALPHA_TARGET:
            moved = headed(slot, target, speed)
            if slot.stage is Stage.HOLDING and target < 1.0:
                return Outcome(to(moved, Stage.BLENDING), "new alpha target", None)
            return Outcome(moved, None, None)
        case Op.PRUNE:
            if speed == 0 or slot.stage in (Stage.GERMINATED, Stage.TRAINING):
                return Outcome(to(slot, Stage.PRUNED), "pruned by the policy", None)
            fading = headed(slot, 0.0, speed)
            if slot.stage is Stage.HOLDING:
                return Outcome(to(fading, Stage.BLENDING), "fading out", None)
            return Outcome(fading, None, None)


def cleaned(slot: Slot, config: MorphogenesisConfig) -> Outcome:
    """What moves by itself after a prune."""
    if slot.stage is Stage.PRUNED:
        return Outcome(to(slot, Stage.EMBARGOED), "pruned", None)
    if slot.stage is Stage.EMBARGOED and slot.age >= config.embargo:
        return Outcome(to(slot, Stage.RESETTING), "embargo over", None)
    if slot.stage is Stage.RESETTING:
        return Outcome(to(slot, Stage.DORMANT), "reset", None)
    return Outcome(slot, None, None)


def stepped(act: Act, slot: Slot, seen: Readings, config: MorphogenesisConfig) -> Outcome:
    """One step of the only slot of an env; what is illegal is not done."""
    found = cleaned(slot, config)
    if found.reason is None and act.op is not Op.WAIT and is_legal(act.op, slot, seen, config):
        found = acted(act, slot, seen, config)
    if found.slot.stage is Stage.HOLDING and found.reason is None and slot.age >= config.max_hold:
        found = Outcome(to(found.slot, Stage.PRUNED), "held too long", found.asked)
    now = found.slot
    if not now.holds:
        left = now.steps_left - 1
        value = now.target if left == 0 else now.value + (now.target - now.value) / now.steps_left
        now = replace(now, value=value, steps_left=left)
    if now.stage is Stage.BLENDING and now.holds and now.target == 0.0:
        return Outcome(to(now, Stage.PRUNED), "pruned by the policy", found.asked)
    return replace(found, slot=now)
