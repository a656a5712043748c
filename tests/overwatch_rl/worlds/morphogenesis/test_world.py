"""The world's economy: what is paid, what is charged, and that growing is worth it; rollbacks and ends."""

import math
import sys
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from overwatch.catalog.stages import Stage
from overwatch_rl.types import Factored, Step
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.evaluation import Schedule, always_wait, best_schedule, play, schedules, uniform
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.hosts import BLUEPRINTS
from overwatch_rl.worlds.morphogenesis.lifecycle import CONNECTED
from overwatch_rl.worlds.morphogenesis.rewards import ROLLBACK
from overwatch_rl.worlds.morphogenesis.world import (
    EXACT_SLOTS,
    GLOBAL_FEATURES,
    SLOT_FEATURES,
    Morphogenesis,
    attribute,
    subsets_of,
)

EPISODE_STEPS = MorphogenesisConfig().steps
PRICED = MorphogenesisConfig()
PENALTY = PRICED.shaping * ROLLBACK
HOST, SMALL = 235, 460
"""Parameters of a host, and of its smallest branch that does something."""
CONNECTED_CODES = torch.tensor([stage.code for stage in CONNECTED])
NUM_ENVS = 3


class Broken(Morphogenesis):
    """A world whose hosts break by a plan: which envs at each step, from the first of the run."""

    def __init__(self, config: WorldConfig, settings: MorphogenesisConfig, plan: list[list[int]]) -> None:
        super().__init__(config, settings)
        self.plan = list(plan)

    def step(self, actions: Tensor) -> Step:
        """Break what is planned, then step."""
        broken = self.plan.pop(0) if self.plan else []
        self.hosts.tensors["host.last"][broken] = torch.nan
        return super().step(actions)


def made(envs: int, slots: int, plan: list[list[int]] | None = None, **settings: int) -> Morphogenesis:
    """The world in a size."""
    config = MorphogenesisConfig(slots=slots, **settings)
    return Broken(WorldConfig(num_envs=envs), config, plan or [])


def grower(env: Morphogenesis, blueprint: int = 0, num_slots: int | None = None) -> Schedule:
    """A fixed schedule for such a world."""
    spec = env.spec.action
    assert isinstance(spec, Factored)
    return Schedule(spec=spec, blueprint=blueprint, num_slots=num_slots)


GROWING = {Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING}


def test_reward_is_the_sum_of_parts_that_follow_from_the_columns() -> None:
    """Every step of a growing env adds up; gain and rent are worked out from what the step itself reports."""
    env = made(1, 2)
    act = grower(env, blueprint=0)
    observation = env.reset(1)
    accuracy, size, fossils = float(observation.features[0, 1]), SMALL, 0
    for number in range(EPISODE_STEPS):
        step = env.step(act(observation))
        columns = {name: column[0] for name, column in step.columns.items()}
        stages = [list(Stage)[code] for code in columns["slot_stage"].tolist()]
        growing, made_of = sum(stage in GROWING for stage in stages), stages.count(Stage.FOSSILISED)
        part = {name.removeprefix("reward_"): float(columns[name]) for name in columns if "reward_" in name}
        assert float(step.reward) == pytest.approx(sum(part.values()), abs=1e-6)
        assert part["gain"] == pytest.approx(float(columns["metric"]) - accuracy, abs=1e-6)
        rent = PRICED.rent * math.log(1 + (growing + made_of) * size / HOST)
        assert part["rent"] == pytest.approx(-rent, rel=1e-5)
        assert float(columns["rent"]) == pytest.approx(rent - part["occupancy"], rel=1e-5)
        assert part["occupancy"] == pytest.approx(-0.001 * max(growing - 1, 0) - 0.0005 * made_of)
        assert part["fossil_bonus"] == 0 or made_of > fossils
        assert (part["terminal"] > 0) is (number == EPISODE_STEPS - 1)
        accuracy, observation, fossils = float(columns["metric"]), step.observation, made_of

    assert fossils == 2


def test_what_is_attributed_adds_up_to_what_branches_gain() -> None:
    """Now and then, from a real host, and shown with its age until the next time."""
    env = made(4, 3, attribute_every=5)
    act = grower(env)
    observation = env.reset(1)
    seen = 0
    for number in range(1, EPISODE_STEPS):
        columns = (step := env.step(act(observation))).columns
        observation = step.observation
        is_due = number % 5 == 0
        assert bool(columns["metric_without"].isfinite().all()) is (number >= 5)
        if number >= 5:
            assert columns["attribution_age"].tolist() == [number % 5] * 4
        connected = torch.isin(columns["slot_stage"], CONNECTED_CODES) & (columns["slot_alpha"] > 0)
        if is_due:
            assert torch.equal(columns["slot_shapley"].isfinite(), connected)
            gained = columns["metric"] - columns["metric_without"]
            assert torch.allclose(columns["slot_shapley"].nan_to_num().sum(dim=1), gained, atol=1e-5)
            few = connected.sum(dim=1) < 2
            assert not bool(columns["synergy"][few].any())
            seen += int((columns["synergy"] != 0).sum())

    assert seen > 0


def test_every_row_of_the_summary_moves_in_a_real_rollout() -> None:
    """An episode by a schedule beside one at random, one host rolled back: rows are finite, none is 0."""
    plan: list[list[int]] = [[] for _ in range(40)] + [[11]]
    env = made(12, 3, plan)
    grow, draw = grower(env), uniform(env.spec.action, torch.Generator().manual_seed(2))
    observation = env.reset(2)
    steps = []
    for _ in range(EPISODE_STEPS):
        actions = draw(observation)
        actions[:4] = grow(observation)[:4]
        steps.append(step := env.step(actions))
        observation = step.observation
    columns = {name: torch.stack([step.columns[name] for step in steps]) for name in steps[0].columns}
    assert env.spec.summary is not None
    rows = env.spec.summary(columns, torch.stack([step.terminated for step in steps]))

    assert tuple(rows) == env.spec.summarised
    absent = {name for name, value in rows.items() if not bool(value.isfinite())}
    zero = {name for name, value in rows.items() if float(value) == 0}
    signs = {"overclaimed_seeds", "ransom_seeds", "starved_seeds", "gaming_share"}
    rare = {"reward_hindsight", "scaffolds", "scaffold_delay", "reward_attribution_penalty"}
    assert absent | zero <= signs | rare


def test_a_host_that_is_ruined_is_rolled_back_by_the_governor() -> None:
    """A weight that is not a number: named in that step, and the host is as good as it was kept."""
    env = made(2, 1)
    act = always_wait(env.spec.action)
    observation = env.reset(4)
    codes = []
    for number in range(12):
        if number == 8:
            state = env.state_dict()
            state["hosts.host.first"][0] = torch.nan
            observation = env.load_state_dict(state)
        step = env.step(act(observation))
        observation = step.observation
        codes.append(step.columns["governor"].tolist())

    assert codes[8][0] == 1
    assert [code for number, code in enumerate(codes) if number != 8] == [[0, 0]] * 11
    assert float(step.columns["metric"][0]) > 0.1


def test_the_end_of_an_episode_is_a_termination_that_the_policy_can_see_coming() -> None:
    """Remaining time falls evenly to its last share, then the episode terminates everywhere."""
    env = made(2, 1)
    act = always_wait(env.spec.action)
    observation = env.reset(1)
    left = []
    for number in range(EPISODE_STEPS):
        left.append(float(observation.features[0, 0]))
        step = env.step(act(observation))
        observation = step.observation
        assert bool(step.terminated.all()) is (number == EPISODE_STEPS - 1)
        assert not bool(step.truncated.any())

    assert left == pytest.approx([1 - number / EPISODE_STEPS for number in range(EPISODE_STEPS)])


def test_the_observation_is_of_the_env_then_of_each_slot_in_turn() -> None:
    """What one slot shows stands in its own stretch of features, of the same width for all."""
    env = made(1, 3)
    observation = env.reset(1)
    width = SLOT_FEATURES + len(BLUEPRINTS)
    assert env.spec.observation.shape == (GLOBAL_FEATURES + 3 * width,)
    empty = observation.features[0, GLOBAL_FEATURES:].view(3, width)
    assert torch.equal(empty[0], empty[1])
    germinate = torch.tensor([[1, 1, 0, 0, 0, 2, 0, 0]])
    slots = env.step(germinate).observation.features[0, GLOBAL_FEATURES:].view(3, width)

    assert torch.equal(slots[0], slots[2])
    assert slots[1, Stage.GERMINATED.code] == 1
    assert not torch.equal(slots[0], slots[1])


def test_columns_follow_their_sources() -> None:
    """Best accuracy, steps since it, size and contribution are those of the steps so far."""
    env = made(1, 1)
    act = grower(env)
    observation = env.reset(3)
    best, since = float(observation.features[0, 1]), 0
    seen: dict[str, set[float]] = {}
    for _ in range(EPISODE_STEPS):
        step = env.step(act(observation))
        observation = step.observation
        columns = {name: column.flatten()[0].item() for name, column in step.columns.items()}
        since = 0 if columns["metric"] > best else since + 1
        best = max(best, columns["metric"])
        assert (columns["metric_best"], columns["stalled_steps"]) == (best, since)
        is_fossil = columns["slot_stage"] == Stage.FOSSILISED.code
        assert columns["fossil_parameters"] == (SMALL if is_fossil else 0)
        assert (columns["growth_ratio"] > 1) == is_fossil
        for name, value in columns.items():
            if value == value:  # noqa: PLR0124 NaN is absent
                seen.setdefault(name, set()).add(value)

    assert {name for name, values in seen.items() if len(values) > 1} >= {
        "host_loss", "metric_best", "stalled_steps", "fossil_parameters", "growth_ratio", "seed_share",
        "slot_contribution", "slot_grad",
    }  # fmt: skip


def test_growing_one_seed_beats_waiting_and_beats_growing_all(capsys: pytest.CaptureFixture[str]) -> None:
    """The rent leaves one seed worth it, and not all: by three standard errors, on the same episodes."""
    env = made(16, 3)
    one = play(env, grower(env, num_slots=1), 7)
    others = {
        "always-wait": play(env, always_wait(env.spec.action), 7),
        "all seeds": play(env, grower(env), 7),
    }
    for name, other in others.items():
        difference = one.returns - other.returns
        error = float(difference.std() / len(difference) ** 0.5)
        with capsys.disabled():
            sys.stdout.write(
                f"\none seed {one.mean:.3f} ± {one.standard_error:.3f}, {name} {other.mean:.3f} ± "
                f"{other.standard_error:.3f}, {float(difference.mean()) / error:.1f} standard errors apart\n"
            )
        assert float(difference.mean()) >= 3 * error

    assert float(one.fossils.double().mean()) == 1


def test_what_is_grown_never_changes_a_hosts_data() -> None:
    """Two policies that grow differently see the same hosts at the beginning of the second episode."""
    seen = []
    for kind in (0, 1):
        env = made(2, 2)
        act = grower(env, blueprint=kind, num_slots=1 + kind)
        observation = env.reset(5)
        for _ in range(EPISODE_STEPS):
            observation = env.step(act(observation)).observation
        seen.append(observation.features)

    assert torch.equal(*seen)


def test_a_saved_world_goes_on_as_it_would_have() -> None:
    """In the middle of an episode, to the last bit: generators, snapshots and the judge included."""
    plan: list[list[int]] = [[] for _ in range(EPISODE_STEPS)]
    for at, envs in ((12, [0]), (30, [0, 1]), (36, [1])):
        plan[at] = envs
    env, other = made(2, 2, plan), made(2, 2, plan[23:])
    act = grower(env)
    observation = env.reset(5)
    for _ in range(23):
        observation = env.step(act(observation)).observation
    state = {name: value.clone() for name, value in env.state_dict().items()}
    other.reset(1)
    again = other.load_state_dict(state)
    assert torch.equal(again.features, observation.features)
    for _ in range(EPISODE_STEPS):
        first, second = env.step(act(observation)), other.step(act(again))
        observation, again = first.observation, second.observation
        assert torch.equal(first.reward, second.reward)
        assert torch.equal(observation.features, again.features)


@given(
    plan=st.lists(st.lists(st.integers(0, NUM_ENVS - 1), max_size=NUM_ENVS, unique=True), max_size=30),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=8)
def test_an_episode_has_one_end_whatever_is_rolled_back(plan: list[list[int]], seed: int) -> None:
    """An env ends at its last step or its third rollback, once, and only there a new episode begins."""
    steps, most = 8, 3
    env = made(NUM_ENVS, 2, plan, steps=steps, max_rollbacks=most)
    act = uniform(env.spec.action, torch.Generator().manual_seed(seed))
    observation = env.reset(seed)
    clock, rollbacks = [0] * NUM_ENVS, [0] * NUM_ENVS
    for number in range(len(plan) + steps):
        step = env.step(act(observation))
        observation = step.observation
        sick = plan[number] if number < len(plan) else []
        ends = []
        for one in range(NUM_ENVS):
            clock[one] += 1
            rollbacks[one] += one in sick
            ends.append(clock[one] == steps or rollbacks[one] == most)
            if ends[one]:
                clock[one] = rollbacks[one] = 0
        assert step.terminated.tolist() == ends
        assert not bool(step.truncated.any())
        assert step.columns["governor"].tolist() == [one in sick for one in range(NUM_ENVS)]
        paid = torch.tensor([-PENALTY * (one in sick) for one in range(NUM_ENVS)])
        assert torch.allclose(step.columns["reward_penalty"], paid)
        assert observation.features[:, 0].tolist() == pytest.approx([1 - one / steps for one in clock])


def test_a_rolled_back_host_is_the_one_that_was_kept() -> None:
    """Its accuracy is that of the snapshot; fossils stay, seeds that learned are pruned, other envs go on."""
    every, sick = 5, 13
    plan: list[list[int]] = [[] for _ in range(sick)] + [[0]]
    env, untouched = made(2, 2, plan, snapshot_every=every), made(2, 2, snapshot_every=every)
    act = grower(env)
    observation, other = env.reset(2), untouched.reset(2)
    kept = 0.0
    for number in range(sick + 1):
        taken = act(observation)
        step, plain = env.step(taken), untouched.step(act(other))
        observation, other = step.observation, plain.observation
        fossils = (step.columns["slot_stage"][0] == Stage.FOSSILISED.code).sum()
        if (number + 1) % every == 0 or int(taken[0, 0]) == 4:
            kept = float(step.columns["metric"][0])
    before, after = plain.columns, step.columns

    assert float(after["metric"][0]) == pytest.approx(kept)
    assert float(before["metric"][0]) != pytest.approx(kept)
    assert int(fossils) == 1
    assert Stage.PRUNED.code in after["slot_stage"][0].tolist()
    assert torch.equal(after["slot_stage"][1], before["slot_stage"][1])
    assert torch.equal(after["metric"][1], before["metric"][1])


def test_a_device_that_it_cannot_use_is_named() -> None:
    """With what to use instead."""
    with pytest.raises(ValueError, match="runs on 'cpu'"):
        Morphogenesis(WorldConfig(num_envs=1, device="cuda"), MorphogenesisConfig())


def test_schedules_are_each_blueprint_in_one_slot_and_in_more() -> None:
    """The best is that of the highest return in the episodes of its seed."""
    env = made(2, 1, steps=18)
    returns = {name: play(env, act, 5).mean for name, act in schedules(env.spec).items()}
    name, _ = best_schedule(env, 5)

    assert set(schedules(made(1, 2).spec)) == {
        f"{one.id} x {count}" for one in BLUEPRINTS[:-1] for count in (1, 2)
    }
    assert returns[name] == max(returns.values())


Game = Callable[[frozenset[int]], float]


def of_game(game: Game, slots: int) -> Tensor:
    """1 M: what a game gives for each subset of the slots."""
    subsets = [frozenset(row.nonzero().flatten().tolist()) for row in subsets_of(slots)]
    return torch.tensor([[game(subset) for subset in subsets]])


def shapley(game: Game, slots: int) -> list[float]:
    """By their definition: the mean over all orders of what a slot adds."""
    values = [0.0] * slots
    orders = list(permutations(range(slots)))
    for order in orders:
        for place, slot in enumerate(order):
            values[slot] += game(frozenset(order[: place + 1])) - game(frozenset(order[:place]))
    return [value / len(orders) for value in values]


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), slots=st.integers(1, EXACT_SLOTS + 2))
def test_attribution_is_that_of_its_definitions(seed: int, slots: int) -> None:
    """In games where every subset is worth what chance gives it; Shapley values only of few slots."""
    numbers = torch.rand(2**slots, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def game(subset: frozenset[int]) -> float:
        return float(numbers[sum(2**slot for slot in subset)])

    none, everything = game(frozenset()), game(frozenset(range(slots)))
    alone = [game(frozenset({slot})) - none for slot in range(slots)]
    seen = attribute(of_game(game, slots), torch.ones(1, slots, dtype=torch.bool))

    for one in range(slots):
        pairs = [
            game(frozenset({one, other})) - none - alone[one] - alone[other]
            for other in range(slots)
            if other != one
        ]
        assert float(seen.interaction[0, one]) == pytest.approx(sum(pairs), abs=1e-4)
        assert float(seen.boost[0, one]) == pytest.approx(max([*pairs, 0.0]), abs=1e-4)
    assert float(seen.synergy) == pytest.approx(everything - none - sum(alone), abs=1e-4)
    if slots <= EXACT_SLOTS:
        assert seen.shapley[0].tolist() == pytest.approx(shapley(game, slots), abs=1e-5)
    else:
        assert bool(seen.shapley.isnan().all())


def test_a_slot_without_a_branch_has_no_number_and_takes_none() -> None:
    """Its values are absent, and those of the others are the same as if it were not there."""
    worth = {(): 0.4, (0,): 0.5, (1,): 0.6, (0, 1): 0.9}
    full = attribute(of_game(lambda some: worth[tuple(sorted(some))], 2), torch.ones(1, 2, dtype=torch.bool))
    accuracies = of_game(lambda some: worth[tuple(sorted(some - {2}))], 3)
    seen = attribute(accuracies, torch.tensor([[True, True, False]]))

    assert seen.shapley[0, :2].tolist() == pytest.approx(full.shapley[0].tolist(), abs=1e-6)
    assert float(seen.synergy) == pytest.approx(0.2, abs=1e-6)
    for column in (seen.shapley, seen.interaction, seen.boost):
        assert column[0, 2].isnan()
    assert seen.pairs[0, 2].isnan().all()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"slots": 65}, "slots is 65; use 1 to 64"),
        ({"steps": 0}, "steps is 0; use 1 or more"),
        ({"min_train": -1}, "min_train is -1; use 0 or more"),
        ({"max_hold": 2}, "max_hold is 2; use more than min_hold, which is 2"),
        ({"min_health": 1.5}, "min_health is 1.5; use 0 to 1"),
        ({"rent": -0.1}, "rent is -0.1; use 0 or more"),
        ({"shaping": math.nan}, "shaping is nan; use 0 or more"),
        ({"gamma": 1.5}, "gamma is 1.5; use 0 to 1"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any], error: str) -> None:
    """With what to use instead."""
    with pytest.raises(ValueError, match=error):
        MorphogenesisConfig(**wrong)
