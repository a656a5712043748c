"""Storage for one rollout, allocated once and filled step by step on its device.

Rules: nothing grows, nothing is copied out: a `Rollout` is a view and holds until the next step is stored;
nothing is read from the device. Must not know how data is made or used.

Shapes: T steps, N envs, S an observation, L outputs, H heads, F places an env for final observations.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from overwatch_rl.types import Box, Decision, Observation, Rollout, Step, WorldSpec


class RolloutBuffer:
    """T steps of N envs."""

    def __init__(self, spec: WorldSpec, num_steps: int, num_envs: int, device: torch.device) -> None:
        shape = (num_steps, num_envs)
        self._num_steps = num_steps
        self._device = device
        observation, action = spec.observation, spec.action
        self._features = torch.zeros(*shape, *observation.shape, dtype=observation.dtype, device=device)
        self._mask: Tensor | None = None
        width, kind = (
            (action.num_outputs, torch.float32)
            if isinstance(action, Box)
            else (action.num_heads, torch.int64)
        )
        self._actions = torch.zeros(*shape, width, dtype=kind, device=device)
        self._log_probs = torch.zeros(*shape, action.num_heads, device=device)
        self._values, self._rewards = (torch.zeros(shape, device=device) for _ in range(2))
        self._terminated, self._truncated = (
            torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(2)
        )
        # Truncations of one env are at least a horizon apart, so these places always suffice.
        places = 0 if spec.horizon is None else math.ceil(num_steps / spec.horizon)
        self._final = torch.zeros(
            places, num_envs, *observation.shape, dtype=observation.dtype, device=device
        )
        self._final_at = torch.full((places, num_envs), num_steps, device=device)
        self._finals = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._columns: dict[str, Tensor] = {}
        self._memory: Tensor | None = None
        self.filled = 0

    def clear(self) -> None:
        """Begin a new rollout in the same storage."""
        self.filled = 0
        self._final_at.fill_(self._num_steps)
        self._finals.zero_()

    def store(self, seen: Observation, decision: Decision, step: Step, columns: Mapping[str, Tensor]) -> None:
        """Keep one step, with columns beside the world's own; raises `IndexError` when full."""
        if self.filled == self._num_steps:
            raise IndexError(f"the buffer holds {self._num_steps} steps and is full; clear it first")
        row = self.filled
        self._memory = seen.memory if row == 0 else self._memory
        self._features[row] = seen.features
        if seen.mask is not None:
            if self._mask is None:
                self._mask = self._like(seen.mask)
            self._mask[row] = seen.mask
        self._actions[row] = decision.actions
        self._log_probs[row] = decision.log_probs
        self._values[row] = decision.values
        self._rewards[row] = step.reward
        self._terminated[row] = step.terminated
        self._truncated[row] = step.truncated
        self._keep_final(row, step)
        for name, column in (*step.columns.items(), *columns.items()):
            if name not in self._columns:
                self._columns[name] = self._like(column)
            self._columns[name][row] = column
        self.filled += 1

    def rollout(self, last: Observation) -> Rollout:
        """The full rollout; `last`: after its last step. Raises `ValueError` while steps are missing."""
        if self.filled != self._num_steps:
            raise ValueError(f"the rollout has {self.filled} of {self._num_steps} steps")
        has_finals = len(self._final) > 0
        return Rollout(
            features=self._features,
            mask=self._mask,
            actions=self._actions,
            log_probs=self._log_probs,
            values=self._values,
            rewards=self._rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            final=self._final if has_finals else None,
            final_at=self._final_at if has_finals else None,
            last=last,
            columns=self._columns,
            memory=self._memory,
        )

    def rows(self) -> dict[str, Tensor]:
        """What was stored so far, of a rollout that may be short: a view of each column by name."""
        own = {
            "actions": self._actions,
            "rewards": self._rewards,
            "terminated": self._terminated,
            "truncated": self._truncated,
        }
        return {name: column[: self.filled] for name, column in (own | self._columns).items()}

    def num_bytes(self) -> int:
        """What the storage takes on the device."""
        tensors = [value for value in vars(self).values() if isinstance(value, Tensor)]
        return sum(one.element_size() * one.numel() for one in (*tensors, *self._columns.values()))

    def _keep_final(self, row: int, step: Step) -> None:
        if step.final is None:
            return
        wide = (-1, *(1,) * (self._final.dim() - 2))
        for place in range(len(self._final)):
            here = step.truncated & (self._finals == place)
            self._final[place] = torch.where(here.view(wide), step.final, self._final[place])
            self._final_at[place] = torch.where(here, row, self._final_at[place])
        self._finals += step.truncated

    def _like(self, column: Tensor) -> Tensor:
        return torch.zeros(self._num_steps, *column.shape, dtype=column.dtype, device=self._device)
