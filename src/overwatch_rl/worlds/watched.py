"""One env in a subprocess: how long its steps take, and a new one when it raises.

Owns what an env that crashed looks like to its vector: cut short, with the last observation, and the error in
the infos. The vector resets it in the same step, which is when the new one begins. The env's own infos are
dropped, so that they do not travel between processes. Must not know worlds, nor import torch.
"""

import time
import traceback
from functools import partial
from typing import Any, Final

STEP_TIME: Final = "overwatch_step_time"
CRASH: Final = "overwatch_crash"
TRACEBACK: Final = "overwatch_traceback"
_NEXT_STREAM: Final = 1_000_003
"""Apart from the seeds of all other envs, which follow one another."""


class Watched:
    """An env that is made again when it raises in a step; raises itself when a new one cannot be reset."""

    def __init__(self, name: str) -> None:
        import gymnasium

        self._make = partial(gymnasium.make, name)
        self._env: Any = self._make()
        self._seed: int | None = None
        self._crashes = 0
        self._is_new = True
        self._last: Any = None
        self._infos: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """Whatever else it is asked for is the env's own."""
        return getattr(self._env, name)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; its infos are those of the step before, which the vector would lose."""
        self._seed = self._seed if seed is None else seed
        if self._is_new and self._seed is not None:
            seed = self._seed + self._crashes * _NEXT_STREAM
        self._is_new = False
        self._last, _ = self._env.reset(seed=seed, options=options)
        infos, self._infos = self._infos, {}
        return self._last, infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the env, measured; one that raises is replaced by a new one."""
        began = time.perf_counter()
        try:
            self._last, reward, terminated, truncated, _ = self._env.step(action)
            crash = {}
        except Exception as error:  # noqa: BLE001  # whatever an env raises is its crash
            reward, terminated, truncated = 0.0, False, True
            words = " ".join(str(error).split())
            crash = {
                CRASH: f"{type(error).__name__}: {words}" if words else type(error).__name__,
                TRACEBACK: traceback.format_exc(),
            }
            self._renew()
        self._infos = {STEP_TIME: time.perf_counter() - began, **crash}
        return self._last, float(reward), bool(terminated), bool(truncated), self._infos

    def _renew(self) -> None:
        """Another env in its place, which draws as no env before it did."""
        self._env = self._make()
        self._crashes += 1
        self._is_new = True
