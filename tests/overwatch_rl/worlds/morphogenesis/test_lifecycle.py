"""The lifecycle of seeds: legal moves only, gates that measure, embargo after a prune."""

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, TRANSITIONS, Stage
from overwatch_rl.types import Observation
from overwatch_rl.worlds.base import check_legal
from overwatch_rl.worlds.morphogenesis.lifecycle import (
    GATES,
    REASONS,
    Lifecycle,
    Op,
    action_spec,
    slot_names,
)
from overwatch_rl.worlds.schedules import uniform

NUM_ENVS = 2
NUM_SLOTS = 3


def one(op: Op, slot: int = 0, blueprint: int = 0) -> Tensor:
    """The same action in a single env."""
    return torch.tensor([[int(op), slot, blueprint]])


@dataclass(frozen=True)
class Move:
    """A slot's stage changed."""

    env: int
    slot: int
    before: Stage
    after: Stage
    age: int
    reason: str


@dataclass(frozen=True)
class Asked:
    """A gate was asked."""

    gate: str
    passed: bool
    score: float
    failed: tuple[str, ...]


def stepped(slots: Lifecycle, action: Tensor, gain: float) -> tuple[list[Move], list[Asked]]:
    """One step, and what its columns say happened in it."""
    before, age = slots.stage.clone(), slots.age.clone()
    slots.step(action, torch.full(slots.stage.shape, gain))
    facts = slots.facts()
    moves = [
        Move(
            env, slot, BY_CODE[int(before[env, slot])], BY_CODE[int(facts["slot_stage"][env, slot])],
            int(age[env, slot]), REASONS[int(facts["slot_reason"][env, slot]) - 1],
        )
        for env, slot in facts["slot_reason"].nonzero().tolist()
    ]  # fmt: skip
    asked = []
    for env in facts["gate"].nonzero().flatten().tolist():
        gate, bits = GATES[int(facts["gate"][env]) - 1], int(facts["gate_failed"][env])
        failed = tuple(name for place, name in enumerate(gate.checks) if bits >> place & 1)
        asked.append(
            Asked(gate.name, bool(facts["gate_passed"][env]), float(facts["gate_score"][env]), failed)
        )
    slots.grow_older()
    return moves, asked


def play(slots: Lifecycle, actions: list[Tensor], gain: float = 0.1) -> tuple[list[Move], list[Asked]]:
    """Step through `actions`; all facts."""
    moves: list[Move] = []
    asked: list[Asked] = []
    for action in actions:
        check_legal(action_spec(slots.stage.shape[1]), slots.mask(), action)
        found = stepped(slots, action, gain)
        moves += found[0]
        asked += found[1]
    return moves, asked


GROW = [one(Op.GERMINATE, blueprint=1), one(Op.ADVANCE), *[one(Op.WAIT)] * 2, one(Op.ADVANCE)]
"""Up to blending."""


@given(seed=st.integers(0, 10_000), gains=st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=7))
@settings(deadline=None)
def test_random_legal_play_makes_legal_moves_only(seed: int, gains: list[float]) -> None:
    """A slot has a reason where its stage changed, and only there; each move is in the catalogue's table."""
    slots = Lifecycle(NUM_ENVS, NUM_SLOTS)
    act = uniform(action_spec(NUM_SLOTS), torch.Generator().manual_seed(seed))
    for number in range(40):
        mask = slots.mask()
        actions = act(Observation(features=torch.zeros(NUM_ENVS, 0), mask=mask))
        check_legal(action_spec(NUM_SLOTS), mask, actions)
        before = slots.stage.clone()
        moves, _ = stepped(slots, actions, gains[number % len(gains)])
        for move in moves:
            assert move.after in TRANSITIONS[move.before]
        moved = torch.zeros_like(before, dtype=torch.bool)
        for move in moves:
            moved[move.env, move.slot] = True
        assert torch.equal(moved, before != slots.stage)
        assert bool(((slots.alpha >= 0) & (slots.alpha <= 1)).all())
        seen = [[BY_CODE[code] for code in row] for row in slots.stage.tolist()]
        shown = torch.tensor([[stage.shows_blueprint for stage in row] for row in seen])
        assert torch.equal(slots.blueprint >= 0, shown)


def test_a_seed_that_helps_goes_all_the_way() -> None:
    """Germinated, training, blending by quarters, holding, fossilised: five gates, all passed."""
    slots = Lifecycle(1, 1)
    alphas = []
    changes, checks = play(slots, GROW)
    for _ in range(3):
        alphas.append(float(slots.alpha))
        play(slots, [one(Op.WAIT)])
    alphas.append(float(slots.alpha))
    more, further = play(slots, [one(Op.ADVANCE), one(Op.WAIT), one(Op.FOSSILISE)])

    assert alphas == [0.25, 0.5, 0.75, 1.0]
    assert [change.after.label for change in changes + more] == [
        "GERMINATED", "TRAINING", "BLENDING", "HOLDING", "FOSSILIZED",
    ]  # fmt: skip
    assert [(check.gate, check.passed) for check in checks + further] == [
        ("G0", True), ("G1", True), ("G2", True), ("G3", True), ("G5", True),
    ]  # fmt: skip
    assert [change.reason for change in changes] == ["passed G0", "passed G1", "passed G2"]
    assert int(slots.blueprint) == 1
    assert slots.mask()[0].nonzero().flatten().tolist() == [int(Op.WAIT)]


def test_a_seed_that_does_not_help_is_kept_back() -> None:
    """The gate says which check failed and what it measured; the stage stays and no age is lost."""
    slots = Lifecycle(1, 1)
    changes, checks = play(slots, GROW, gain=-0.25)

    assert changes[-1].after is Stage.TRAINING
    assert (checks[-1].gate, checks[-1].passed, checks[-1].score) == ("G2", False, -0.25)
    assert checks[-1].failed == ("health",)
    assert int(slots.age) == 4


def test_the_mask_knows_age_and_alpha() -> None:
    """Nothing can be asked for too early."""
    slots = Lifecycle(1, 1)
    legal = []
    for action in [*GROW, *[one(Op.WAIT)] * 3, one(Op.ADVANCE), one(Op.WAIT)]:
        legal.append([Op(op).name for op in slots.mask()[0, : len(Op)].nonzero().flatten().tolist()])
        play(slots, [action])
    legal.append([Op(op).name for op in slots.mask()[0, : len(Op)].nonzero().flatten().tolist()])

    assert legal[0] == ["WAIT", "GERMINATE"]
    assert legal[1] == ["WAIT", "ADVANCE", "PRUNE"]
    assert legal[2:4] == [["WAIT", "PRUNE"]] * 2
    assert legal[4] == ["WAIT", "ADVANCE", "PRUNE"]
    assert legal[5:8] == [["WAIT", "PRUNE"]] * 3
    assert legal[8] == ["WAIT", "ADVANCE", "PRUNE"]
    assert legal[9:] == [["WAIT", "PRUNE"], ["WAIT", "FOSSILISE", "PRUNE"]]


def test_a_pruned_slot_rests_before_it_can_be_used_again() -> None:
    """Pruned, embargoed for three steps, resetting, dormant, each with its reason; then free again."""
    slots = Lifecycle(1, 1)
    changes, _ = play(slots, [*GROW, one(Op.PRUNE), *[one(Op.WAIT)] * 5])
    after, _ = play(slots, [one(Op.GERMINATE)])

    assert [(change.before.label, change.after.label, change.age) for change in changes[3:]] == [
        ("BLENDING", "PRUNED", 1),
        ("PRUNED", "EMBARGOED", 1),
        ("EMBARGOED", "RESETTING", 3),
        ("RESETTING", "DORMANT", 1),
    ]
    assert [change.reason for change in changes[3:]] == [
        "pruned by the policy", "pruned", "embargo over", "reset",
    ]  # fmt: skip
    assert after[0].after is Stage.GERMINATED


def test_slots_are_named_by_row_and_column() -> None:
    """Three to a row."""
    assert slot_names(5) == ("r0c0", "r0c1", "r0c2", "r1c0", "r1c1")
