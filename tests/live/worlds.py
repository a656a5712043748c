"""Gymnasium environments with a planted fault each, for `overwatch-rl train --world gym:tests.live.worlds:…`.

A bandit with a context of four: a policy learns it in some ten updates. From a step on the fault is there.
Importing this registers them.
"""

import os
import signal
import time
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

ARMS: Final = 4
LENGTH: Final = 8
"""Steps of an episode."""
PACE_S: Final = 0.001
"""Of a step: some five updates a second, since an update takes longer than this in any real training."""


class Bandit(gymnasium.Env[Any, Any]):
    """Pays 1 for the arm that the context names."""

    observation_space: Any = spaces.Box(0.0, 1.0, (ARMS,), np.float32)
    action_space: Any = spaces.Discrete(ARMS)

    def __init__(self, at: int = 0) -> None:
        self._at = at
        self._steps = 0
        self._shown = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Show a first context."""
        super().reset(seed=seed, options=options)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pay, and show the next context."""
        self._steps += 1
        time.sleep(PACE_S)
        reward = float(action == self._shown)
        if self._steps > self._at:
            reward = self.broken(reward)
        return self._seen(), reward, self._steps % LENGTH == 0, False, {}

    def broken(self, reward: float) -> float:
        """What a step pays once the fault is there; this one has none."""
        return reward

    def _seen(self) -> Any:
        self._shown = int(self.np_random.integers(ARMS))
        return np.eye(ARMS, dtype=np.float32)[self._shown]


class NoNumber(Bandit):
    """Pays what is no number."""

    def broken(self, reward: float) -> float:
        """Every reward is lost."""
        return reward * float("nan")


class Overflowing(Bandit):
    """Pays so much that no gradient is finite."""

    def broken(self, reward: float) -> float:
        """Near the largest number that a column holds."""
        return 3e38 * (reward + 0.1)


class Slow(Bandit):
    """Takes long for a step."""

    def broken(self, reward: float) -> float:
        """Wait."""
        time.sleep(0.02)
        return reward


class Raising(Bandit):
    """Raises in every twentieth step."""

    def broken(self, reward: float) -> float:
        """As of a simulator that is lost."""
        if self._steps % 20 == 0:
            raise LookupError("the shop is closed")
        return reward


class Failing(Bandit):
    """Raises in the process that trains."""

    def broken(self, reward: float) -> float:
        """End the run."""
        raise RuntimeError(f"the simulator gave up after it paid {reward:g}")


class Held(Bandit):
    """Stops the process that trains, as a debugger or a full pipe does."""

    is_over = False

    def broken(self, reward: float) -> float:
        """Once; until somebody continues it."""
        if not Held.is_over:
            Held.is_over = True
            os.kill(os.getpid(), signal.SIGSTOP)
        return reward


for kind, at in ((NoNumber, 1280), (Slow, 1280), (Raising, 0), (Failing, 320), (Held, 1280)):
    gymnasium.register(f"{kind.__name__}-v0", f"{__name__}:{kind.__name__}", kwargs={"at": at})
gymnasium.register("Overflowing-v0", f"{__name__}:{Overflowing.__name__}", kwargs={"at": 96})
gymnasium.register("SlowAtOnce-v0", f"{__name__}:{Slow.__name__}", kwargs={"at": 0})
