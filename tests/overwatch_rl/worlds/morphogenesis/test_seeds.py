"""What is counted of seeds, against a plain walk through their lives; rows of an update that move with it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, Stage
from overwatch_rl.undefined import UNDEFINED
from overwatch_rl.worlds.morphogenesis.rewards import PARTS, RewardConfig, Rewards
from overwatch_rl.worlds.morphogenesis.seeds import (
    SUMMARISED,
    counted,
    hypervolume,
    summary,
)
from tests.overwatch_rl.worlds.morphogenesis.evidence import OPS, B, D, F, G, H, T, one, random_steps

CONFIG = RewardConfig()
PRUNED = Stage.PRUNED


def quiet(steps: int = 4, envs: int = 2) -> dict[str, Tensor]:
    """Columns of a rollout in which nothing happened."""
    names = [f"reward_{part.name}" for part in PARTS]
    evidence = one(stages=(D,))
    counts = [*counted(evidence, CONFIG), "scaffolds", "scaffold_delay"]
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
        *((f"reward_{part.name}", {f"reward_{part.name}": 0.5}, 0.5 / 8) for part in PARTS),
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
        for name, count in counted(step, CONFIG).items():
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
    found = {name: int(value) for name, value in counted(signs, CONFIG).items()}

    assert (found["seeds_tried"], found["seeds_overclaimed"], found["seeds_ransomed"]) == (3, 2, 1)
    assert found["gamed"] == 1
    assert int(counted(jump, CONFIG)["gamed"]) == 1
    assert int(counted(one(stages=(B,), alpha_change=(0.5,)), CONFIG)["gamed"]) == 0


@settings(max_examples=15)
@given(seed=st.integers(0, 2**31))
def test_counts_of_many_envs_are_those_of_each_alone(seed: int) -> None:
    """Against a plain walk over stages."""
    sums = {"germinated": 0, "pruned": 0, "fossilised": 0}
    found = dict.fromkeys(sums, 0)
    for step in random_steps(seed, 12, 4, 3):
        columns = counted(step, CONFIG)
        moves = zip(step.stage_before.flatten().tolist(), step.stage.flatten().tolist(), strict=True)
        for before, after in moves:
            for name, stage in (("germinated", G), ("pruned", PRUNED), ("fossilised", F)):
                sums[name] += before != after and BY_CODE[after] is stage
        for name in found:
            found[name] += int(columns[f"seeds_{name}"].sum())

    assert found == sums


def test_columns_of_rewards_and_counts_make_all_rows() -> None:
    """Steps that are anything they may be, through all of it: every row is there, and none is 0."""
    envs, slots = 6, 3
    source = Rewards((envs, slots), RewardConfig(patience=0), OPS)
    columns: dict[str, list[Tensor]] = {}
    for step in random_steps(7, 60, envs, slots):
        found = {**source.step(step).columns, **counted(step, CONFIG)}
        found |= {"metric": step.accuracy, "growth_ratio": 1.0 + step.overhead, "governor": step.governor}
        for name, value in found.items():
            columns.setdefault(name, []).append(value)
    stacked = {name: torch.stack(values) for name, values in columns.items()}
    numbers = rows(stacked | {"seed_share": torch.full((60, envs), 0.005)})

    assert [name for name, value in numbers.items() if not math.isfinite(value)] == []
    assert [name for name, value in numbers.items() if value == 0] == []
