"""What a step pays, part by part; credit that waits; rows of an update that follow from seeds' lives."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from overwatch.catalog.stages import Stage
from overwatch_rl.undefined import UNDEFINED
from overwatch_rl.worlds.morphogenesis.actions import Op
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.rewards import (
    ATTRIBUTION,
    CONTRIBUTION,
    FOSSIL_RENT,
    MAX_RENT,
    OCCUPANCY,
    PARTS,
    SUMMARISED,
    Evidence,
    Rewards,
    holds_to_ransom,
    hypervolume,
    overclaims,
    seed_counts,
    summary,
)
from tests.overwatch_rl.worlds.morphogenesis.evidence import B, D, F, G, H, T, nothing, one, random_steps

CONFIG = MorphogenesisConfig()
UNIT = CONFIG.shaping


def rewards(envs: int = 1, slots: int = 1, **settings: float) -> Rewards:
    """Of so many envs."""
    return Rewards(envs, MorphogenesisConfig(slots=slots, **settings))  # type: ignore[arg-type]  # theirs


def paid(evidence: Evidence) -> dict[str, float]:
    """The parts of one step of one env that are not 0."""
    reward, columns = rewards(slots=evidence.stage.shape[1]).step(evidence)
    parts = {name: float(columns[f"reward_{name}"]) for name in PARTS}
    assert float(reward) == pytest.approx(sum(parts.values()), abs=1e-6)
    return {name: value for name, value in parts.items() if value}


def test_nothing_pays_nothing() -> None:
    """Empty slots, a host that stays as it is: every part is 0."""
    assert paid(Evidence(**nothing(1, 3))) == {}


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
    assert costs[3] == pytest.approx(-MAX_RENT)


def test_occupancy_is_of_seeds_beyond_the_first_and_of_fossils() -> None:
    """A single seed that is tried out has none."""
    assert "occupancy" not in paid(one(stages=(T, D, D)))
    assert paid(one(stages=(T, B, H)))["occupancy"] == pytest.approx(-2 * OCCUPANCY)
    assert paid(one(stages=(T, F, F)))["occupancy"] == pytest.approx(-2 * FOSSIL_RENT)


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
    assert bool(overclaims(evidence)) is (share > 0)


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
    source = rewards(3, slots, gamma=0.9)
    total = sum(0.9**number * source.step(step)[1]["reward_stage_bonus"] for number, step in enumerate(steps))

    assert torch.as_tensor(total).tolist() == pytest.approx([0.0] * 3, abs=1e-6)


def test_the_stage_bonus_telescopes_to_what_was_reached() -> None:
    """Of an episode that goes on: w g^T potential(now), from an empty slot through all stages."""
    path = [D, G, T, B, H, F, F]
    source = rewards()
    total = 0.0
    for number, (before, after) in enumerate(pairwise(path)):
        step = one(stages=(after,), before=(before,))
        total += 0.995**number * float(source.step(step)[1]["reward_stage_bonus"])

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
    evidence = one(stages=(D, stage), op=Op[word.upper()], slot=1, refused=bool(refused))

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

    assert float(source.step(made)[1]["reward_fossil_bonus"]) == pytest.approx(
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
    _, columns = source.step(one(stages=then, before=(D, H)))
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
            assert not float(source.step(one(stages=stages, before=before))[1]["reward_hindsight"])


def test_a_rollback_costs_whatever_its_reason() -> None:
    """Ten units, once."""
    for code in (1, 2, 3):
        assert paid(one(governor=code)) == pytest.approx({"penalty": -10 * UNIT})


SIGNS = {
    "rent": (-MAX_RENT, 0.0),
    "occupancy": (-0.01, 0.0),
    "contribution": (-CONTRIBUTION, CONTRIBUTION),
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
    "attribution": (-ATTRIBUTION * 4, ATTRIBUTION * 4),
    "stage_bonus": (-6.0 * 0.3 * UNIT * 4, 6.0 * 0.3 * UNIT * 4),
}


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), slots=st.integers(1, 4))
def test_every_part_is_bounded_has_its_sign_and_adds_up(seed: int, slots: int) -> None:
    """Whatever the evidence; nothing is ever NaN, and the reward is the sum of its parts."""
    source = rewards(8, slots)
    for step in random_steps(seed, 10, 8, slots):
        reward, columns = source.step(step)
        total = torch.zeros(8)
        for name, (low, high) in SIGNS.items():
            part = columns[f"reward_{name}"]
            assert bool(((part >= low - 1e-6) & (part <= high + 1e-6)).all()), name
            total += part
        assert reward.tolist() == pytest.approx(total.tolist(), abs=1e-5)

    assert set(SIGNS) == set(PARTS)


def test_the_final_accuracy_is_paid_once_an_episode() -> None:
    """A twentieth of a unit a percentage point."""
    last = one(accuracy=0.9, is_end=True)

    assert paid(last)["terminal"] == pytest.approx(0.05 * 90 * UNIT)
    assert "terminal" not in paid(one(accuracy=0.9))


def quiet(steps: int = 4, envs: int = 2) -> dict[str, Tensor]:
    """Columns of a rollout in which nothing happened."""
    names = [f"reward_{part}" for part in PARTS]
    evidence = one(stages=(D,))
    counts = [*seed_counts(evidence), "scaffolds", "scaffold_delay"]
    columns = {name: torch.zeros(steps, envs) for name in names}
    columns |= {name: torch.zeros(steps, envs, dtype=torch.int32) for name in (*counts, "governor")}
    return columns | {
        "metric": torch.full((steps, envs), 0.5),
        "growth_ratio": torch.ones(steps, envs),
        "seed_share": torch.full((steps, envs), torch.nan),
    }


def rows(columns: dict[str, Tensor], *, ends: bool = True) -> dict[str, float]:
    """The rows of a rollout whose episodes end with the last step."""
    ended = torch.zeros(columns["metric"].shape, dtype=torch.bool)
    ended[-1] = ends
    return {name: float(value) for name, value in summary(columns, ended).items()}


def test_every_row_is_named_and_a_quiet_rollout_has_no_row_that_means_nothing() -> None:
    """In the order that is announced; what did not happen has no mean."""
    found = rows(quiet())
    absent = {name for name, value in found.items() if value == UNDEFINED}

    assert tuple(found) == SUMMARISED
    assert absent == {
        "shaping_share",
        "scaffold_delay",
        "blend_success",
        "seed_lifespan",
        "overclaimed_seeds",
        "ransom_seeds",
        "starved_seeds",
    }
    assert {name for name, value in rows(quiet(), ends=False).items() if value == UNDEFINED} == absent | {
        "hypervolume",
        "germination_rate",
        "prune_rate",
        "fossilise_rate",
        "rollbacks",
    }


@pytest.mark.parametrize(
    ("row", "changes", "expected"),
    [
        *((f"reward_{part}", {f"reward_{part}": 0.5}, 0.5 / 8) for part in PARTS),
        ("shaping_share", {"reward_stage_bonus": -0.1, "reward_gain": 0.3}, 0.25),
        ("gaming_share", {"gamed": 1}, 1 / 8),
        ("scaffolds", {"scaffolds": 2, "scaffold_delay": 9}, 2),
        ("scaffold_delay", {"scaffolds": 2, "scaffold_delay": 9}, 4.5),
        ("germination_rate", {"seeds_germinated": 3}, 1.5),
        ("prune_rate", {"seeds_pruned": 1}, 0.5),
        ("fossilise_rate", {"seeds_fossilised": 2}, 1.0),
        ("blend_success", {"seeds_fossilised": 1, "seeds_blends_ended": 4}, 0.25),
        ("seed_lifespan", {"seeds_life": 30, "seeds_lives_ended": 2}, 15.0),
        ("overclaimed_seeds", {"seeds_overclaimed": 1, "seeds_tried": 4}, 0.25),
        ("ransom_seeds", {"seeds_ransomed": 1, "seeds_tried": 2}, 0.5),
        ("starved_seeds", {"seed_share": 0.001}, 1.0),
        ("starved_seeds", {"seed_share": 0.5}, 0.0),
        ("rollbacks", {"governor": 2}, 0.5),
    ],
)
def test_a_row_moves_with_its_source_alone(row: str, changes: dict[str, float], expected: float) -> None:
    """One env in one step; the rows that do not depend on it stay as they were."""
    columns = quiet()
    for name, value in changes.items():
        columns[name][1, 1] = value
    before, after = rows(quiet()), rows(columns)

    assert after[row] == pytest.approx(expected)
    assert before[row] != pytest.approx(expected)
    moved = {name for name in after if str(after[name]) != str(before[name])}
    shared = {"shaping_share", "scaffolds", "scaffold_delay", "blend_success", "fossilise_rate"}
    assert moved - shared - {"overclaimed_seeds", "ransom_seeds"} <= {row, *changes}


def test_the_best_trades_are_the_area_they_leave_behind_them() -> None:
    """Two good trades; one that is larger and worse adds nothing; episodes that go on do not count."""
    metric = torch.tensor([[0.5, 0.9, 0.4, 1.0]])
    size = torch.tensor([[1.0, 2.0, 3.0, 1.0]])
    ended = torch.tensor([[True, True, True, False]])
    expected = (0.5 * 1.0 + 0.9 * 8.0) / 9.0

    assert float(hypervolume(metric, size, ended)) == pytest.approx(expected)
    assert float(hypervolume(metric, size, ended.logical_not())) == pytest.approx(1.0)
    assert float(hypervolume(metric, size * 20, ended)) == 0.0
    assert float(hypervolume(metric, size, torch.zeros_like(ended))) != 0.0


@settings(max_examples=20)
@given(points=st.lists(st.tuples(st.floats(0, 1), st.floats(1, 12)), min_size=1, max_size=8))
def test_that_area_is_what_is_dominated(points: list[tuple[float, float]]) -> None:
    """Against the share of a fine grid that some trade is at least as good as."""
    metric = torch.tensor([[point[0] for point in points]])
    size = torch.tensor([[point[1] for point in points]])
    ended = torch.ones_like(metric, dtype=torch.bool)
    steps = 300
    heights = (torch.arange(steps) + 0.5) / steps
    sizes = 1.0 + 9.0 * heights
    dominated = (metric.flatten()[:, None, None] >= heights[:, None]) & (
        size.flatten()[:, None, None] <= sizes
    )

    assert float(hypervolume(metric, size, ended)) == pytest.approx(
        float(dominated.any(dim=0).float().mean()), abs=0.01
    )


def lived(path: list[Stage]) -> dict[str, int]:
    """Sums of what is counted of one slot whose stages these are, step by step, the first one included."""
    totals, life = dict[str, int](), 0
    for place, (before, after) in enumerate(zip([D, *path], path, strict=False)):
        life = 0 if before is D else life + 1
        step = one(stages=(after,), before=(before,), life=(life,), is_end=place == len(path) - 1)
        for name, count in seed_counts(step).items():
            totals[name.removeprefix("seeds_")] = totals.get(name.removeprefix("seeds_"), 0) + int(count)
    return totals


def test_a_seed_that_becomes_part_of_its_host_lives_to_the_end() -> None:
    """One birth, one fossil, one blend that succeeded; eight steps until the episode ended."""
    found = lived([D, G, T, B, B, H, H, F, F])

    assert {name: found[name] for name in ("germinated", "pruned", "fossilised")} == {
        "germinated": 1,
        "pruned": 0,
        "fossilised": 1,
    }
    assert (found["blends_ended"], found["lives_ended"], found["life"], found["tried"]) == (1, 1, 8, 4)


def test_a_seed_that_is_pruned_or_left_at_the_end_has_not_blended_in() -> None:
    """Its life ends with the prune; one that is still blending as the episode ends has failed too."""
    pruned, left = lived([G, T, B, PRUNED, Stage.EMBARGOED, D]), lived([G, T, B, H])

    assert (pruned["pruned"], pruned["blends_ended"], pruned["life"], pruned["fossilised"]) == (1, 1, 3, 0)
    assert (left["pruned"], left["blends_ended"], left["life"], left["fossilised"]) == (0, 1, 4, 0)
    assert lived([G, T, PRUNED])["blends_ended"] == 0


def test_signs_of_gaming_are_counted_by_seed() -> None:
    """One that claims too much, one that is both that and a ransom; a jump of alpha alone is gaming too."""
    signs = one(stages=(H, B, H), contribution=(0.2, 0.2, 0.0), improvement=(0.01, -0.1, 0.1))
    jump = one(stages=(B,), alpha_change=(0.6,))
    found = {name: int(value) for name, value in seed_counts(signs).items()}

    assert (found["seeds_tried"], found["seeds_overclaimed"], found["seeds_ransomed"]) == (3, 2, 1)
    assert found["gamed"] == 1
    assert int(seed_counts(jump)["gamed"]) == 1
    assert int(seed_counts(one(stages=(B,), alpha_change=(0.5,)))["gamed"]) == 0
