"""The lifecycle of seeds: legal moves only, gates that measure, alpha that moves, embargo after a prune."""

import math
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, TRANSITIONS, Stage
from overwatch_rl.types import Factored, Observation
from overwatch_rl.worlds.base import check_legal
from overwatch_rl.worlds.evaluation import uniform
from overwatch_rl.worlds.morphogenesis.actions import (
    ALPHA_SPEEDS,
    ALPHA_TARGETS,
    HEADS,
    TEMPOS,
    Action,
    Curve,
    Op,
    Style,
    action_spec,
)
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.lifecycle import (
    GATES,
    MAY_FOLLOW,
    REASONS,
    STATE,
    Lifecycle,
    progress,
)
from tests.overwatch_rl.worlds.morphogenesis import reference
from tests.overwatch_rl.worlds.morphogenesis.reference import Act, Readings, Slot

NUM_ENVS = 2
NUM_SLOTS = 3
BLUEPRINTS = ("noop", "small", "wide")
PLAIN = MorphogenesisConfig(slots=1)


def spec(slots: int) -> Factored:
    """The actions for that many slots."""
    return action_spec(slots, BLUEPRINTS)


def made(envs: int, config: MorphogenesisConfig) -> Lifecycle:
    """Empty slots."""
    return Lifecycle(envs, config, spec(config.slots))


def of_heads(actions: Tensor) -> Action:
    """Actions N 8 by the names of their heads."""
    return Action(*actions.unbind(dim=1))


def one(op: Op, **arguments: int) -> Tensor:
    """The same action in a single env."""
    action = dict.fromkeys(HEADS, 0) | {"op": int(op), "blueprint": 1, "alpha_target": 2} | arguments
    return torch.tensor([[action[name] for name in HEADS]])


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
class Requested:
    """A gate was asked."""

    gate: str
    passed: bool
    score: float
    failed: tuple[str, ...]


def stepped(slots: Lifecycle, action: Tensor, contribution: float) -> tuple[list[Move], list[Requested]]:
    """One step, and what its columns show of it."""
    before, age = slots.stage.clone(), slots.age.clone()
    slots.step(of_heads(action), torch.full(slots.stage.shape, contribution))
    slots.record_gradients(*(torch.full(slots.stage.shape, 0.5) for _ in range(2)))
    facts = slots.facts()
    moves = [
        Move(
            env, slot, BY_CODE[int(before[env, slot])], BY_CODE[int(facts["slot_stage"][env, slot])],
            int(age[env, slot]), REASONS[int(facts["slot_reason"][env, slot]) - 1],
        )
        for env, slot in facts["slot_reason"].nonzero().tolist()
    ]  # fmt: skip
    requested = []
    for env in facts["gate"].nonzero().flatten().tolist():
        gate, bits = GATES[int(facts["gate"][env]) - 1], int(facts["gate_failed"][env])
        names = gate.checks
        failed = tuple(name for place, name in enumerate(names) if bits >> place & 1)
        requested.append(
            Requested(gate.name, bool(facts["gate_passed"][env]), float(facts["gate_score"][env]), failed)
        )
    slots.end_step()
    return moves, requested


def play(
    slots: Lifecycle, actions: list[Tensor], contribution: float = 0.1
) -> tuple[list[Move], list[Requested]]:
    """Step through `actions`; all facts."""
    moves: list[Move] = []
    requested: list[Requested] = []
    for action in actions:
        check_legal(spec(slots.stage.shape[1]), slots.mask(), action)
        found = stepped(slots, action, contribution)
        moves += found[0]
        requested += found[1]
    return moves, requested


def legal_ops(slots: Lifecycle) -> list[str]:
    """Words of what the first env may do."""
    return [Op(op).name for op in slots.mask()[0, : len(Op)].nonzero().flatten().tolist()]


WAIT = one(Op.WAIT)
GROW = [one(Op.GERMINATE), one(Op.ADVANCE), *[WAIT] * 3, one(Op.ADVANCE)]
"""Up to blending, at the fast tempo towards 1."""
HOLD = [*GROW, WAIT, WAIT, one(Op.ADVANCE)]


ALPHAS = (
    (0.0, 0.0, 0),
    (0.5, 0.5, 0),
    (1.0, 1.0, 0),
    (0.25, 1.0, 2),
    (0.75, 1.0, 1),
    (0.75, 0.5, 2),
    (0.75, 0.0, 3),
    (0.25, 0.0, 1),
)
"""Value, target and steps that are left."""
ACTS = (
    Act(Op.WAIT), Act(Op.GERMINATE), Act(Op.FOSSILISE), Act(Op.ADVANCE), Act(Op.PRUNE, alpha_speed=0),
    Act(Op.PRUNE, alpha_speed=1), Act(Op.SET_ALPHA_TARGET, alpha_target=0, alpha_speed=0),
    Act(Op.SET_ALPHA_TARGET, alpha_target=0, alpha_speed=2),
    Act(Op.SET_ALPHA_TARGET, alpha_target=2, alpha_speed=0),
    Act(Op.SET_ALPHA_TARGET, alpha_target=2, alpha_speed=1),
)  # fmt: skip
SEEN = (
    Readings(0.5, 1.0, 0.02), Readings(0.5, 1.0, 0.001), Readings(0.5, 0.05, 0.02), Readings(0.5, 1.0, -0.1),
    Readings(0.01, 1.0, 0.02), Readings(0.5, 30.0, 0.02), Readings(math.nan, math.nan, 0.02),
    Readings(0.5, 1.0, math.nan), Readings(math.nan, math.nan, math.nan),
)  # fmt: skip
"""Every answer of every check, yes and no."""
AGES = (1, 2, 4, 15)


def all_slots() -> list[Slot]:
    """Every stage at every age with every alpha, young and old."""
    found = []
    for stage, age, is_old, alpha in product(Stage, AGES, (False, True), ALPHAS):
        life = age + 3 if is_old else 1
        is_seed = stage.shows_blueprint
        held = ALPHAS[2] if stage is Stage.FOSSILISED else ALPHAS[0]
        found.append(
            Slot(
                stage, age, life if is_seed else 0,
                *(alpha if stage in (Stage.BLENDING, Stage.HOLDING) else held),
            )
        )  # fmt: skip
    return list(dict.fromkeys(found))


def laid_out(slots: list[Slot], seen: list[Readings], config: MorphogenesisConfig) -> Lifecycle:
    """One env for each slot, in these states."""
    life = made(len(slots), config)

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values)[:, None]

    life.stage = column([slot.stage.code for slot in slots])
    life.age, life.life = column([slot.age for slot in slots]), column([slot.life for slot in slots])
    is_seed = column([slot.stage.shows_blueprint for slot in slots])
    life.blueprint = torch.where(is_seed, 1, -1)
    life.style = torch.where(is_seed, int(Style.LINEAR_ADD), -1)
    life.tempo = torch.where(is_seed, column([slot.tempo for slot in slots]), -1)
    life.alpha_target = torch.where(is_seed, column([slot.alpha_target for slot in slots]), -1)
    life.alpha = life.alpha_start = column([slot.value for slot in slots])
    life.alpha_end = column([slot.target for slot in slots])
    life.alpha_steps = life.alpha_left = column([slot.steps_left for slot in slots])
    life.health = column([one.health for one in seen])
    life.ratio = column([one.ratio for one in seen])
    return life


def test_every_combination_does_what_the_tables_state() -> None:
    """Stage, age, alpha, operation, answers of gates: mask, moves and gates are the plain reference's."""
    config = PLAIN
    cases = list(product(all_slots(), ACTS, SEEN))
    slots, acts, seen = (list(column) for column in zip(*cases, strict=True))
    life = laid_out(slots, seen, config)
    life.contribution = torch.tensor([[one.contribution] for one in seen])
    arguments = {"alpha_target": [act.alpha_target for act in acts]}
    arguments["alpha_speed"] = [act.alpha_speed for act in acts]
    arguments["op"] = [int(act.op) for act in acts]
    zeros = [0] * len(cases)
    actions = torch.tensor([arguments.get(name, zeros) for name in HEADS]).T

    ops = life.mask()[:, : len(Op)].gather(1, actions[:, :1]).squeeze(1).tolist()
    moved = life.step(of_heads(actions), life.contribution)
    facts = {name: column.squeeze(-1).tolist() for name, column in life.facts().items()}
    ages, left = life.age.squeeze(1).tolist(), life.alpha_left.squeeze(1).tolist()
    refused = moved.refused.tolist()
    for number, (slot, act, readings) in enumerate(cases):
        expected = reference.stepped(act, slot, readings, config)
        assert ops[number] == reference.is_legal(act.op, slot, readings, config), cases[number]
        code = facts["gate"][number]
        gate = GATES[code - 1] if code else None
        failed = () if gate is None else tuple(
            name
            for place, name in enumerate(gate.checks)
            if facts["gate_failed"][number] >> place & 1
        )  # fmt: skip
        asked = None if gate is None else reference.Asked(gate.name, failed)
        reason = facts["slot_reason"][number]
        assert (
            BY_CODE[facts["slot_stage"][number]], ages[number], REASONS[reason - 1] if reason else None,
            asked, left[number],
        ) == (
            expected.slot.stage, expected.slot.age, expected.reason, expected.asked, expected.slot.steps_left,
        ), cases[number]  # fmt: skip
        assert facts["gate_passed"][number] == (asked is not None and not failed), cases[number]
        assert abs(facts["slot_alpha"][number] - expected.slot.value) < 1e-6, cases[number]
        is_asked = act.op in (Op.ADVANCE, Op.FOSSILISE) and ops[number]
        assert refused[number] == bool(is_asked and failed), cases[number]


def test_the_table_of_moves_is_the_catalogues() -> None:
    """Every pair of stages."""
    for before, after in product(Stage, Stage):
        assert bool(MAY_FOLLOW[before.code, after.code]) == (after in TRANSITIONS[before])


@given(
    seed=st.integers(0, 10_000),
    contributions=st.lists(st.floats(-0.1, 0.1) | st.just(math.nan), min_size=1, max_size=7),
)
@settings(deadline=None)
def test_random_legal_play_makes_legal_moves_only(seed: int, contributions: list[float]) -> None:
    """A slot has a reason where its stage changed, and only there; each move is in the catalogue's table."""
    config = MorphogenesisConfig(slots=NUM_SLOTS, max_hold=5)
    slots = made(NUM_ENVS, config)
    act = uniform(spec(NUM_SLOTS), torch.Generator().manual_seed(seed))
    for number in range(30):
        mask = slots.mask()
        actions = act(Observation(features=torch.zeros(NUM_ENVS, 0), mask=mask))
        check_legal(spec(NUM_SLOTS), mask, actions)
        before = slots.stage.clone()
        moves, _ = stepped(slots, actions, contributions[number % len(contributions)])
        for move in moves:
            assert move.after in TRANSITIONS[move.before]
        moved = torch.zeros_like(before, dtype=torch.bool)
        for move in moves:
            moved[move.env, move.slot] = True
        assert torch.equal(moved, before != slots.stage)
        assert bool(((slots.alpha >= 0) & (slots.alpha <= 1)).all())
        seen = [[BY_CODE[code] for code in row] for row in slots.stage.tolist()]
        shown = torch.tensor([[stage.shows_blueprint for stage in row] for row in seen])
        for kept in (slots.blueprint, slots.style, slots.tempo, slots.alpha_target):
            assert torch.equal(kept >= 0, shown)
        full = slots.within(Stage.HOLDING, Stage.FOSSILISED)
        assert bool((slots.alpha[full] == 1).all())
        none = ~slots.within(Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED)
        assert bool((slots.alpha[none] == 0).all())


@given(seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_an_illegal_action_moves_nothing(seed: int) -> None:
    """Whatever it is: where the mask forbids it, the env goes on as if it had waited."""
    config = MorphogenesisConfig(slots=NUM_SLOTS)
    generator = torch.Generator().manual_seed(seed)
    act = uniform(spec(NUM_SLOTS), generator)
    slots, waiting = made(NUM_ENVS, config), made(NUM_ENVS, config)
    for _ in range(15):
        stepped(slots, act(Observation(features=torch.zeros(NUM_ENVS, 0), mask=slots.mask())), 0.1)
    for name in STATE:
        setattr(waiting, name, getattr(slots, name).clone())
    sizes = [len(head.labels) for head in spec(NUM_SLOTS).heads]
    columns = [torch.randint(size, (NUM_ENVS,), generator=generator) for size in sizes]
    actions = torch.stack(columns, dim=1)
    everyone = torch.arange(NUM_ENVS)
    legal = slots.legal_slots()[everyone, actions[:, 0], actions[:, 1]]
    stepped(slots, actions, 0.1)
    stepped(waiting, torch.zeros_like(actions), 0.1)

    for name in STATE:
        kept, expected = (getattr(either, name)[~legal] for either in (slots, waiting))
        assert torch.equal(kept.nan_to_num(), expected.nan_to_num()), name


def test_a_seed_that_helps_goes_all_the_way() -> None:
    """Germinated, training, blending in three steps, holding, fossilised: five gates, all passed."""
    slots = made(1, PLAIN)
    alphas = []
    changes, checks = play(slots, GROW)
    for _ in range(2):
        alphas.append(float(slots.alpha))
        play(slots, [WAIT])
    alphas.append(float(slots.alpha))
    more, further = play(slots, [one(Op.ADVANCE), WAIT, one(Op.FOSSILISE)])

    assert alphas == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert [change.after.label for change in changes + more] == [
        "GERMINATED", "TRAINING", "BLENDING", "HOLDING", "FOSSILIZED",
    ]  # fmt: skip
    assert [(check.gate, check.passed) for check in checks + further] == [
        ("G0", True), ("G1", True), ("G2", True), ("G3", True), ("G5", True),
    ]  # fmt: skip
    assert [change.reason for change in changes] == ["passed G0", "passed G1", "passed G2"]
    assert int(slots.blueprint) == 1
    assert legal_ops(slots) == ["WAIT"]


def test_a_seed_that_does_not_help_is_kept_back() -> None:
    """The gate states which check failed and what it measured; the stage stays and no age is lost."""
    slots = made(1, PLAIN)
    _, checks = play(slots, [*HOLD, WAIT, one(Op.FOSSILISE)], contribution=-0.25)

    assert (checks[-1].gate, checks[-1].passed, checks[-1].score) == ("G5", False, -0.25)
    assert checks[-1].failed == ("positive",)
    assert BY_CODE[int(slots.stage)] is Stage.HOLDING
    assert int(slots.age) == 3


def test_the_mask_knows_age_and_alpha() -> None:
    """Nothing can be asked for too early."""
    slots = made(1, PLAIN)
    legal = []
    for action in [*HOLD, WAIT]:
        legal.append(legal_ops(slots))
        play(slots, [action])
    legal.append(legal_ops(slots))

    assert legal == [
        ["WAIT", "GERMINATE"],
        ["WAIT", "ADVANCE"],
        *[["WAIT", "PRUNE"]] * 3,
        ["WAIT", "PRUNE", "ADVANCE"],
        *[["WAIT"]] * 2,
        ["WAIT", "SET_ALPHA_TARGET", "PRUNE", "ADVANCE"],
        ["WAIT", "SET_ALPHA_TARGET", "PRUNE"],
        ["WAIT", "SET_ALPHA_TARGET", "PRUNE", "FOSSILISE"],
    ]


def test_one_seed_at_a_time_is_young() -> None:
    """While one germinates, trains or is cleaned up, no other germinates; one that blends does not block."""
    config = MorphogenesisConfig(slots=2)
    slots = made(1, config)
    can = []
    for action in [*GROW, *[WAIT] * 3, one(Op.PRUNE, slot=0), *[WAIT] * 5]:
        can.append("GERMINATE" in legal_ops(slots))
        play(slots, [action])

    assert can == [True, *[False] * 5, *[True] * 4, *[False] * 4, True]


def test_the_blueprint_that_does_nothing_is_never_legal() -> None:
    """Its place in the mask of germination is shut, the others are open."""
    slots = made(1, PLAIN)
    blueprints = spec(1).unpack(slots.mask())[HEADS.index("blueprint")]

    assert blueprints[0, Op.GERMINATE].tolist() == [False, True, True]


def test_a_pruned_slot_rests_before_it_can_be_used_again() -> None:
    """Pruned, embargoed for two steps, resetting, dormant, each with its reason; then free again."""
    slots = made(1, PLAIN)
    changes, _ = play(slots, [*GROW[:3], one(Op.PRUNE), *[WAIT] * 4])
    after, _ = play(slots, [one(Op.GERMINATE)])

    assert [(change.before.label, change.after.label, change.age) for change in changes[2:]] == [
        ("TRAINING", "PRUNED", 2),
        ("PRUNED", "EMBARGOED", 1),
        ("EMBARGOED", "RESETTING", 2),
        ("RESETTING", "DORMANT", 1),
    ]
    assert [change.reason for change in changes[2:]] == [
        "pruned by the policy", "pruned", "embargo over", "reset",
    ]  # fmt: skip
    assert after[0].after is Stage.GERMINATED


@pytest.mark.parametrize("speed", range(len(ALPHA_SPEEDS)))
def test_a_connected_seed_fades_out_before_it_is_pruned(speed: int) -> None:
    """As long as the speed sets, going back to blending from holding; at once where it is instant."""
    slots = made(1, PLAIN)
    play(slots, HOLD)
    steps = ALPHA_SPEEDS[speed][1]
    changes, _ = play(slots, [one(Op.PRUNE, alpha_speed=speed)])
    alphas = [float(slots.alpha)]
    for _ in range(steps - 1):
        assert legal_ops(slots) == ["WAIT"]
        changes += play(slots, [WAIT])[0]
        alphas.append(float(slots.alpha))

    assert alphas == pytest.approx([1 - (step + 1) / steps for step in range(steps)] if steps else [0.0])
    assert [change.reason for change in changes] == (
        ["fading out", "pruned by the policy"] if steps else ["pruned by the policy"]
    )
    assert changes[-1].after is Stage.PRUNED


def test_a_held_seed_that_is_let_out_blends_again() -> None:
    """A target below 1 goes back to blending; back at 1 it can hold again."""
    slots = made(1, PLAIN)
    play(slots, HOLD)
    changes, _ = play(slots, [one(Op.SET_ALPHA_TARGET, alpha_target=0, alpha_speed=1), WAIT, WAIT])
    low = float(slots.alpha)
    back = [one(Op.SET_ALPHA_TARGET, alpha_target=2, alpha_speed=0), one(Op.ADVANCE)]
    more, _ = play(slots, back)

    assert low == ALPHA_TARGETS[0]
    assert [(change.after, change.reason) for change in changes + more] == [
        (Stage.BLENDING, "new alpha target"),
        (Stage.HOLDING, "passed G3"),
    ]


@pytest.mark.parametrize("style", Style)
@pytest.mark.parametrize("tempo", range(len(TEMPOS)))
def test_style_and_tempo_of_germination_rule_the_blending(style: Style, tempo: int) -> None:
    """The tempo is its steps; the sigmoid style has its curve, the others are straight lines."""
    slots = made(1, PLAIN)
    play(slots, [one(Op.GERMINATE, style=int(style), tempo=tempo, alpha_target=1), *GROW[1:]])
    facts = slots.facts()

    assert int(slots.alpha_steps) == TEMPOS[tempo][1]
    assert float(slots.alpha_end) == pytest.approx(ALPHA_TARGETS[1])
    assert Curve(int(facts["slot_curve"])) is (Curve.SIGMOID if style is Style.SIGMOID_ADD else Curve.LINEAR)
    assert (int(facts["slot_style"]), int(facts["slot_tempo"])) == (int(style), tempo)


def test_a_seed_that_holds_too_long_is_pruned() -> None:
    """After the most steps that it may hold, whatever was asked of G5."""
    slots = made(1, PLAIN)
    play(slots, HOLD)
    changes, _ = play(slots, [WAIT] * PLAIN.max_hold)

    assert [(change.before, change.after, change.reason, change.age) for change in changes] == [
        (Stage.HOLDING, Stage.PRUNED, "held too long", PLAIN.max_hold)
    ]


def test_a_rolled_back_env_loses_what_learned() -> None:
    """Seeds that train, blend or hold are pruned there; a germinated one, a fossil and other envs stay."""
    config = MorphogenesisConfig(slots=5)
    slots = made(2, config)
    stages = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED)
    slots.stage = torch.tensor([[stage.code for stage in stages]] * 2)
    slots.discard(torch.tensor([True, False]))
    seen = [[BY_CODE[code] for code in row] for row in slots.stage.tolist()]

    assert seen[0] == [Stage.GERMINATED, Stage.PRUNED, Stage.PRUNED, Stage.PRUNED, Stage.FOSSILISED]
    assert seen[1] == list(stages)
    reasons = slots.facts()["slot_reason"]
    assert [REASONS[code - 1] for code in reasons[0, 1:4].tolist()] == ["rolled back"] * 3
    assert reasons[1].tolist() == [0] * 5


@given(curve=st.sampled_from(Curve), shares=st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_a_curve_rises_from_nothing_to_all(curve: Curve, shares: list[float]) -> None:
    """0 at 0, 1 at 1, half at a half, never falling."""
    x = torch.tensor([0.0, *sorted(shares), 1.0])
    come = progress(torch.full(x.shape, int(curve)), x)

    assert come[[0, -1]].tolist() == pytest.approx([0, 1], abs=1e-6)
    assert bool((come.diff() >= -1e-6).all())
    assert float(progress(torch.tensor(int(curve)), torch.tensor(0.5))) == pytest.approx(0.5)
