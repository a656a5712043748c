"""What a step pays: each part against its formula, its bounds and its sign; modes; credit that waits."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.catalog.stages import Stage
from overwatch_rl.worlds.morphogenesis.rewards import (
    MODES,
    PARTS,
    Evidence,
    RewardConfig,
    Rewards,
    holds_to_ransom,
    overclaims,
)
from tests.overwatch_rl.worlds.morphogenesis.evidence import OPS, B, D, F, G, H, T, nothing, one, random_steps

CONFIG = RewardConfig()
UNIT = CONFIG.shaping
NAMES = tuple(part.name for part in PARTS)


def rewards(config: RewardConfig = CONFIG, envs: int = 1, slots: int = 1) -> Rewards:
    """Of so many envs."""
    return Rewards((envs, slots), config, OPS)


def paid(evidence: Evidence, config: RewardConfig = CONFIG) -> dict[str, float]:
    """The parts of one step of one env that are not 0."""
    found = rewards(config, slots=evidence.stage.shape[1]).step(evidence)
    parts = {name: float(found.columns[f"reward_{name}"]) for name in NAMES}
    assert float(found.reward) == pytest.approx(sum(parts.values()), abs=1e-6)
    return {name: value for name, value in parts.items() if value}


def test_nothing_pays_nothing() -> None:
    """Empty slots, a host that stays as it is: every part is 0 in every mode."""
    for mode in MODES:
        assert paid(Evidence(**nothing(1, 3)), RewardConfig(mode=mode)) == {}


def test_gain_is_progress() -> None:
    """In accuracy, either sign."""
    assert paid(one(progress=0.25)) == pytest.approx({"gain": 0.25})
    assert paid(one(progress=-0.25)) == pytest.approx({"gain": -0.25})


def test_contribution_is_that_of_connected_seeds() -> None:
    """A seed in training is not connected, whatever it would add."""
    evidence = one(stages=(T, B, H, F), contribution=(0.9, 0.1, -0.3, 0.4))

    assert paid(evidence)["contribution"] == pytest.approx(0.002 * 0.2)


def test_attribution_needs_progress_and_contribution() -> None:
    """The harmonic mean of both, discounted by a sigmoid of the progress in points."""

    def attributed(contribution: float, improvement: float) -> float:
        evidence = one(stages=(F,), contribution=(contribution,), improvement=(improvement,), life=(6,))
        return paid(evidence).get("attribution", 0.0)

    small = 2 * 0.01 * 0.4 / 0.41 / (1 + math.exp(-3 * 1.0))
    assert attributed(0.4, 0.4) == pytest.approx(0.004 * 0.4)
    assert attributed(0.4, 0.01) == pytest.approx(0.004 * small)
    assert attributed(0.4, 0.0) == attributed(0.4, -0.3) == attributed(0.0, 0.4) == 0.0
    assert attributed(-0.2, 0.4) == pytest.approx(0.004 * -0.2)


def test_a_seed_of_the_warm_up_earns_less() -> None:
    """From 0.4 at the first step to all of it."""
    shares = [
        paid(one(stages=(F,), contribution=(0.4,), improvement=(0.4,), step=50, life=(50 - born,)))[
            "attribution"
        ]
        for born in (0, 2, 4, 40)
    ]

    assert [share / (0.004 * 0.4) for share in shares] == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_rent_is_logarithmic_and_bounded() -> None:
    """Each parameter costs less than the one before."""
    costs = [paid(one(overhead=overhead))["rent"] for overhead in (1.0, 2.0, 3.0, 1e9)]

    assert costs[0] == pytest.approx(-CONFIG.rent * math.log(2))
    assert costs[0] > costs[1] > costs[2]
    assert costs[1] - costs[2] < costs[0] - costs[1]
    assert costs[3] == pytest.approx(-CONFIG.max_rent)


def test_occupancy_is_of_seeds_beyond_the_first_and_of_fossils() -> None:
    """A single seed that is tried out has none."""
    assert "occupancy" not in paid(one(stages=(T, D, D)))
    assert paid(one(stages=(T, B, H)))["occupancy"] == pytest.approx(-2 * CONFIG.occupancy)
    assert paid(one(stages=(T, F, F)))["occupancy"] == pytest.approx(-2 * CONFIG.fossil_rent)


def test_alpha_shock_is_quadratic_and_bounded() -> None:
    """Four small changes cost a quarter of one jump."""
    jump = paid(one(alpha_change=(1.0,)))["alpha_shock"]
    small = paid(one(alpha_change=(0.25,)))["alpha_shock"]
    many = paid(one(stages=(D,) * 6, alpha_change=(-1.0,) * 6))["alpha_shock"]

    assert jump == pytest.approx(-0.1958 * UNIT)
    assert 4 * small == pytest.approx(jump / 4)
    assert many == pytest.approx(-UNIT)


@pytest.mark.parametrize(
    ("contribution", "improvement", "stage", "share"),
    [
        (0.2, 0.04, H, 0),
        (0.2, 0.02, H, 1),
        (0.2, 2 / 75, H, 0.5),
        (0.2, -0.1, B, 1),
        (0.2, 0.02, F, 0),
        (0.009, 0, H, 0),
    ],
)
def test_contribution_far_beyond_improvement_is_penalised(
    contribution: float, improvement: float, stage: Stage, share: float
) -> None:
    """From five times on, in full at ten; not of a fossil, nor of a contribution near the noise."""
    evidence = one(stages=(stage,), contribution=(contribution,), improvement=(improvement,))
    found = paid(evidence).get("attribution_penalty", 0.0)

    assert found == pytest.approx(-0.3 * UNIT * share, abs=1e-6)
    assert bool(overclaims(evidence, CONFIG)) is (share > 0)


@pytest.mark.parametrize(
    ("contribution", "improvement", "among"),
    [(0.0011, -0.0021, {B, H}), (0.0009, -0.0021, set()), (0.0011, -0.0019, set()), (0.5, 0.1, set())],
)
def test_a_seed_that_is_missed_by_a_host_that_is_worse_is_a_ransom(
    contribution: float, improvement: float, among: set[Stage]
) -> None:
    """0.1 and -0.2 percentage points, as accuracy; only while it may still be pruned."""
    for stage in (T, B, H, F):
        evidence = one(stages=(stage,), contribution=(contribution,), improvement=(improvement,))
        assert bool(holds_to_ransom(evidence)) is (stage in among)


def test_warnings_grow_with_age_up_to_their_bounds() -> None:
    """Of a blending seed only where it does harm; of a held one only beyond the patience."""

    def blending(age: int, contribution: float = -0.1) -> float:
        evidence = one(stages=(B,), age=(age,), contribution=(contribution,))
        return paid(evidence).get("blending_warning", 0.0) / UNIT

    def holding(age: int) -> float:
        return paid(one(stages=(H,), age=(age,))).get("holding_warning", 0.0) / UNIT

    assert [blending(age) for age in (1, 2, 7, 99)] == pytest.approx([-0.1, -0.15, -0.4, -0.4])
    assert blending(5, 0.0) == blending(5, 0.1) == blending(5, math.nan) == 0.0
    assert [holding(age) for age in (5, 6, 7, 10, 99)] == pytest.approx([0, -0.1, -0.15, -0.3, -0.3])


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), slots=st.integers(1, 4))
def test_the_stage_bonus_telescopes(seed: int, slots: int) -> None:
    """Whatever the moves, rollbacks included: its discounted sum is that of the potentials at both ends."""
    steps = random_steps(seed, 12, 3, slots)
    config = replace(CONFIG, gamma=0.9)
    source = rewards(config, 3, slots)
    total = sum(
        0.9**number * source.step(step).columns["reward_stage_bonus"] for number, step in enumerate(steps)
    )

    assert torch.as_tensor(total).tolist() == pytest.approx([0.0] * 3, abs=1e-6)


def test_the_stage_bonus_telescopes_to_what_was_reached() -> None:
    """Of an episode that goes on: w g^T potential(now), from an empty slot through all stages."""
    path = [D, G, T, B, H, F, F]
    source = rewards()
    total = 0.0
    for number, (before, after) in enumerate(pairwise(path)):
        step = one(stages=(after,), before=(before,))
        total += 0.995**number * float(source.step(step).columns["reward_stage_bonus"])

    assert total == pytest.approx(UNIT * 0.3 * 0.995**6 * 6.0, rel=1e-5)


@pytest.mark.parametrize(
    ("op", "stage", "cost"),
    [
        ("wait", D, 0.0),
        ("germinate", D, 0.15),
        ("germinate refused", T, 0.45),
        ("set_alpha_target", H, 0.005),
        ("prune", B, 0.005),
        ("fossilise", H, 0.01),
        ("fossilise refused", H, 1.01),
        ("advance", T, 0.1),
        ("advance refused", T, 0.1),
        ("advance", B, 0.0),
    ],
)
def test_operations_cost(op: str, stage: Stage, cost: float) -> None:
    """As the table of costs states, and more where the gate refused."""
    word, _, refused = op.partition(" ")
    evidence = one(stages=(D, stage), op=OPS.index(word), slot=1, refused=bool(refused))

    assert paid(evidence).get("action_cost", 0.0) == pytest.approx(-UNIT * cost)


def test_a_prune_that_the_lifecycle_had_to_make_costs() -> None:
    """Whoever lets a seed run out pays more than for pruning it."""
    evidence = one(stages=(Stage.PRUNED, D), before=(H, D), auto_pruned=(True, False))

    assert paid(evidence)["action_cost"] == pytest.approx(-0.2 * UNIT)


def test_a_fossil_is_paid_by_what_it_contributes_and_how_long_it_was_held() -> None:
    """Once, in the step that made it; nothing where it contributes nothing."""

    def bonus(contribution: float, held: int, before: Stage = H) -> float:
        evidence = one(stages=(F,), before=(before,), contribution=(contribution,), age_before=(held,))
        return paid(evidence).get("fossil_bonus", 0.0) / UNIT

    full = 0.5 + 0.1 * 20 + 3 * math.tanh(1 / 3)
    assert bonus(0.2, 5) == bonus(0.2, 50) == pytest.approx(full)
    assert bonus(0.2, 2) == pytest.approx(0.4 * full)
    assert bonus(0.0, 5) == bonus(-0.1, 5) == bonus(0.2, 5, F) == 0.0


def test_a_fossil_that_works_with_another_is_paid_more() -> None:
    """By the largest interaction that was attributed while both lived, however long ago."""
    source = rewards(slots=2)
    source.step(one(stages=(H, B), pairs=((math.nan, 0.04), (0.04, math.nan))))
    source.step(one(stages=(H, B)))
    made = one(stages=(F, B), before=(H, B), contribution=(0.2, 0.0), age_before=(5, 1))
    alone = 0.5 + 0.1 * 20 + 3 * math.tanh(1 / 3)

    assert float(source.step(made).columns["reward_fossil_bonus"]) == pytest.approx(
        UNIT * (alone + 0.1 * math.tanh(2.0))
    )


PRUNED = Stage.PRUNED


def helped(interaction: float, delay: int, then: tuple[Stage, Stage] = (D, F)) -> tuple[float, int, int]:
    """What is paid for a seed in slot 0 that helped the one in slot 1 and was pruned `delay` steps before."""
    source = rewards(slots=2)
    bond = ((math.nan, interaction), (interaction, math.nan))
    source.step(one(stages=(B, H), pairs=bond))
    source.step(one(stages=(PRUNED, H), before=(B, H)))
    for _ in range(delay - 1):
        source.step(one(stages=(D, H)))
    columns = source.step(one(stages=then, before=(D, H))).columns
    return (
        float(columns["reward_hindsight"]) / UNIT,
        int(columns["scaffolds"]),
        int(columns["scaffold_delay"]),
    )


def test_a_seed_that_helped_and_was_pruned_is_credited_when_the_other_becomes_part_of_the_host() -> None:
    """At most 0.2, less by each step that passed; nothing without a positive interaction."""
    assert helped(0.05, 1) == pytest.approx((0.2 * 0.95, 1, 1))
    assert helped(0.5, 4) == pytest.approx((0.2 * 0.95**4, 1, 4))
    assert helped(0.01, 1) == pytest.approx((0.2 * 0.2 * 0.95, 1, 1))
    assert helped(-0.05, 1) == helped(0.0, 1) == (0.0, 0, 0)
    assert helped(0.05, 1, then=(D, H)) == (0.0, 0, 0)


def test_credit_is_paid_once_and_lost_with_the_seed_it_waits_for() -> None:
    """Pruned itself, or at its episode's end, there is nothing to be credited for."""
    bond = ((math.nan, 0.1), (0.1, math.nan))
    for lost in (one(stages=(D, PRUNED), before=(D, H)), one(stages=(D, H), is_end=True)):
        source = rewards(slots=2)
        source.step(one(stages=(B, H), pairs=bond))
        source.step(one(stages=(PRUNED, H), before=(B, H)))
        source.step(lost)
        source.restart(lost.is_end)
        for stages, before in (((D, H), (D, B)), ((D, F), (D, H)), ((D, F), (D, F))):
            assert not float(source.step(one(stages=stages, before=before)).columns["reward_hindsight"])


def test_a_rollback_costs_whatever_its_reason() -> None:
    """Ten units, once."""
    for code in (1, 2, 3):
        assert paid(one(governor=code)) == pytest.approx({"penalty": -10 * UNIT})


SIGNS = {
    "rent": (-CONFIG.max_rent, 0.0),
    "occupancy": (-0.01, 0.0),
    "contribution": (-CONFIG.contribution, CONFIG.contribution),
    "alpha_shock": (-UNIT, 0.0),
    "attribution_penalty": (-0.3 * UNIT, 0.0),
    "blending_warning": (-0.4 * UNIT * 4, 0.0),
    "holding_warning": (-0.3 * UNIT * 4, 0.0),
    "action_cost": (-2.0 * UNIT, 0.0),
    "fossil_bonus": (0.0, 12.0 * UNIT * 4),
    "hindsight": (0.0, 0.2 * UNIT),
    "terminal": (0.0, 5.0 * UNIT),
    "penalty": (-10.0 * UNIT, 0.0),
    "gain": (-1.0, 1.0),
    "attribution": (-CONFIG.attribution * 4, CONFIG.attribution * 4),
    "stage_bonus": (-6.0 * 0.3 * UNIT * 4, 6.0 * 0.3 * UNIT * 4),
}


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), slots=st.integers(1, 4))
def test_every_part_is_bounded_has_its_sign_and_adds_up(seed: int, slots: int) -> None:
    """Whatever the evidence; nothing is ever NaN, and the reward is the sum of its parts."""
    source = rewards(CONFIG, 8, slots)
    for step in random_steps(seed, 10, 8, slots):
        found = source.step(step)
        total = torch.zeros(8)
        for name, (low, high) in SIGNS.items():
            part = found.columns[f"reward_{name}"]
            assert bool(((part >= low - 1e-6) & (part <= high + 1e-6)).all()), name
            total += part
        assert found.reward.tolist() == pytest.approx(total.tolist(), abs=1e-5)

    assert set(SIGNS) == set(NAMES)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**31))
def test_parts_that_a_mode_does_not_pay_are_0(seed: int) -> None:
    """And those that two modes pay are the same in both, but for the terminal one."""
    steps = random_steps(seed, 8, 4, 3)
    sources = {mode: rewards(RewardConfig(mode=mode), 4, 3) for mode in ("shaped", "simplified", "minimal")}
    for step in steps:
        found = {mode: source.step(step).columns for mode, source in sources.items()}
        for mode, columns in found.items():
            for name in NAMES:
                part = columns[f"reward_{name}"]
                if name not in MODES[mode].parts:
                    assert not bool(part.any())
                elif name != "terminal":
                    assert torch.equal(part, found["shaped"][f"reward_{name}"])


@settings(max_examples=15)
@given(seed=st.integers(0, 2**31))
def test_the_sparse_mode_pays_all_of_it_at_the_end(seed: int) -> None:
    """Nothing before; then each part's sum of the episode; the next episode owes nothing."""
    steps = random_steps(seed, 8, 4, 3)
    sparse, dense = rewards(RewardConfig(mode="sparse"), 4, 3), rewards(RewardConfig(mode="minimal"), 4, 3)
    for _ in range(2):
        sums = {name: torch.zeros(4) for name in MODES["sparse"].parts}
        for number, step in enumerate(steps):
            found, other = sparse.step(step), dense.step(step).columns
            for name in sums:
                sums[name] += other[f"reward_{name}"]
            if number < len(steps) - 1:
                assert not bool(found.reward.any())
        for name, total in sums.items():
            assert found.columns[f"reward_{name}"].tolist() == pytest.approx(total.tolist(), abs=1e-5)


def test_the_final_accuracy_is_paid_once_an_episode() -> None:
    """A twentieth of a unit a percentage point beside the shaped gain, else the whole accuracy."""
    last = one(accuracy=0.9, is_end=True)

    assert paid(last)["terminal"] == pytest.approx(0.05 * 90 * UNIT)
    assert paid(last, RewardConfig(mode="minimal"))["terminal"] == pytest.approx(0.9)
    assert "terminal" not in paid(one(accuracy=0.9))


def test_rewards_go_on_as_they_were() -> None:
    """Credit that waits and what is owed are in the state: the same steps pay the same afterwards."""
    steps = random_steps(3, 30, 6, 4)
    for mode in ("shaped", "sparse"):
        source, other = rewards(RewardConfig(mode=mode), 6, 4), rewards(RewardConfig(mode=mode), 6, 4)
        for step in steps[:15]:
            source.step(step)
        other.load_state_dict(source.state_dict())
        for step in steps[15:]:
            found, again = source.step(step), other.step(step)
            assert torch.equal(found.reward, again.reward)
            assert all(torch.equal(value, again.columns[name]) for name, value in found.columns.items())


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("mode", "escrow", "shaped, simplified, minimal, sparse"),
        ("rent", -0.1, "at least 0"),
        ("shaping", math.nan, "at least 0"),
        ("ratio", 0.0, "above 0"),
        ("gamma", 1.5, "at most 1"),
        ("warm_up", 0, "at least 1"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(name: str, value: object, fix: str) -> None:
    """The error names it, its value and what to use."""
    with pytest.raises(ValueError, match=f"{name} is {value!r}; use .*{fix}"):
        RewardConfig(**{name: value})  # type: ignore[arg-type]  # wrong on purpose
