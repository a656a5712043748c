"""Storage for one rollout, allocated with its first step and filled step by step where each column is made.

Rules: nothing grows, nothing is copied out: a `Rollout` is a view and holds until the next step is stored;
nothing is read from the device. A column that a world makes on the host is filled through NumPy, without a
call of torch, and goes to the device once a rollout. Must not know how data is made or used.

Shapes: T steps, N envs, S an observation, L outputs, H heads, F places an env for final observations.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from overwatch_rl.types import Decision, Observation, Rollout, Step, WorldSpec

_ROWS: Final = ("actions", "rewards", "terminated", "truncated")


class _Column(NamedTuple):
    tensor: Tensor
    rows: Any
    """What its rows are written through: the tensor, or on the host its memory as an array."""


class RolloutBuffer:
    """T steps of N envs, for an algorithm on a device."""

    def __init__(self, spec: WorldSpec, num_steps: int, device: torch.device) -> None:
        self._num_steps = num_steps
        self._device = device
        # Truncations of one env are at least a horizon apart, so these places always suffice.
        self._places = 0 if spec.horizon is None else math.ceil(num_steps / spec.horizon)
        self._own: dict[str, _Column] = {}
        self._columns: dict[str, _Column] = {}
        self._final: tuple[Tensor, Tensor, Tensor] | None = None
        """F+1 N S, F+1 N and N: final observations, the step of each, and how many each env has."""
        self._memory: Tensor | None = None
        self.filled = 0

    def clear(self) -> None:
        """Begin a new rollout in the same storage."""
        self.filled = 0
        if self._final is not None:
            _, final_at, counts = self._final
            final_at.fill_(self._num_steps)
            counts.zero_()

    def store(self, seen: Observation, decision: Decision, step: Step, columns: Mapping[str, Tensor]) -> None:
        """Keep one step, with columns beside the world's own; raises `IndexError` when full."""
        if self.filled == self._num_steps:
            raise IndexError(f"the buffer holds {self._num_steps} steps and is full; clear it first")
        if self.filled == 0:
            self._memory = seen.memory
        own = {
            "features": seen.features, "actions": decision.actions, "log_probs": decision.log_probs,
            "values": decision.values, "rewards": step.reward, "terminated": step.terminated,
            "truncated": step.truncated,
        }  # fmt: skip
        if seen.mask is not None:
            own["mask"] = seen.mask
        for table, values in ((self._own, own), (self._columns, step.columns), (self._columns, columns)):
            for name, value in values.items():
                self._write(table, name, value)
        self._store_final(step)
        self.filled += 1

    def _write(self, table: dict[str, _Column], name: str, value: Tensor) -> None:
        column = table.get(name)
        if column is None:
            tensor = value.new_zeros(self._num_steps, *value.shape)
            column = table[name] = _Column(tensor, tensor.numpy() if value.device.type == "cpu" else tensor)
        # What is on the host is an array here, and is written as one without a call of torch.
        column.rows[self.filled] = value if column.rows is column.tensor else value.numpy()

    def rollout(self, last: Observation) -> Rollout:
        """The full rollout; `last`: after its last step. Raises `ValueError` while steps are missing."""
        if self.filled != self._num_steps:
            raise ValueError(f"the rollout has {self.filled} of {self._num_steps} steps")
        own: dict[str, Any] = {name: self._moved(column) for name, column in self._own.items()}
        final = final_at = None
        if self._final is not None:
            final, final_at = (one[:-1].to(self._device) for one in self._final[:2])
        return Rollout(
            **{"mask": None, **own},
            final=final,
            final_at=final_at,
            last=last,
            columns={name: self._moved(column) for name, column in self._columns.items()},
            memory=self._memory,
        )

    def rows(self) -> dict[str, Tensor]:
        """What was stored so far, of a rollout that may be short: a view of each column by name."""
        columns = {name: self._own[name] for name in _ROWS} | self._columns
        return {name: self._moved(column)[: self.filled] for name, column in columns.items()}

    def _moved(self, column: _Column) -> Tensor:
        return column.tensor.to(self._device)

    def num_bytes(self) -> int:
        """What the storage takes; nothing before the first step."""
        columns = (*self._own.values(), *self._columns.values())
        return sum(one.nbytes for one in (*(column.tensor for column in columns), *(self._final or ())))

    def _store_final(self, step: Step) -> None:
        if step.final is None or not self._places:
            return
        if self._final is None:
            # Behind the last place lies one that takes what is no final observation.
            final = step.final.new_zeros(self._places + 1, *step.final.shape)
            final_at = torch.full(final.shape[:2], self._num_steps, device=final.device)
            self._final = final, final_at, torch.zeros_like(final_at[0])
        truncated = step.truncated
        if truncated.device.type == "cpu" and not truncated.numpy().any():
            return
        final, final_at, counts = self._final
        place = torch.where(truncated, counts, self._places)[None]
        wide = place.view(*place.shape, *(1,) * (final.dim() - 2)).expand(1, *final.shape[1:])
        final.scatter_(0, wide, step.final[None])
        final_at.scatter_(0, place, self.filled)
        counts += truncated
