"""What one of RLlib's env runners does: its half of the RLlib adapter.

Rules: an env is numbered over all runners, by its runner's index. Step time is that of the runner's whole
vector; returns and lengths are those of whole episodes, of which RLlib cuts one at each sample. A runner in a
process of its own joins the run and leaves it when it is stopped; it is no service, which must report by the
second: while the learner works it has nothing to report. The algorithm counts the steps of all runners. Must
not know the algorithm.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from overwatch import sdk
from overwatch.adapters.ray_hooks import around

INTERVAL_S: Final = 0.2


class Envs:
    """Reports what the envs of one runner did to a run: numbers at most five times a second, all episodes."""

    def __init__(self, env_runner: Any, run: sdk.Run) -> None:
        self._run, self._index = run, env_runner.worker_index or 0
        self._ids = np.arange(env_runner.num_envs)
        self._rewards = np.zeros(self._ids.size)
        self._turns, self._seconds = 0, 0.0
        self._last, self._next, self._is_due = -1, 0.0, True
        self._ops: dict[int, str] = {}
        self.watch(env_runner.env)

    def watch(self, env: Any) -> None:
        """Measure the steps of this vector, which RLlib makes anew where it failed."""
        around(env, "step", self._step)

    def step(self, index: int, episode: Any) -> None:
        """One env has stepped; RLlib goes through them in order."""
        if index <= self._last:
            self._end_turn()
        self._last = index
        earned = episode.get_rewards(-1)
        reward = sum(earned.values()) if isinstance(earned, dict) else earned
        self._rewards[index] = reward
        if self._is_due or not math.isfinite(reward):
            self._is_due = True
            action = episode.get_actions(-1)
            if isinstance(action, int | np.integer):
                self._ops[index] = str(action)

    def ended(self, index: int, chunks: Sequence[Any]) -> None:
        """The episode of one env has ended, in these parts."""
        earned, steps = sum(one.get_return() for one in chunks), sum(len(one) for one in chunks)
        self._run.episodes(env_id=[index], episode_return=[earned], length=[steps])

    def sampled(self) -> None:
        """A sample is complete: what is newest is sent before the learner takes its time."""
        self._is_due = True
        self._end_turn()

    def _end_turn(self) -> None:
        self._last = -1
        if self._is_due and self._turns:
            seconds = self._seconds / self._turns
            self._run.envs(env_id=self._ids, reward=self._rewards, step_time=seconds)
            if self._ops:
                self._run.actions(env_id=list(self._ops), op=list(self._ops.values()))
            self._ops, self._turns, self._seconds = {}, 0, 0.0
            self._next = time.monotonic() + INTERVAL_S
        self._is_due = time.monotonic() >= self._next

    def _step(self, step: Callable[[], Any]) -> Any:
        """The step of the whole vector; RLlib catches its exception, and starts envs or the runner again."""
        began = time.perf_counter()
        try:
            result = step()
        except Exception as error:
            if self._ids.size == 1:
                self._run.env_crashed(0, error)
            else:
                found = f"an env of runner {self._index} failed: {type(error).__name__}: {error}"
                self._run.log(found, severity="warning", subsystem="rllib")
            raise
        self._seconds += time.perf_counter() - began
        self._turns += 1
        return result


def join(env_runner: Any, run_id: str) -> None:
    """In a runner's own process: report to the run until the runner is stopped."""
    count, index = env_runner.num_envs, env_runner.worker_index
    run = sdk.start(
        run_id=run_id, role="env_runner", rank=index, n_envs=count, env_offset=(index - 1) * count, quiet=True
    )
    attach(env_runner, run)

    def stopped(stop: Callable[[], Any]) -> None:
        stop()
        run.close()

    around(env_runner, "stop", stopped)


def attach(env_runner: Any, run: sdk.Run) -> None:
    """Have the callbacks of a runner report to a run."""
    for callback in env_runner._callbacks:  # noqa: SLF001 RLlib has no other way to them
        if hasattr(callback, "report_envs"):
            callback.report_envs(Envs(env_runner, run))
