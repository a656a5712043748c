"""The border between a foreign training loop and its telemetry: what its envs did; errors are kept out.

Rules: numbers are sent at most ten times a second, the newest reward and the mean turn since the last time;
a reward that is not finite is sent at once. Finished episodes are facts and all sent. Every transition
counts, a reset does not. An error is counted and logged once. Must not know which library the envs come from.
"""

import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from overwatch.sdk import Run

log: Final = logging.getLogger("overwatch.adapters")

INTERVAL_S: Final = 0.1

Rewards = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
P = ParamSpec("P")
B = TypeVar("B", bound="Bordered")


class Bordered:
    """Something with methods that a training loop calls."""

    failures: int = 0
    """Calls that went wrong; the first one is logged."""


def kept_out(method: Callable[Concatenate[B, P], None]) -> Callable[Concatenate[B, P], None]:
    """A method whose errors never reach its caller."""

    @functools.wraps(method)
    def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 the border: counted, and training goes on
            self.failures += 1
            if self.failures == 1:
                where = f"{type(self).__name__}.{method.__name__}"
                log.warning("%s: %s: %s; counted, not logged again", where, type(error).__name__, error)

    return call


class EnvReporter:
    """Reports what `num_envs` envs did, with the ids 0, 1, 2, ..."""

    def __init__(self, run: Run, num_envs: int, lane: str | None = None) -> None:
        self._run = run
        self._lane = lane
        self._ids = np.arange(num_envs)
        self._rewards = np.zeros(num_envs)
        self._transitions = 0
        self._turns = 0
        self._seconds = 0.0
        self._next = 0.0
        self._is_finite = True

    def step(self, rewards: npt.ArrayLike, seconds: float, counted: Mask | None = None) -> None:
        """One turn of all envs: rewards of shape (n,), how long it took, and which rows were transitions."""
        paid = np.asarray(rewards, dtype=np.float64)
        if counted is None:
            self._rewards[:] = paid
            self._transitions += self._ids.size
        else:
            np.copyto(self._rewards, paid, where=counted)
            self._transitions += int(counted.sum())
        self._turns += 1
        self._seconds += seconds
        was_finite, self._is_finite = self._is_finite, math.isfinite(self._rewards.sum())
        if time.monotonic() >= self._next or (was_finite and not self._is_finite):
            self.flush()

    def flush(self) -> None:
        """Send what is newest, if there is anything new."""
        if not self._turns:
            return
        self._run.envs(
            env_id=self._ids,
            step=self._transitions // self._ids.size,
            lane=self._lane,
            reward=self._rewards,
            step_time=self._seconds / self._turns,
        )
        self._turns, self._seconds = 0, 0.0
        self._next = time.monotonic() + INTERVAL_S

    def episodes(self, env_id: npt.ArrayLike, returns: npt.ArrayLike, lengths: npt.ArrayLike) -> None:
        """Episodes that ended at this turn; three columns of one length, which may be 0."""
        ids = np.asarray(env_id, dtype=np.int64)
        if ids.size:
            self._run.episodes(
                env_id=ids,
                episode_return=np.asarray(returns, dtype=np.float64),
                length=np.asarray(lengths, dtype=np.float64),
            )
