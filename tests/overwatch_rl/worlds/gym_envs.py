"""Gymnasium environments of every kind of space, whose numbers are known; importing this registers them.

Each counts its steps: the reward is the count, `limit` steps terminate it and its registration truncates it.
"""

import math
import os
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

HERE = "tests.overwatch_rl.worlds.gym_envs"


class Counting(gymnasium.Env[Any, Any]):
    """Shows its count and the last action; terminates when the action is 9."""

    observation_space: Any = spaces.Box(0.0, 100.0, (2,), np.float64)
    action_space: Any = spaces.Discrete(10)

    def __init__(self) -> None:
        self.count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin with a count that the seed decides."""
        super().reset(seed=seed, options=options)
        self.count = 0
        return self.seen(int(self.np_random.integers(50, 100)) if seed is not None else 0), {"of": object()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count."""
        self.count += 1
        return self.seen(action), float(self.count), self.ends(action), False, {"of": object()}

    def seen(self, last: Any) -> Any:
        """What it shows."""
        return np.array([self.count, np.sum(last)], dtype=np.float64)

    def ends(self, action: Any) -> bool:
        """Whether an action terminates it."""
        return bool(np.any(action == 9))


class Crashing(Counting):
    """Raises when the action is 5, dies when it is 6."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count, or not."""
        if action == 5:
            raise LookupError("the shop\nis closed")
        if action == 6:
            os._exit(3)
        return super().step(action)


class Picture(Counting):
    """Shows rows x columns x colours of bytes."""

    observation_space = spaces.Box(0, 255, (5, 6, 3), np.uint8)

    def seen(self, last: Any) -> Any:  # noqa: ARG002  # the others need it
        """All of one shade, but one corner."""
        picture = np.full((5, 6, 3), self.count, dtype=np.uint8)
        picture[4, 5, 2] = 200
        return picture


class Grid(Counting):
    """Shows a grid of three codes."""

    observation_space = spaces.Box(0, 2, (4, 5), np.int64)

    def seen(self, last: Any) -> Any:  # noqa: ARG002  # the others need it
        """A 2 in one corner."""
        grid = np.zeros((4, 5), dtype=np.int64)
        grid[0, 4] = 2
        return grid


class Numbered(Counting):
    """Shows one of five numbers from 3, and takes one of four from -1."""

    observation_space = spaces.Discrete(5, start=3)
    action_space = spaces.Discrete(4, start=-1)

    def seen(self, last: Any) -> Any:
        """The action, 4 higher."""
        return np.int64(4 + (0 if last > 2 else last))


class Several(Counting):
    """Takes one of three and one of four."""

    action_space = spaces.MultiDiscrete([3, 4])


class Steered(Counting):
    """Takes 1 x 2 numbers within bounds of their own."""

    action_space = spaces.Box(np.array([[-1.0, 0.0]]), np.array([[1.0, 5.0]]), (1, 2), np.float64)


class Hidden(Counting):
    """Shows what is no world's observation."""

    observation_space = spaces.Dict({"a": spaces.Discrete(2)})


class Early(Counting):
    """Truncates itself at its third step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count."""
        seen, reward, terminated, _, infos = super().step(action)
        return seen, reward, terminated, self.count == 3, infos


for kind in (Counting, Crashing, Picture, Grid, Numbered, Several, Steered, Hidden):
    gymnasium.register(f"Test{kind.__name__}-v0", f"{HERE}:{kind.__name__}", max_episode_steps=4)
gymnasium.register("TestEarly-v0", f"{HERE}:Early")


class Unpaid(gymnasium.Env[Any, Any]):
    """Episodes of four steps; every second has a step whose reward is no number."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward: Any) -> None:
        self._reward = reward
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Nothing to see."""
        super().reset(seed=seed, options=options)
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """1 a step, but for the second of every second episode."""
        self._steps += 1
        reward = self._reward if self._steps % 8 == 2 else 1.0
        return np.zeros(1, np.float32), reward, self._steps % 4 == 0, False, {}


for name, unpaid in (("Nan", math.nan), ("Inf", -math.inf), ("None", None)):
    gymnasium.register(f"Unpaid{name}-v0", partial(Unpaid, unpaid), disable_env_checker=True)
