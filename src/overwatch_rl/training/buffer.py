"""Storage for one rollout, allocated once and filled step by step on its device.

Rules: nothing grows, nothing is copied out: a `Rollout` is a view and holds until the next step is stored.
Must not know how data is made or used. Shapes: T steps, N envs, D features, L logits, H heads.
"""

import torch
from torch import Tensor

from overwatch_rl.types import ActionSpec, Observation, Rollout, Step


class RolloutBuffer:
    """T steps of N envs."""

    def __init__(self, shape: tuple[int, int], num_features: int, spec: ActionSpec) -> None:
        self._num_steps = shape[0]
        self._features = torch.zeros(*shape, num_features)
        self._mask = torch.zeros(*shape, spec.num_logits, dtype=torch.bool)
        self._actions = torch.zeros(*shape, spec.num_heads, dtype=torch.int64)
        self._log_probs = torch.zeros(*shape, spec.num_heads)
        self._values = torch.zeros(shape)
        self._rewards = torch.zeros(shape)
        self._terminated = torch.zeros(shape, dtype=torch.bool)
        self._truncated = torch.zeros(shape, dtype=torch.bool)
        self._final_values = torch.zeros(shape)
        self._filled = 0

    def clear(self) -> None:
        """Begin a new rollout in the same storage."""
        self._filled = 0

    def decide(self, observation: Observation, actions: Tensor, log_probs: Tensor, values: Tensor) -> None:
        """Store what was seen and done; `outcome` completes the step. Raises `IndexError` when full."""
        if self._filled == self._num_steps:
            raise IndexError(f"the buffer holds {self._num_steps} steps and is full; clear it first")
        row = self._filled
        self._features[row] = observation.features
        self._mask[row] = observation.mask
        self._actions[row] = actions
        self._log_probs[row] = log_probs
        self._values[row] = values

    def outcome(self, step: Step, final_values: Tensor | None) -> None:
        """Store what came of it; `final_values`: N, `None` in a world that never truncates."""
        row = self._filled
        self._rewards[row] = step.reward
        self._terminated[row] = step.terminated
        self._truncated[row] = step.truncated
        if final_values is not None:
            self._final_values[row] = torch.where(step.truncated, final_values, 0.0)
        self._filled += 1

    def rollout(self, last_values: Tensor) -> Rollout:
        """The full rollout; `last_values`: N. Raises `ValueError` while steps are missing."""
        if self._filled != self._num_steps:
            raise ValueError(f"the rollout has {self._filled} of {self._num_steps} steps")
        return Rollout(
            features=self._features,
            mask=self._mask,
            actions=self._actions,
            log_probs=self._log_probs,
            values=self._values,
            rewards=self._rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            final_values=self._final_values,
            last_values=last_values,
        )
