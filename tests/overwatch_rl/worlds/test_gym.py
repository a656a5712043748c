"""Any Gymnasium env keeps the contract of a world."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from overwatch.events import EnvCrashed
from overwatch_rl.sync_points import counts
from overwatch_rl.types import Box, Factored
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.gym import GymWorld
from tests.overwatch_rl.worlds.gym_envs import HERE


@contextmanager
def world(name: str, num_envs: int = 2, **settings: object) -> Iterator[GymWorld]:
    """A world of one of the test's own envs, ended afterwards."""
    made = make(f"gym:{HERE}:Test{name}-v0", WorldConfig(num_envs=num_envs), settings)
    assert isinstance(made, GymWorld)
    try:
        yield made
    finally:
        made.close()


def chosen(*actions: int) -> Tensor:
    """One action an env."""
    return torch.tensor(actions)[:, None]


def test_a_world_of_the_library_runs() -> None:
    """CartPole as named in the documents: specs, shapes, and the same numbers from the same seed."""
    made = make("gym:CartPole-v1", WorldConfig(num_envs=3))
    assert (made.spec.observation.shape, made.spec.horizon, made.spec.resumable) == ((4,), 500, False)
    first, again = made.reset(5).features, made.reset(5).features
    step = made.step(chosen(0, 1, 0))

    assert torch.equal(first, again)
    assert not torch.equal(first, made.reset(6).features)
    assert (step.observation.features.dtype, step.reward.tolist()) == (torch.float32, [1.0] * 3)


def test_the_final_observation_of_a_truncation_travels_beside_the_next_first() -> None:
    """At the registered limit the observation is of the new episode, everything else of the step."""
    with world("Counting") as env:
        env.reset(0)
        steps = [env.step(chosen(1, 2)) for _ in range(5)]

    assert [step.reward.tolist() for step in steps] == [[1, 1], [2, 2], [3, 3], [4, 4], [1, 1]]
    assert [step.truncated.tolist()[0] for step in steps] == [False, False, False, True, False]
    assert steps[3].final is not None
    assert steps[3].final.tolist() == [[4, 1], [4, 2]]
    assert steps[3].observation.features.tolist() == [[0, 0], [0, 0]]
    assert steps[2].final.tolist() == steps[2].observation.features.tolist()  # type: ignore[union-attr]
    assert [step.columns["metric"].tolist()[0] for step in steps] == [1, 3, 6, 10, 1]


def test_an_end_at_the_limit_is_no_truncation() -> None:
    """Terminated and truncated at once is terminated."""
    with world("Counting") as env:
        env.reset(0)
        for _ in range(3):
            env.step(chosen(1, 1))
        step = env.step(chosen(9, 1))

    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True, False], [False, True])


def test_a_picture_has_its_channels_first() -> None:
    """Bytes stay bytes; rows x columns x colours become what a network takes."""
    with world("Picture") as env:
        features = env.reset(0).features
        step = env.step(chosen(1, 1))

    assert (env.spec.observation.shape, features.dtype) == ((3, 5, 6), torch.uint8)
    assert int(features[0, 2, 4, 5]) == 200
    assert step.observation.features[1, 0].tolist() == [[1] * 6] * 5


def test_a_grid_of_few_numbers_is_a_grid_of_codes() -> None:
    """Its table of channels is one-hot."""
    with world("Grid") as env:
        features = env.reset(0).features

    assert (env.spec.observation.shape, features.dtype) == ((4, 5), torch.uint8)
    assert env.spec.observation.codes == ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    assert env.spec.observation.glyphs == "012"
    assert int(features[1, 0, 4]) == 2


def test_numbers_that_do_not_begin_at_0_are_moved() -> None:
    """A discrete observation is one-hot from its own start, and an action is sent from its own."""
    with world("Numbered") as env:
        env.reset(0)
        step = env.step(chosen(0, 3))

    assert isinstance(env.spec.action, Factored)
    assert env.spec.action.heads[0].labels == ("-1", "0", "1", "2")
    assert step.observation.features.argmax(dim=1).tolist() == [0, 3]
    assert step.observation.features.sum(dim=1).tolist() == [1, 1]


def test_several_choices_are_heads() -> None:
    """Each of them used by every choice of the first."""
    with world("Several") as env:
        env.reset(0)
        step = env.step(torch.tensor([[2, 3], [0, 1]]))

    assert isinstance(env.spec.action, Factored)
    assert [len(head.labels) for head in env.spec.action.heads] == [3, 4]
    assert all(all(row) for row in env.spec.action.uses)
    assert step.observation.features[:, 1].tolist() == [5, 1]


def test_continuous_actions_are_clamped() -> None:
    """To the bounds of each dimension, whatever the shape they are sent in."""
    with world("Steered") as env:
        env.reset(0)
        step = env.step(torch.tensor([[-7.0, 9.0], [0.5, -1.0]]))

    assert env.spec.action == Box(low=(-1.0, 0.0), high=(1.0, 5.0))
    assert step.observation.features[:, 1].tolist() == [4.0, 0.5]


def test_where_envs_and_policy_are_on_the_host_nothing_is_transferred() -> None:
    """So neither point is passed."""
    with world("Counting") as env:
        env.reset(0)
        before = counts["gym.actions"], counts["gym.results"]
        env.step(chosen(0, 0))

    assert (counts["gym.actions"], counts["gym.results"]) == before


def test_what_is_returned_is_not_written_again() -> None:
    """A step that is kept stays as it was."""
    with world("Counting") as env:
        env.reset(0)
        step = env.step(chosen(1, 1))
        kept = step.observation.features.clone(), step.reward.clone()
        env.step(chosen(3, 3))

    assert torch.equal(step.observation.features, kept[0])
    assert torch.equal(step.reward, kept[1])


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, "has no limit of steps, but env 0 was truncated; set horizon"),
        ({"horizon": 5}, "env 0 was truncated 3 steps after its last truncation, but horizon is 5"),
    ],
)
def test_a_truncation_that_there_is_no_room_for_is_refused(settings: dict[str, object], error: str) -> None:
    """An env that cuts itself short needs its least distance named."""
    with world("Early", **settings) as env:
        env.reset(0)
        rest = (env.step(chosen(1, 1)) for _ in range(6))
        with pytest.raises(ValueError, match=error):
            list(rest)
    with world("Early", horizon=3) as env:
        env.reset(0)
        assert [bool(env.step(chosen(1, 1)).truncated[0]) for _ in range(6)] == [False, False, True] * 2


@pytest.mark.parametrize(
    ("name", "settings", "error"),
    [
        ("gym", {}, "gym needs the name of an env; write e.g. gym:CartPole-v1"),
        ("gym:CartPole", {}, "world gym:CartPole names no version; write gym:CartPole-v1"),
        (f"gym:{HERE}:Test", {}, f"world gym:{HERE}:Test cannot be made: .*Test"),
        (
            "gym::CartPole-v1",
            {},
            "world gym::CartPole-v1 names no module before the colon; write gym:CartPole",
        ),
        ("gym:Cart Pole", {}, "world gym:Cart Pole cannot be made: Malformed environment ID"),
        ("CartPole-v1", {}, r"world 'CartPole-v1' does not exist; .*; did you mean gym:CartPole-v1\?"),
        ("godhart:small", {}, r"world 'godhart:small' does not exist; .*; did you mean goodhart\?"),
        ("gym:NoSuchThing-v9", {}, "world gym:NoSuchThing-v9 cannot be made: .*NoSuchThing"),
        (
            "gym:no_such_module:Thing-v0",
            {},
            "world gym:no_such_module:Thing-v0 cannot be made: .*no_such_module",
        ),
        ("gym:CartPole-v1", {"workers": "threads"}, "workers is 'threads'; use one of sync, subprocess"),
        ("gym:CartPole-v1", {"horizon": -1}, "horizon is -1; use 0 or more"),
        (f"gym:{HERE}:TestHidden-v0", {}, "TestHidden-v0 shows Dict.*; wrap it to a Box or Discrete"),
    ],
)
def test_what_is_no_world_is_refused(name: str, settings: dict[str, object], error: str) -> None:
    """The error names the env or the setting, and the fix."""
    with pytest.raises(ValueError, match=error):
        make(name, WorldConfig(), settings)


def test_without_gymnasium_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium is an extra."""
    monkeypatch.setattr("overwatch_rl.worlds.gym.importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r'needs gymnasium; pip install "esper-overwatch\[rl,gym\]"'):
        make("gym:CartPole-v1", WorldConfig())


def test_a_saved_state_is_refused() -> None:
    """It saves none, and takes none."""
    with world("Counting") as env:
        assert env.state_dict() == {}
        with pytest.raises(ValueError, match="cannot be resumed, but was given 1 tensors"):
            env.load_state_dict({"a": torch.zeros(1)})


def test_an_env_that_raises_in_this_process_ends_the_run_with_its_own_error() -> None:
    """Nothing is hidden where nothing was isolated."""
    with world("Crashing") as env:
        env.reset(0)
        with pytest.raises(LookupError, match="the shop"):
            env.step(chosen(5, 1))


def test_an_env_that_crashes_in_a_subprocess_is_made_anew_and_one_that_dies_is_named() -> None:
    """A crash is a fact and a truncation, measured like any step; a dead process cannot be replaced."""
    with world("Crashing", workers="subprocess") as env:
        seen = env.reset(0)
        steps = [env.step(chosen(*actions)) for actions in ((1, 1), (1, 5), (1, 5), (1, 1), (1, 1))]
        with pytest.raises(RuntimeError, match=r"subprocess of env 1 of gym:.* died with exit code 3"):
            env.step(chosen(1, 6))

    (crash,) = steps[1].facts
    assert isinstance(crash, EnvCrashed)
    assert (crash.env_id, crash.error, crash.step) == (1, "LookupError: the shop is closed", 2)
    assert "raise LookupError" in (crash.traceback or "")
    assert (steps[1].truncated.tolist(), steps[1].terminated.tolist()) == ([False, True], [False, False])
    assert steps[1].final is not None
    assert steps[1].final[1].tolist() == [1, 1]
    assert steps[1].reward.tolist() == [2, 0]
    # The next crash comes sooner than the horizon has room for.
    assert (steps[2].truncated.tolist(), steps[2].terminated.tolist()) == ([False, False], [False, True])
    assert [len(step.facts) for step in steps] == [0, 1, 1, 0, 0]
    assert steps[4].reward.tolist() == [1, 2]
    assert all(bool((step.columns["step_time"] > 0).all()) for step in steps)
    assert steps[1].observation.features[1, 0] == 0
    assert seen.features.shape == (2, 2)
