"""The vector wrapper: what each autoreset mode counts, and whose returns are reported."""

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics, TransformReward

from overwatch.adapters.gymnasium import OverwatchWrapper
from overwatch.catalog import KL
from overwatch.events import ActionTaken, EnvCrashed, EpisodeEnded, Measured, RunFinished, RunStarted
from overwatch.sdk.frames import Update
from tests.overwatch.adapters.countdown import (
    EXPECTED,
    MODES,
    NEXT_STEP,
    RECORDERS,
    SAME_STEP,
    Countdown,
    check,
    episodes,
    run_through,
    two,
)
from tests.overwatch.adapters.receiving import local_run
from tests.overwatch.sdk.sink import Sink

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("recorder", RECORDERS)
def test_episodes_and_steps_are_those_of_the_mode(mode: str, recorder: str) -> None:
    """With and without RecordEpisodeStatistics the same episodes; the reset step counts nowhere."""
    check(mode, recorder)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("version", ["1.0.0", "1.1.1", "1.2.3", "1.3.0"])
def test_the_wrapper_works_with_each_gymnasium(tmp_path: Path, version: str) -> None:
    """The same checks under older versions; the newest one is what the other tests run with."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    installed = subprocess.run([*pip, f"gymnasium=={version}"], capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"no package registry has Gymnasium {version} here: {installed.stderr[-200:]}")
    checked = subprocess.run(
        [sys.executable, "-m", "tests.overwatch.adapters.countdown"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert checked.stdout.split() == [version, "3" if version == "1.0.0" else "9"], checked.stderr


@pytest.mark.parametrize("mode", MODES)
def test_what_passes_through_is_unchanged(mode: str) -> None:
    """The wrapped env and the bare one pay the same, step by step."""
    watched = OverwatchWrapper(two(mode), local_run()[0])
    bare = two(mode)

    assert run_through(watched, mode) == run_through(bare, mode)
    assert (watched.num_envs, watched.single_action_space) == (2, bare.single_action_space)
    watched.close()
    bare.close()


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_recorded_returns_win_over_shaped_rewards(mode: str) -> None:
    """Rewards scaled outside of the recorder are what a step pays; the return is the recorder's."""
    scaled = TransformReward(RecordEpisodeStatistics(two(mode)), lambda rewards: rewards / 100)
    run, received = local_run()
    watched = OverwatchWrapper(scaled, run)

    run_through(watched, mode)
    watched.close()

    assert episodes(received) == EXPECTED[mode]
    last = received.envs()[-1]
    assert last.values["overwatch.env.reward"].array().tolist() == [0.01, 0.1]


def test_an_episode_that_was_cut_by_a_reset_is_no_episode() -> None:
    """A reset in the middle forgets what was earned so far."""
    run, received = local_run()
    watched = OverwatchWrapper(two(NEXT_STEP), run)
    watched.reset()
    watched.step(np.zeros((2, 1), np.float32))

    run_through(watched, NEXT_STEP)
    watched.close()

    assert episodes(received) == EXPECTED[NEXT_STEP]


def test_a_run_of_its_own_starts_and_ends_with_the_envs(sink: Sink) -> None:
    """Named after the env, as wide as it, completed by `close()`."""
    watched = OverwatchWrapper(gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync"))
    watched.reset()
    watched.close()

    (started,) = sink.events(RunStarted)
    assert (started.task, started.n_envs) == ("CartPole-v1", 3)
    assert [event.outcome for event in sink.events(RunFinished)] == ["completed"]


def test_a_given_run_stays_the_trainers() -> None:
    """It receives the envs and the policy, and ends when its trainer states it."""
    run, received = local_run()
    watched = OverwatchWrapper(two(SAME_STEP), run, lane="cuda:1")
    run_through(watched, SAME_STEP)
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
    run, received = local_run()
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


def test_choices_are_words_and_other_actions_are_not_reported() -> None:
    """The newest action of each env beside its newest reward."""
    run, received = local_run()
    envs = OverwatchWrapper(gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"), run)
    envs.reset(seed=0)
    envs.step(np.array([1, 0]))
    continuous = OverwatchWrapper(two(SAME_STEP), run)
    run_through(continuous, SAME_STEP)

    assert [(taken.env_id.array().tolist(), taken.op.words()) for taken in received.of(ActionTaken)] == [
        ([0, 1], ["1", "0"])
    ]
    assert envs.failures == continuous.failures == 0


class Crashes(Countdown):
    """Raises at its second step, or dies there."""

    def __init__(self, *, dies: bool = False) -> None:
        super().__init__(5, 1.0)
        self._dies = dies

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step, then the error."""
        if self._left == 4 and self._dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._left == 4:
            raise ValueError("no such joint")
        return super().step(action)


def _end(envs: SyncVectorEnv | AsyncVectorEnv) -> None:
    """Close a vector one of whose envs is gone; Gymnasium warns of what was under way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs.close(terminate=True) if isinstance(envs, AsyncVectorEnv) else envs.close()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_the_env_that_raises_is_named(kind: type[SyncVectorEnv | AsyncVectorEnv]) -> None:
    """By its place in the vector, with its error, also where it lives in another process."""
    run, received = local_run()
    made = kind([lambda: Countdown(5, 1.0), Crashes, lambda: Countdown(5, 1.0)])
    envs = OverwatchWrapper(RecordEpisodeStatistics(made), run)
    envs.reset(seed=0)
    envs.step(np.zeros((3, 1), np.float32))
    with pytest.raises(ValueError, match="no such joint"):
        envs.step(np.zeros((3, 1), np.float32))

    assert [(crash.env_id, crash.error, crash.step) for crash in received.of(EnvCrashed)] == [
        (1, "ValueError: no such joint", 1)
    ]
    _end(made)


def test_the_env_whose_process_is_gone_is_named() -> None:
    """A killed worker, as memory that ran out leaves one."""
    run, received = local_run()
    made = AsyncVectorEnv([lambda: Countdown(5, 1.0), lambda: Crashes(dies=True)])
    envs = OverwatchWrapper(made, run)
    envs.reset(seed=0)
    envs.step(np.zeros((2, 1), np.float32))
    with pytest.raises((EOFError, ConnectionResetError)):
        envs.step(np.zeros((2, 1), np.float32))

    assert [crash.env_id for crash in received.of(EnvCrashed)] == [1]
    _end(made)


def test_a_step_that_returns_what_is_no_step_is_the_trainers_business() -> None:
    """Tensors, other shapes, fewer values: counted here, handed on as they are."""
    odd = two(SAME_STEP)
    envs = OverwatchWrapper(odd, local_run()[0])
    envs.reset()
    odd.step = lambda _: ("all", "of it")

    assert envs.step(np.zeros((2, 1))) == ("all", "of it")
    assert envs.failures == 1


NEVER_CLOSED = """
import gymnasium, numpy
from overwatch.adapters.gymnasium import OverwatchWrapper
envs = OverwatchWrapper(gymnasium.make_vec("CartPole-v1", num_envs=1, vectorization_mode="sync"))
envs.reset(seed=0)
for _ in range(30):
    envs.step(numpy.zeros(1, int))
raise ValueError("NaN in the policy")
"""


def test_what_waits_when_the_program_ends_is_sent(sink: Sink) -> None:
    """An exception in the learner leaves the envs as they are."""
    subprocess.run([sys.executable, "-c", NEVER_CLOSED], check=False, capture_output=True)
    ended = [length for one in sink.events(EpisodeEnded) for length in one.length.array().tolist()]
    measured = [one.index for one in sink.events(Measured) if "overwatch.env.reward" in one.values]

    assert len(ended) >= 2
    assert measured[-1] == 30 - len(ended)
    assert [event.outcome for event in sink.events(RunFinished)] == ["failed"]
