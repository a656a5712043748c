"""What an env runner's envs do, over a runner with the members that RLlib documents."""

from typing import Any

import numpy as np
import pytest

from overwatch.adapters.rllib_envs import Envs, attach
from overwatch.events import ActionTaken, EnvCrashed, EpisodeEnded, LogLine
from tests.overwatch.adapters.receiving import Received, local_run


class Vector:
    """The envs of a runner."""

    def step(self, actions: object) -> object:
        """Step all of them, or break."""
        if actions is None:
            raise ValueError("the env broke")
        return actions


class Runner:
    """An env runner of two envs."""

    def __init__(self, callbacks: list[Any], num_envs: int = 2) -> None:
        self.num_envs, self.worker_index = num_envs, 3
        self.env, self._callbacks = Vector(), callbacks


class Episode:
    """A part of an episode of one agent."""

    def __init__(self, rewards: list[Any], action: object = 1) -> None:
        self._rewards, self._action = rewards, action

    def get_rewards(self, _: int) -> Any:
        """The newest reward."""
        return self._rewards[-1]

    def get_actions(self, _: int) -> Any:
        """The newest action."""
        return self._action

    def get_return(self) -> float:
        """The sum of this part's rewards."""
        return float(sum(self._rewards))

    def __len__(self) -> int:
        return len(self._rewards)


class Callback:
    """Of the runner's callbacks the one that reports."""

    envs: Envs

    def report_envs(self, envs: Envs) -> None:
        """What the runner's envs do goes there."""
        self.envs = envs


def _attached(num_envs: int = 2) -> tuple[Envs, Runner, Received]:
    run, received = local_run(num_envs)
    callback = Callback()
    runner = Runner([object(), callback], num_envs)
    attach(runner, run)
    return callback.envs, runner, received


def test_a_turn_of_all_envs_is_one_report() -> None:
    """Rewards and last actions; the step time is that of the vector."""
    envs, runner, received = _attached()
    assert runner.env.step([0, 1]) == [0, 1]
    envs.step(0, Episode([1.0], np.int64(4)))
    envs.step(1, Episode([2.0], 0))
    envs.sampled()

    assert received.envs()[-1].values["overwatch.env.reward"].array().tolist() == [1.0, 2.0]
    assert received.envs()[-1].values["overwatch.env.step_time"].array().min() > 0
    assert received.envs()[-1].index is None  # the algorithm counts steps
    assert received.of(ActionTaken)[0].op.words() == ["4", "0"]


def test_an_env_that_only_resets_takes_no_step() -> None:
    """RLlib calls no step for it; its reward stays as it was."""
    envs, runner, received = _attached()
    for rewards in ([1.0, 2.0], [3.0, None], [5.0, 6.0]):
        runner.env.step([0, 1])
        for index, reward in enumerate(rewards):
            if reward is not None:
                envs.step(index, Episode([reward]))
    envs.sampled()

    assert received.envs()[-1].values["overwatch.env.reward"].array().tolist() == [5.0, 6.0]


def test_an_episode_is_the_sum_of_its_parts() -> None:
    """RLlib cuts an episode at each sample."""
    envs, _, received = _attached()
    envs.ended(1, [Episode([2.0, 3.0]), Episode([1.0])])
    ended = received.of(EpisodeEnded)[0]

    assert ended.env_id.array().tolist() == [1]
    assert (ended.episode_return.array().tolist(), ended.length.array().tolist()) == ([6.0], [3.0])


def test_several_agents_share_their_envs_reward() -> None:
    """The sum over those that were paid; their actions are several and none is shown."""
    envs, runner, received = _attached()
    runner.env.step([0, 1])
    envs.step(0, Episode([{"a": 1.0, "b": 2.0}], {"a": 0, "b": 1}))
    envs.sampled()

    assert received.envs()[-1].values["overwatch.env.reward"].array()[0] == 3.0
    assert received.of(ActionTaken) == []


@pytest.mark.parametrize("num_envs", [1, 2])
def test_an_env_that_raises_is_a_crash_where_it_is_known_which(num_envs: int) -> None:
    """Of several in one vector it is a line of log; RLlib gets its exception either way."""
    _, runner, received = _attached(num_envs)
    with pytest.raises(ValueError, match="broke"):
        runner.env.step(None)

    crashes, lines = received.of(EnvCrashed), received.of(LogLine)
    assert [event.error for event in crashes] == ["ValueError: the env broke"] * (num_envs == 1)
    assert [event.message for event in lines] == ["an env of runner 3 failed: ValueError: the env broke"] * (
        num_envs == 2
    )
