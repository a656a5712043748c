"""The vector wrapper: what each autoreset mode counts, and whose returns are told."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics as RecordEach
from gymnasium.wrappers.vector import RecordEpisodeStatistics, TransformReward

from overwatch.adapters.gymnasium import OverwatchWrapper
from overwatch.catalog import KL
from overwatch.events import EpisodeEnded, RunFinished, RunStarted
from overwatch.sdk.frames import Update
from tests.overwatch.adapters.hearing import Received, heard_run
from tests.overwatch.sdk.sink import Sink

TURNS = 9
Reported = list[tuple[int, float, float]]


class Countdown(gymnasium.Env[np.ndarray, np.ndarray]):
    """Ends after `length` steps, each of which pays `reward`; a step after the end is an error."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,))
    action_space = gymnasium.spaces.Box(0, 1, (1,))

    def __init__(self, length: int, reward: float) -> None:
        self._length, self._reward = length, reward
        self._left = 0

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 Gymnasium's signature
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin again."""
        super().reset(seed=seed)
        self._left = self._length
        return np.array([self._left], np.float32), {}

    def step(self, _: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step down."""
        assert self._left > 0, "a step after the end"
        self._left -= 1
        is_end = self._left == 0
        return np.array([self._left], np.float32), self._reward, is_end, False, {}


def _two(mode: AutoresetMode, each: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]) -> Any:
    """Env 0 earns 2 × 1.0 an episode, env 1 earns 3 × 10.0."""
    return SyncVectorEnv(
        [lambda: each(Countdown(2, 1.0)), lambda: each(Countdown(3, 10.0))], autoreset_mode=mode
    )


def _run_through(envs: VectorEnv[Any, Any, Any], mode: AutoresetMode) -> list[list[float]]:
    """Nine steps, ended envs reset by hand where nobody else does; rewards of each step."""
    rewards = []
    envs.reset(seed=0)
    for _ in range(TURNS):
        _, paid, terminated, truncated, _ = envs.step(np.zeros((2, 1), np.float32))
        ended = terminated | truncated
        rewards.append(paid.tolist())
        if mode is AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
    return rewards


def _plain(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return env


def _episodes(received: Received) -> Reported:
    return [
        row
        for event in received.of(EpisodeEnded)
        for row in zip(
            event.env_id.array().tolist(),
            event.episode_return.array().tolist(),
            event.length.array().tolist(),
            strict=True,
        )
    ]


EXPECTED: dict[AutoresetMode, Reported] = {
    # Steps 0-1, 3-4, 6-7 of env 0 and 0-2, 4-6 of env 1; the steps between are resets.
    AutoresetMode.NEXT_STEP: [(0, 2, 2), (1, 30, 3), (0, 2, 2), (1, 30, 3), (0, 2, 2)],
    AutoresetMode.SAME_STEP: [
        (0, 2, 2), (1, 30, 3), (0, 2, 2), (0, 2, 2), (1, 30, 3), (0, 2, 2), (1, 30, 3),
    ],
}  # fmt: skip
EXPECTED[AutoresetMode.DISABLED] = EXPECTED[AutoresetMode.SAME_STEP]
STEPS = {AutoresetMode.NEXT_STEP: 6, AutoresetMode.SAME_STEP: 9, AutoresetMode.DISABLED: 9}
"""Whole steps an env at the end: of NEXT_STEP's 18 turns 5 are resets, (18 - 5) // 2."""


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("recorder", ["none", "vector", "each"])
def test_episodes_and_steps_are_those_of_the_mode(mode: AutoresetMode, recorder: str) -> None:
    """With and without RecordEpisodeStatistics the same episodes; the reset step counts nowhere."""
    envs = _two(mode, RecordEach if recorder == "each" else _plain)
    run, received = heard_run()
    watched = OverwatchWrapper(RecordEpisodeStatistics(envs) if recorder == "vector" else envs, run)

    _run_through(watched, mode)
    watched.close()

    assert _episodes(received) == EXPECTED[mode]
    last = received.envs()[-1]
    assert last.index == STEPS[mode]
    assert last.values["overwatch.env.reward"].array().tolist() == [1.0, 10.0]
    assert last.values["overwatch.env.step_time"].array().min() > 0
    assert watched.failures == 0


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_what_passes_through_is_unchanged(mode: AutoresetMode) -> None:
    """The wrapped env and the bare one pay the same, step by step."""
    watched = OverwatchWrapper(_two(mode, _plain), heard_run()[0])
    bare = _two(mode, _plain)

    assert _run_through(watched, mode) == _run_through(bare, mode)
    assert (watched.num_envs, watched.single_action_space) == (2, bare.single_action_space)
    watched.close()
    bare.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_recorded_returns_win_over_shaped_rewards(mode: AutoresetMode) -> None:
    """Rewards scaled outside of the recorder are what a step pays; the return is the recorder's."""
    scaled = TransformReward(RecordEpisodeStatistics(_two(mode, _plain)), lambda rewards: rewards / 100)
    run, received = heard_run()
    watched = OverwatchWrapper(scaled, run)

    _run_through(watched, mode)
    watched.close()

    assert _episodes(received) == EXPECTED[mode]
    last = received.envs()[-1]
    assert last.values["overwatch.env.reward"].array().tolist() == [0.01, 0.1]


def test_an_episode_that_was_cut_by_a_reset_is_no_episode() -> None:
    """A reset in the middle forgets what was earned so far."""
    run, received = heard_run()
    watched = OverwatchWrapper(_two(AutoresetMode.NEXT_STEP, _plain), run)
    watched.reset()
    watched.step(np.zeros((2, 1), np.float32))

    _run_through(watched, AutoresetMode.NEXT_STEP)
    watched.close()

    assert _episodes(received) == EXPECTED[AutoresetMode.NEXT_STEP]


def test_a_run_of_its_own_starts_and_ends_with_the_envs(sink: Sink) -> None:
    """Named after the env, as wide as it, completed by `close()`."""
    watched = OverwatchWrapper(gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync"))
    watched.reset()
    watched.close()

    (started,) = sink.events(RunStarted)
    assert (started.task, started.n_envs) == ("CartPole-v1", 3)
    assert [event.outcome for event in sink.events(RunFinished)] == ["completed"]


def test_a_given_run_stays_the_trainers() -> None:
    """It is told of the envs and of the policy, and ends when its trainer says so."""
    run, received = heard_run()
    watched = OverwatchWrapper(_two(AutoresetMode.SAME_STEP, _plain), run, lane="cuda:1")
    _run_through(watched, AutoresetMode.SAME_STEP)
    watched.close()
    assert watched.run is run

    run.update(kl_divergence=0.01)

    assert [update.values for update in received.of(Update)] == [{KL.name: 0.01}]
    assert received.envs()[0].values["lane"].words() == ["cuda:1", "cuda:1"]
    assert not received.of(RunFinished)


class Broken(Countdown):
    """Raises at a step, until it is mended."""

    error: BaseException | None = None

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step, or the error."""
        if self.error is not None:
            raise self.error
        return super().step(action)


@pytest.mark.parametrize(
    ("error", "is_mended", "ending"),
    [
        (ValueError("no such joint"), False, ("failed", "ValueError: no such joint")),
        (KeyboardInterrupt(), False, ("interrupted", "KeyboardInterrupt")),
        (ValueError("no such joint"), True, ("completed", None)),
    ],
)
def test_a_run_of_its_own_ends_as_its_envs_did(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, ending: tuple[str, str | None], *, is_mended: bool
) -> None:
    """An exception of the envs that the loop catches is the end, unless they go on."""
    run, received = heard_run()
    monkeypatch.setattr("overwatch.adapters.gymnasium.sdk.start", lambda **_: run)
    env = Broken(5, 1.0)
    envs = OverwatchWrapper(SyncVectorEnv([lambda: env]))
    envs.reset()
    env.error = error
    with pytest.raises(type(error)):
        envs.step(np.zeros((1, 1)))
    if is_mended:
        env.error = None
        envs.step(np.zeros((1, 1)))
    envs.close()
    assert [(event.outcome, event.reason) for event in received.of(RunFinished)] == [ending]
