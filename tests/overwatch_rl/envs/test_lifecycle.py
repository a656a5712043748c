"""The lifecycle of seeds: legal moves only, gates that measure, embargo after a prune."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from overwatch_rl.envs.base import check_legal
from overwatch_rl.envs.lifecycle import Lifecycle, Op, action_spec, slot_names
from overwatch_rl.envs.schedules import uniform
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, TRANSITIONS, Stage
from overwatch_rl.types import GateCheck, Observation, StageChange

NUM_ENVS = 2
NUM_SLOTS = 3


def one(op: Op, slot: int = 0, blueprint: int = 0) -> Tensor:
    """The same action in a single env."""
    return torch.tensor([[int(op), slot, blueprint]])


def play(
    slots: Lifecycle, actions: list[Tensor], gain: float = 0.1
) -> tuple[list[StageChange], list[GateCheck]]:
    """Step through `actions`; all facts."""
    changes: list[StageChange] = []
    checks: list[GateCheck] = []
    for action in actions:
        check_legal(action_spec(slots.stage.shape[1]), slots.mask(), action)
        slots.step(action, torch.full(slots.stage.shape, gain))
        slots.grow_older()
        found = slots.take_facts()
        changes += found[0]
        checks += found[1]
    return changes, checks


GROW = [one(Op.GERMINATE, blueprint=1), one(Op.ADVANCE), *[one(Op.WAIT)] * 2, one(Op.ADVANCE)]
"""Up to blending."""


@given(seed=st.integers(0, 10_000), gains=st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=7))
@settings(max_examples=40, deadline=None)
def test_random_legal_play_makes_legal_moves_only(seed: int, gains: list[float]) -> None:
    """Facts and the table agree, step for step, and every move is in the catalogue's table."""
    slots = Lifecycle(NUM_ENVS, NUM_SLOTS)
    act = uniform(action_spec(NUM_SLOTS), torch.Generator().manual_seed(seed))
    names = slot_names(NUM_SLOTS)
    stages = {(env, name): Stage.DORMANT for env in range(NUM_ENVS) for name in names}
    for number in range(40):
        mask = slots.mask()
        actions = act(Observation(features=torch.zeros(NUM_ENVS, 0), mask=mask))
        check_legal(action_spec(NUM_SLOTS), mask, actions)
        slots.step(actions, torch.full((NUM_ENVS, NUM_SLOTS), gains[number % len(gains)]))
        slots.grow_older()
        for change in slots.take_facts()[0]:
            assert stages[change.env_id, change.slot] is change.before
            assert change.after in TRANSITIONS[change.before]
            stages[change.env_id, change.slot] = change.after
        table = slots.table()
        seen = [[BY_CODE[code] for code in row] for row in table.stage.tolist()]
        assert seen == [[stages[env, name] for name in names] for env in range(NUM_ENVS)]
        assert bool(((table.alpha >= 0) & (table.alpha <= 1)).all())
        shown = torch.tensor([[stage.shows_blueprint for stage in row] for row in seen])
        assert torch.equal(table.blueprint >= 0, shown)


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
    assert {change.seed_id for change in changes + more} == {"0-r0c0-1"}
    assert {change.blueprint for change in changes + more} == {"mlp_wide"}
    assert slots.mask()[0].nonzero().flatten().tolist() == [int(Op.WAIT)]


def test_a_seed_that_does_not_help_is_kept_back() -> None:
    """The gate says which check failed and what it measured; the stage stays and no age is lost."""
    slots = Lifecycle(1, 1)
    changes, checks = play(slots, GROW, gain=-0.25)

    assert changes[-1].after is Stage.TRAINING
    assert (checks[-1].gate, checks[-1].passed, checks[-1].score) == ("G2", False, -0.25)
    assert (checks[-1].checks_passed, checks[-1].checks_failed) == (("stage", "age"), ("health",))
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
    """Pruned, embargoed for three steps, resetting, dormant; the next seed has the next number."""
    slots = Lifecycle(1, 1)
    changes, _ = play(slots, [*GROW, one(Op.PRUNE), *[one(Op.WAIT)] * 5])
    after, _ = play(slots, [one(Op.GERMINATE)])

    assert [(change.before.label, change.after.label, change.age) for change in changes[3:]] == [
        ("BLENDING", "PRUNED", 1),
        ("PRUNED", "EMBARGOED", 1),
        ("EMBARGOED", "RESETTING", 3),
        ("RESETTING", "DORMANT", 1),
    ]
    assert (changes[3].alpha, changes[3].blueprint, changes[4].blueprint) == (0.25, "mlp_wide", "mlp_wide")
    assert changes[5].blueprint is None
    assert after[0].seed_id == "0-r0c0-2"


def test_slots_are_named_by_row_and_column() -> None:
    """Three to a row."""
    assert slot_names(5) == ("r0c0", "r0c1", "r0c2", "r1c0", "r1c1")
