"""Worlds of the library, and what can be wrong with an env. All are Gymnasium envs.

Owns the small worlds that no package has in a size that learns within a minute; the innermost wrapper, which
counts the true return of every episode whatever is done around it; and the faults of an env.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces


class Grid(gymnasium.Env[np.ndarray, int]):
    """Eight by eight with walls: 1 at the goal, nothing on the way there."""

    SIZE = 8
    _MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2 * self.SIZE,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.spec = gymnasium.envs.registration.EnvSpec("SparseGrid-v0")
        self._walls = {(3, column) for column in range(6)} | {(5, column) for column in range(2, 8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._at, self._steps = (0, int(self.np_random.integers(3))), 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act once."""
        self._steps += 1
        if self._is_free(int(action)):
            move = self._MOVES[int(action)]
            self._at = (self._at[0] + move[0], self._at[1] + move[1])
        is_there = self._at == (self.SIZE - 1, self.SIZE - 1)
        return self._seen(), float(is_there), is_there, self._steps >= 100, {}

    def action_masks(self) -> np.ndarray:
        """What does not run into a wall."""
        return np.array([self._is_free(action) for action in range(4)])

    def _is_free(self, action: int) -> bool:
        row, column = (now + move for now, move in zip(self._at, self._MOVES[action], strict=True))
        return 0 <= row < self.SIZE and 0 <= column < self.SIZE and (row, column) not in self._walls

    def _seen(self) -> np.ndarray:
        seen = np.zeros((2, self.SIZE), np.float32)
        seen[0, self._at[0]] = seen[1, self._at[1]] = 1.0
        return seen.ravel()


class Bricks(gymnasium.Env[np.ndarray, int]):
    """A breakout of MinAtar's kind: ten by ten, planes for paddle, ball, its trail and bricks."""

    SIZE = 10

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (4 * self.SIZE**2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.spec = gymnasium.envs.registration.EnvSpec("MiniBricks-v0")
        self.sticky = 0.0
        """Chance that an action is the one before, which a curriculum may raise."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._bricks = np.zeros((self.SIZE, self.SIZE), np.float32)
        self._bricks[1:4] = 1.0
        self._paddle, self._steps, self._last = 4, 0, 1
        self._ball = np.array([3, 0 if self.np_random.random() < 0.5 else 9])
        self._way = np.array([1, 1 if self._ball[1] == 0 else -1])
        self._trail = self._ball.copy()
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act once."""
        self._steps += 1
        action = self._last if self.np_random.random() < self.sticky else int(action)
        self._last = action
        self._paddle = int(np.clip(self._paddle + action - 1, 0, self.SIZE - 1))
        self._trail, reward, is_lost = self._ball.copy(), 0.0, False
        row, column = self._ball + self._way
        if not 0 <= column < self.SIZE:
            self._way[1] *= -1
            column = self._ball[1] + self._way[1]
        if row < 0:
            self._way[0], row = 1, 1
        if self._bricks[min(row, 9), column]:
            self._bricks[row, column], reward = 0.0, 1.0
            self._way[0] *= -1
            row = self._ball[0]
        elif row >= self.SIZE - 1:
            is_lost = abs(column - self._paddle) > 1
            self._way[0], row = -1, self.SIZE - 2
        self._ball = np.array([row, column])
        if not self._bricks.any():
            self._bricks[1:4] = 1.0
        return self._seen(), reward, is_lost, self._steps >= 400, {}

    def action_masks(self) -> np.ndarray:
        """What does not run into the side."""
        return np.array([self._paddle > 0, True, self._paddle < self.SIZE - 1])

    def _seen(self) -> np.ndarray:
        seen = np.zeros((4, self.SIZE, self.SIZE), np.float32)
        seen[0, -1, self._paddle] = 1.0
        seen[1, self._ball[0], self._ball[1]] = seen[2, self._trail[0], self._trail[1]] = 1.0
        seen[3] = self._bricks
        return seen.ravel()


class Point(gymnasium.Env[np.ndarray, np.ndarray]):
    """A mass in the plane that is pushed to a goal: minus its distance at each of 60 steps."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.spec = gymnasium.envs.registration.EnvSpec("PointMass-v0")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._at, self._goal = self.np_random.uniform(-1, 1, 2), self.np_random.uniform(-1, 1, 2)
        self._speed, self._steps = np.zeros(2), 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act once."""
        self._steps += 1
        push = np.clip(action, -1, 1)
        self._speed = 0.9 * self._speed + 0.03 * push
        self._at = np.clip(self._at + self._speed, -2, 2)
        paid = -float(np.linalg.norm(self._at - self._goal)) - 0.01 * float(push @ push)
        return self._seen(), paid, False, self._steps >= 60, {}

    def _seen(self) -> np.ndarray:
        return np.concatenate([self._at, self._speed * 10, self._goal - self._at]).astype(np.float32)


def _gym(name: str, **settings: Any) -> Callable[[], gymnasium.Env[Any, Any]]:
    return lambda: gymnasium.make(name, **settings)


MAKERS: Final[dict[str, Callable[[], gymnasium.Env[Any, Any]]]] = {
    "cartpole": _gym("CartPole-v1"),
    "acrobot": _gym("Acrobot-v1"),
    "mountaincar": _gym("MountainCar-v0"),
    "pendulum": _gym("Pendulum-v1"),
    "lunarlander": _gym("LunarLander-v3"),
    "grid": Grid,
    "bricks": Bricks,
    "point": Point,
}


@dataclass(kw_only=True)
class Fault:
    """What is wrong with a training, and since when; shared by its envs, its loop and its observer."""

    of_env: str = ""
    """A row of `FAULTS`."""
    size: float = 0.5
    """0 to 1: how large, which each fault reads its own way."""
    envs: int = 1
    """Of how many envs: those with the lowest numbers."""
    is_on: bool = False
    episodes: list[tuple[float, float]] = field(default_factory=list)
    """Monotonic time and true return of each episode."""
    hardness: float = 0.0
    """Of a curriculum, 0 to 1."""


class Truth(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes what each episode truly earned, also of one that is reset before its end."""

    def __init__(self, env: gymnasium.Env[Any, Any], fault: Fault) -> None:
        super().__init__(env)
        self._fault, self._sum, self._steps = fault, 0.0, 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        if self._steps:
            self._fault.episodes.append((time.monotonic(), self._sum))
        self._sum, self._steps = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act once."""
        found = self.env.step(action)
        self._sum, self._steps = self._sum + float(found[1]), self._steps + 1
        return found


Stepped = tuple[Any, Any, bool, bool, dict[str, Any]]


class Faulty(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One env of a training, with its fault once that is on."""

    def __init__(self, env: gymnasium.Env[Any, Any], fault: Fault, number: int) -> None:
        super().__init__(env)
        self._fault, self._number = fault, number
        self._past: list[Any] = []
        self._change = FAULTS.get(fault.of_env)
        self._steps = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        seen, info = self.env.reset(**kwargs)
        self._past, self._steps = [seen], 0
        inner: Any = self.env.unwrapped
        if hasattr(inner, "sticky"):
            inner.sticky = 0.3 * self._fault.hardness
        elif hasattr(inner, "length") and hasattr(inner, "masspole"):
            inner.length = 0.5 + 0.5 * self._fault.hardness
            inner.polemass_length = inner.masspole * inner.length
        return seen, info

    def step(self, action: Any) -> Stepped:
        """Act once."""
        self._steps += 1
        is_on = self._fault.is_on and self._number < self._fault.envs and self._change is not None
        if (
            is_on
            and self._fault.of_env == "actions-swapped"
            and isinstance(self.action_space, spaces.Discrete)
        ):
            action = self.action_space.n - 1 - action
        elif is_on and self._fault.of_env == "actions-swapped":
            action = -np.asarray(action)
        found: Stepped = self.env.step(action)
        self._past = [*self._past[-16:], found[0]]
        return self._change(self, found) if is_on else found

    def _died(self, _: Stepped) -> Stepped:
        raise RuntimeError("the simulator has lost its connection")

    def _lagging(self, found: Stepped) -> Stepped:
        return (self._past[max(0, len(self._past) - 1 - self.lag)], *found[1:])

    @property
    def lag(self) -> int:
        """Steps by which what is seen is late."""
        return (1, 2, 4, 8)[int(self._fault.size * 3.999)]

    def _stuck(self, found: Stepped) -> Stepped:
        return self._past[0], 0.0, False, False, found[4]

    def _slow(self, found: Stepped) -> Stepped:
        time.sleep(0.01 + 0.04 * self._fault.size)
        return found


_Change = Callable[[Faulty, Stepped], Stepped]
FAULTS: Final[dict[str, _Change]] = {
    "reward-huge": lambda _, found: (found[0], found[1] * 1e6, *found[2:]),
    "reward-flipped": lambda _, found: (found[0], -found[1], *found[2:]),
    "reward-constant": lambda _, found: (found[0], 0.0, *found[2:]),
    "reward-nan": lambda _, found: (found[0], float("nan"), *found[2:]),
    "ends-as-cuts": lambda _, found: (found[0], found[1], False, found[2] or found[3], found[4]),
    "observation-late": Faulty._lagging,
    "observation-dead": lambda _, found: (np.zeros_like(found[0]), *found[1:]),
    "observation-scaled": lambda _, found: (found[0] * np.float32(1000), *found[1:]),
    "actions-swapped": lambda _, found: found,
    "resets-at-once": lambda _, found: (found[0], found[1], True, *found[3:]),
    "env-dies": Faulty._died,
    "env-stuck": Faulty._stuck,
    "env-slow": Faulty._slow,
}


def build(world: str, fault: Fault, number: int) -> gymnasium.Env[Any, Any]:
    """An env of a training."""
    return Faulty(Truth(MAKERS[world](), fault), fault, number)
