"""What envs earned whose steps come as batches of shape (envs, time): the newest rewards, and all episodes.

Must not know which collector brings them.
"""

from typing import Any

import numpy as np

from overwatch import sdk
from overwatch.adapters.watching import column


class Batches:
    """The envs of one collector, with the ids 0, 1, 2, ..."""

    def __init__(self, run: sdk.Run, num_envs: int, lane: str) -> None:
        self._run, self._lane = run, lane
        self._ids = np.arange(num_envs)
        self._returns, self._lengths, self._steps = np.zeros(num_envs), np.zeros(num_envs), 0
        self._ended: list[tuple[int, float, float]] = []

    def batch(self, rewards: Any, ends: Any, seconds: float, actions: Any) -> None:
        """One batch; `seconds` is what it took."""
        paid, over = (column(values).reshape(self._ids.size, -1) for values in (rewards, ends))
        steps = paid.shape[1]
        self._steps += steps
        earned = self._returns[:, None] + np.cumsum(paid, axis=1, dtype=np.float64)
        lived = self._lengths[:, None] + np.arange(1, steps + 1)
        self._returns, self._lengths = earned[:, -1].copy(), lived[:, -1].copy()
        before: dict[int, tuple[float, float]] = {}
        self._ended = []
        for env, at in np.argwhere(over):
            was_earned, was_lived = before.get(env, (0.0, 0.0))
            self._ended.append((int(env), earned[env, at] - was_earned, lived[env, at] - was_lived))
            before[env] = earned[env, at], lived[env, at]
        for env, (was_earned, was_lived) in before.items():
            self._returns[env] -= was_earned
            self._lengths[env] -= was_lived
        self._run.envs(
            env_id=self._ids, step=self._steps, lane=self._lane, reward=paid[:, -1], step_time=seconds / steps
        )
        if self._ended:
            ids, returns, lengths = zip(*self._ended, strict=True)
            self._run.episodes(env_id=ids, episode_return=returns, length=lengths)
        if actions is not None and not actions.is_floating_point():
            self._act(actions, rewards)

    def means(self) -> dict[str, float]:
        """Of the episodes that ended in the newest batch: the trainer logs none."""
        if not self._ended:
            return {}
        _, returns, lengths = zip(*self._ended, strict=True)
        return {"return": float(np.mean(returns)), "episode_length": float(np.mean(lengths))}

    def _act(self, actions: Any, rewards: Any) -> None:
        chosen = (
            actions.int().argmax(-1) if actions.ndim == rewards.ndim and actions.shape[-1] > 1 else actions
        )
        last = column(chosen).reshape(self._ids.size, -1)[:, -1]
        self._run.actions(env_id=self._ids, op=[str(one) for one in last], step=self._steps)
