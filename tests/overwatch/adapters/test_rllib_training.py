"""What an algorithm does, over one with the members that RLlib documents."""

import contextlib
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from gymnasium import spaces

from overwatch.adapters.rllib_training import Training, trial_of
from overwatch.events import RunFinished, RunStarted
from overwatch.sdk import launch
from tests.overwatch.sdk.sink import Sink


class Group:
    """Env runners in processes of their own."""

    def __init__(self) -> None:
        self.joined: list[str] = []

    def foreach_env_runner(self, joining: Any, **_: object) -> None:
        """Which run they are asked to join."""
        self.joined.append(joining.keywords["run_id"])


class Algorithm:
    """One with one env runner."""

    trial_id = "default"

    def __init__(self, *, is_new_stack: bool = True) -> None:
        self.env_runner_group = Group()
        self.metrics = SimpleNamespace(log_time=lambda *_: contextlib.nullcontext())
        self.config = SimpleNamespace(
            env="CartPole-v1", num_env_runners=1, num_envs_per_env_runner=2,
            enable_env_runner_and_connector_v2=is_new_stack, to_dict=lambda: {"lr": 0.1},
        )  # fmt: skip
        if is_new_stack:
            self.get_module = lambda: SimpleNamespace(action_space=spaces.Discrete(2))

    def step(self) -> None:
        """Of Tune's trainables."""

    cleanup = evaluate = save_to_path = step


def test_env_runners_join_the_algorithms_run(sink: Sink) -> None:
    """By its id, when it begins and after a restart."""
    algorithm = Algorithm()
    training = Training(algorithm)
    assert training.run is not None
    training.restarted([1])
    assert algorithm.env_runner_group.joined == [training.run.run_id] * 2
    algorithm.cleanup()

    (started,) = sink.events(RunStarted)
    assert (started.n_envs, started.config["n_actions"], started.config["lr"]) == (2, "2", "0.1")


def test_env_runners_join_no_run_that_could_not_begin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each would begin one of its own; the reason is logged once."""

    def refused(_: object) -> None:
        raise OSError("no room for rings")

    monkeypatch.setattr(launch, "Link", refused)
    algorithm = Algorithm()
    with caplog.at_level(logging.WARNING):
        training = Training(algorithm)
        training.restarted([1])
    algorithm.cleanup()

    assert algorithm.env_runner_group.joined == []
    assert [one.message for one in caplog.records] == ["telemetry is off: OSError: no room for rings"]


def test_an_algorithm_of_the_old_api_stack_is_a_run(sink: Sink) -> None:
    """Without what its workers do, which have other hooks."""
    algorithm = Algorithm(is_new_stack=False)
    Training(algorithm)
    algorithm.cleanup()

    assert algorithm.env_runner_group.joined == []
    assert [event.outcome for event in sink.events(RunFinished)] == ["completed"]


@pytest.mark.parametrize(
    ("trial_id", "folder", "expected"),
    [
        ("default", None, None),
        ("default", "PPO_CartPole-v1_12d06_00000_0_lr=0.0010_2026-11-26_13-19-57", "12d06_00000"),
        ("default", "mine", "mine"),
        ("12d06_00001", "PPO_CartPole-v1_12d06_00001_1_lr=0.1", "12d06_00001"),
    ],
)
def test_a_trial_is_known_by_its_id_or_its_folder(trial_id: str, folder: str | None, expected: str) -> None:
    """Tune gives an algorithm its folder, and its id in some releases."""
    storage = None if folder is None else SimpleNamespace(trial_dir_name=folder)

    assert trial_of(SimpleNamespace(trial_id=trial_id, _storage=storage)) == expected
