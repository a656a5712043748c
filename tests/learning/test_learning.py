"""What is learned holds against SB3 and parts the modes: of the trainings that were kept, and of new ones.

The bars are those of `results.failures`: returns beside those of SB3, food shares, directions, and which runs
the tower names. What was kept must have been made with the recipes of today.
"""

from dataclasses import replace
from math import nan

import msgspec
import pytest
import torch

from overwatch_rl.config import DQN_PRESET, PRESETS
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.learning.page import files
from tests.learning.plan import AGAIN, LAST, SEEDS, UPDATES, jobs, trained
from tests.learning.results import Difference, Results, failures, lost_a_tenth, made, read, recipes
from tests.learning.sb3 import Wrapped, dqn_learner, learner
from tests.learning.training import CARTPOLE, CARTPOLE_DQN, GOODHART, Job, Training, train

MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def kept() -> Results:
    """The trainings of the docs."""
    return read()


def made_up(job: Job) -> Training:
    """A training as it should be: the seed is all that its returns scatter by."""
    level = 10.0 + 0.1 * (job.seed % 5)
    share = 0.2 if job.mode == "proxy" else 0.9
    rows = {"return": [level] * UPDATES, "true_return": [level] * UPDATES, "food_share": [share] * UPDATES}
    return Training(job, rows, 40 if job.mode == "proxy" else None, 1.0)


@pytest.fixture(scope="module")
def good() -> Results:
    """Every training of the plan, none behind."""
    return made([made_up(job) for job in jobs()])


def test_every_bar_holds_of_what_was_kept(kept: Results) -> None:
    """Nothing that is not of the plan, all of the modes, and no bar missed."""
    found = [one.job for one in kept.trainings]
    assert [job for job in jobs() if job in found] == found
    assert len(kept.trainings) >= 15
    assert failures(kept) == []


def test_trainings_as_they_should_be_pass(good: Results) -> None:
    """So that what fails below fails by what was spoilt."""
    assert failures(good) == []


def test_what_was_kept_is_of_the_recipes_of_today(kept: Results) -> None:
    """Where a preset has changed since, `make learning` is due."""
    assert kept.recipes == recipes()


def test_the_page_is_what_the_trainings_came_to(kept: Results) -> None:
    """Text and pictures; small enough for the repository."""
    for path, content in files(kept).items():
        assert path.read_text(encoding="utf-8") == content, f"{path} is stale; run `make learning DRAW=1`"
        assert len(content) < MOST_BYTES


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        ({"who": "ours", "world": GOODHART, "mode": "ground_truth"}, "beside SB3"),
        ({"who": "ours", "world": CARTPOLE, "mode": ""}, "beside SB3"),
        ({"who": "ours", "world": CARTPOLE_DQN, "mode": ""}, "beside SB3"),
        ({"who": "cluster", "world": GOODHART, "mode": "ground_truth"}, "beside one process"),
        ({"who": "cluster", "world": CARTPOLE, "mode": ""}, "beside one process"),
    ],
)
def test_a_return_that_is_behind_fails(good: Results, spoilt: dict[str, str], words: str) -> None:
    """A tenth less in each seed is seen."""
    found = [
        msgspec.structs.replace(
            one, rows={name: [None if v is None else 0.9 * v for v in row] for name, row in one.rows.items()}
        )
        if {name: getattr(one.job, name) for name in spoilt} == spoilt
        else one
        for one in good.trainings
    ]

    assert any(words in line for line in failures(msgspec.structs.replace(good, trainings=found)))


def test_a_mode_that_is_named_wrongly_fails(good: Results) -> None:
    """One seed of the truth named, one of the proxy not, and food shares that do not part."""

    def with_(mode: str, seed: int, **changed: object) -> list[str]:
        found = [
            msgspec.structs.replace(one, **changed)
            if (one.job.mode, one.job.seed, one.job.who) == (mode, seed, "ours")
            else one
            for one in good.trainings
        ]
        return failures(msgspec.structs.replace(good, trainings=found))

    proxy = next(one for one in good.trainings if one.job.mode == "proxy")
    assert with_("ground_truth", 2, named=50)
    assert with_("proxy_jammed", 2, named=50)
    assert with_("proxy", 4, named=None)
    assert with_("ground_truth", 0, towards_food=0.7)
    assert with_("proxy", 0, rows=proxy.rows | {"food_share": [0.8] * UPDATES})


def test_a_difference_is_welchs() -> None:
    """By hand: means 2 and 5, variances 1 and 4 over three each."""
    apart = Difference([1.0, 2.0, 3.0], [3.0, 5.0, 7.0])

    assert apart.size == pytest.approx(-3.0)
    assert apart.error == pytest.approx((1 / 3 + 4 / 3) ** 0.5)


def test_a_tenth_is_of_all_that_is_lost() -> None:
    """From 0 to -100 by 1 an update from update 11 on; a mean of five is 10 down at the 22nd."""
    fell = Training(Job("ours", GOODHART, "proxy", 0, 110), {"true_return": _ramp()}, None, None)
    level = Training(fell.job, {"true_return": [1.0] * 110}, None, None)

    assert lost_a_tenth(fell) == 22
    assert lost_a_tenth(level) is None


def _ramp() -> list[float | None]:
    return [0.0 if update < 11 else 10.0 - update for update in range(1, 111)]


def test_sb3_gets_the_worlds_own_numbers() -> None:
    """Two rollouts of the recipe: rows by our names, a final observation where an episode was cut short."""
    world = make(GOODHART, WorldConfig(num_envs=4), {"mode": "proxy", "horizon": 5})
    env = Wrapped(world, 4, seed=0, steps=8)
    seen = env.reset()
    for _ in range(5):
        env.step_async(env.action_space.sample() * torch.ones(4, dtype=torch.int64).numpy())
        seen, _, ended, infos = env.step_wait()

    assert ended.tolist() == [True] * 4
    assert all(info["TimeLimit.truncated"] for info in infos)
    assert any((info["terminal_observation"] != now).any() for info, now in zip(infos, seen, strict=True))
    recipe = replace(PRESETS[GOODHART].learned, minibatches=2)
    model = learner(env, world, recipe, seed=0, steps=8)
    model.learn(2 * 4 * 8)
    assert len(env.updates) == 2
    assert {"return", "true_return", "proxy_return", "food_share"} <= set(env.updates[0])
    assert env.updates[1]["true_return"] not in (nan, 0.0)
    assert model.policy.features_extractor.features_dim == 6 * 11 * 11


def test_a_training_is_kept_by_update() -> None:
    """Ours and SB3's, two updates each; numbers of the same names."""
    found = [train(Job(who, GOODHART, "ground_truth", 0, 2)) for who in ("ours", "SB3")]

    assert [list(one.rows) for one in found] == [["return", "proxy_return", "true_return", "food_share"]] * 2
    assert all(len(row) == 2 for one in found for row in one.rows.values())
    assert (found[0].towards_food is None, found[1].towards_food) == (False, None)
    assert found[0].mean("food_share", LAST) > 0


def test_sb3s_dqn_has_the_recipe_of_ours() -> None:
    """What decides its numbers is the preset's; the target network is renewed as often as ours."""
    recipe = replace(DQN_PRESET.learned, first_at=8, batch=4, gradient_steps=2, target_every=2)
    world = make("gym:CartPole-v1", WorldConfig(num_envs=2), {})
    env = Wrapped(world, 2, seed=0, steps=8)
    model = dqn_learner(env, world, recipe, seed=0, steps=8, total=1600)
    before = [one.clone() for one in model.q_net_target.parameters()]
    model.learn(64)
    assert model._n_updates == 2 * 4
    assert (model.gamma, model.batch_size, model.exploration_final_eps) == (0.99, 4, 0.04)
    assert model.exploration_fraction * 1600 == recipe.epsilon_steps
    assert any(
        (one != other).any() for one, other in zip(model.q_net_target.parameters(), before, strict=True)
    )
    widths = [layer.out_features for layer in model.q_net.q_net if hasattr(layer, "out_features")]
    assert widths == [recipe.hidden, recipe.hidden, 2]
    assert len(env.updates) == 4


def test_seeds_are_apart() -> None:
    """No seed stands on both sides of the A/A."""
    assert not set(SEEDS) & set(AGAIN)
    assert len(SEEDS) == len(AGAIN) == 5


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_every_bar_holds_of_new_trainings() -> None:
    """All of the plan, trained here."""
    assert failures(made(list(trained(jobs())))) == []
