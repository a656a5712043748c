"""Envs whose episodes are known, stepped under each autoreset mode; runs under any Gymnasium since 1.0.

As a program it checks the wrapper under the Gymnasium that is first on the path, and prints its version.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics as RecordEach
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from overwatch.adapters.gymnasium import OverwatchWrapper
from overwatch.events import EpisodeEnded
from tests.overwatch.adapters.receiving import Received, local_run

TURNS = 9
NEXT_STEP, SAME_STEP, DISABLED = MODES = ("NextStep", "SameStep", "Disabled")
Reported = list[tuple[int, float, float]]
Each = Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]


class Countdown(gymnasium.Env[np.ndarray, np.ndarray]):
    """Ends after `length` steps, each of which pays `reward`; a step after the end is an error."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,))
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Box(0, 1, (1,))

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


def plain(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """No wrapper."""
    return env


def two(mode: str, each: Each = plain) -> Any:
    """Env 0 earns 2 × 1.0 an episode, env 1 earns 3 × 10.0."""
    made = [lambda: each(Countdown(2, 1.0)), lambda: each(Countdown(3, 10.0))]
    if not hasattr(gymnasium.vector, "AutoresetMode"):  # Gymnasium 1.0 resets on the next step
        assert mode == NEXT_STEP
        return SyncVectorEnv(made)
    return SyncVectorEnv(made, autoreset_mode=gymnasium.vector.AutoresetMode(mode))


def run_through(envs: VectorEnv[Any, Any, Any], mode: str) -> list[list[float]]:
    """Nine steps, ended envs reset by hand where nobody else does; rewards of each step."""
    rewards = []
    envs.reset(seed=0)
    for _ in range(TURNS):
        _, paid, terminated, truncated, _ = envs.step(np.zeros((2, 1), np.float32))
        ended = terminated | truncated
        rewards.append(paid.tolist())
        if mode == DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
    return rewards


def episodes(received: Received) -> Reported:
    """Env, return and length of each episode that was reported, in order."""
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


EXPECTED: dict[str, Reported] = {
    # Steps 0-1, 3-4, 6-7 of env 0 and 0-2, 4-6 of env 1; the steps between are resets.
    NEXT_STEP: [(0, 2, 2), (1, 30, 3), (0, 2, 2), (1, 30, 3), (0, 2, 2)],
    SAME_STEP: [
        (0, 2, 2), (1, 30, 3), (0, 2, 2), (0, 2, 2), (1, 30, 3), (0, 2, 2), (1, 30, 3),
    ],
}  # fmt: skip
EXPECTED[DISABLED] = EXPECTED[SAME_STEP]
STEPS = {NEXT_STEP: 6, SAME_STEP: 9, DISABLED: 9}
"""Whole steps an env at the end: of NEXT_STEP's 18 turns 5 are resets, (18 - 5) // 2."""


def check(mode: str, recorder: str) -> None:
    """With and without RecordEpisodeStatistics the same episodes; the reset step counts nowhere."""
    envs = two(mode, RecordEach if recorder == "each" else plain)
    run, received = local_run()
    watched = OverwatchWrapper(RecordEpisodeStatistics(envs) if recorder == "vector" else envs, run)

    run_through(watched, mode)
    watched.close()

    assert episodes(received) == EXPECTED[mode]
    last = received.envs()[-1]
    assert last.index == STEPS[mode]
    assert last.values["overwatch.env.reward"].array().tolist() == [1.0, 10.0]
    assert last.values["overwatch.env.step_time"].array().min() > 0
    assert watched.failures == 0


RECORDERS = ("none", "vector", "each")

if __name__ == "__main__":
    known = MODES if hasattr(gymnasium.vector, "AutoresetMode") else (NEXT_STEP,)
    for one in known:
        for other in RECORDERS:
            check(one, other)
    print(gymnasium.__version__, len(known) * len(RECORDERS))
