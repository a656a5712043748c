"""The border between a foreign training loop and its telemetry: what its envs did; errors are kept out.

Rules: numbers are sent at most ten times a second, the newest reward and action and the mean turn since the
last time; a reward that is not finite is sent at once. Finished episodes are facts and all sent, those of
five milliseconds together. Every transition counts, a reset does not. An error is counted and logged once.
Must not know which library the envs come from.
"""

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from overwatch.sdk import Run

log: Final = logging.getLogger("overwatch.adapters")

INTERVAL_S: Final = 0.1
TOGETHER_S: Final = 0.005
"""A record of episodes costs 20 to 100 µs of the training thread: 2 % of it at the most."""
MOST_CHOICES: Final = 64
"""More actions than this are numbers, and no words."""
MOST_ACTING: Final = 1024
"""Envs whose actions are sent: words are made one by one."""

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
    """Reports what `num_envs` envs did, with the ids 0, 1, 2, ...

    `choices` is how many actions there are, where they are counted from 0; else actions are not reported.
    """

    def __init__(self, run: Run, num_envs: int, lane: str | None = None, *, choices: int = 0) -> None:
        self._run = run
        self._lane = lane
        self._ids = np.arange(num_envs)
        is_few = choices <= MOST_CHOICES and num_envs <= MOST_ACTING
        self._words = [str(choice) for choice in range(choices if is_few else 0)]
        self._actions: npt.ArrayLike | None = None
        self._rewards = np.zeros(num_envs)
        self._num_envs = num_envs
        self._transitions = 0
        self._turns = 0
        self._seconds = 0.0
        self._next = 0.0
        self._is_finite = True
        self._ended: list[tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]] = []
        self._ended_next = 0.0

    @property
    def steps(self) -> int:
        """Whole steps of an env so far."""
        return self._transitions // self._num_envs

    def step(
        self,
        rewards: npt.ArrayLike,
        seconds: float,
        counted: Mask | None = None,
        actions: npt.ArrayLike | None = None,
    ) -> None:
        """One turn of all envs: rewards of shape (n,), how long it took, and which rows were transitions."""
        if counted is None:
            self._rewards[:] = rewards
            self._transitions += self._num_envs
        else:
            np.copyto(self._rewards, rewards, where=counted)
            self._transitions += int(np.count_nonzero(counted))
        self._turns += 1
        self._seconds += seconds
        self._actions = actions
        was_finite = self._is_finite
        self._is_finite = np.count_nonzero(np.isfinite(self._rewards)) == self._num_envs
        now = time.monotonic()
        if now >= self._next or (was_finite and not self._is_finite):
            self.flush()
        elif self._ended and now >= self._ended_next:
            self.send_episodes()

    def flush(self) -> None:
        """Send what is newest, if there is anything new."""
        self.send_episodes()
        if not self._turns:
            return
        turns, self._turns = self._turns, 0
        seconds, self._seconds = self._seconds, 0.0
        self._run.envs(
            env_id=self._ids,
            step=self.steps,
            lane=self._lane,
            reward=self._rewards,
            step_time=seconds / turns,
        )
        self._next = time.monotonic() + INTERVAL_S
        if self._words and self._actions is not None:
            chosen = np.asarray(self._actions).reshape(self._num_envs).tolist()
            self._run.actions(env_id=self._ids, op=[self._words[one] for one in chosen], step=self.steps)

    def episodes(self, env_id: npt.ArrayLike, returns: npt.ArrayLike, lengths: npt.ArrayLike) -> None:
        """Episodes that ended at this turn; three columns of one length, which may be 0."""
        if np.size(env_id):
            self._ended.append((env_id, returns, lengths))
            if time.monotonic() >= self._ended_next:
                self.send_episodes()

    def send_episodes(self) -> None:
        """Send the episodes that wait for others."""
        if not self._ended:
            return
        ended, self._ended = self._ended, []
        columns: Any = ended[0] if len(ended) == 1 else map(np.concatenate, zip(*ended, strict=True))
        ids, returns, lengths = columns
        self._run.episodes(
            env_id=np.asarray(ids, dtype=np.int64),
            episode_return=np.asarray(returns, dtype=np.float64),
            length=np.asarray(lengths, dtype=np.float64),
        )
        self._ended_next = time.monotonic() + TOGETHER_S

    def crashed(self, env_id: int, error: Exception) -> None:
        """An env raised: what ended before it is sent first."""
        self.flush()
        self._run.env_crashed(env_id, error, step=self.steps)
