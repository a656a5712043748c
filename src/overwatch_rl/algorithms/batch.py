"""What an update draws from: a rollout with its estimates as rows, or single steps.

Must not know how estimates are made or what is learned from them. Shape letters as in `types`.
"""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, cast

import torch
from torch import Tensor

from overwatch_rl.types import Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """Single steps as they were sampled."""

    observation: Tensor  # B S
    actions: Tensor  # B int64
    reward: Tensor  # B
    next_observation: Tensor  # B S, of any value where terminated
    terminated: Tensor  # B bool
    weights: Tensor  # B, of importance


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """What makes the rows of a batch the steps of envs, in order of time, then of envs."""

    begins: Tensor  # T N bool, whether an episode begins with the step; false in the first, see `memory`
    memory: Tensor  # N M, before the first step, zero where an episode begins with it

    def rows(self, envs: Tensor) -> Tensor:
        """The rows of these envs (int64), in the same order."""
        steps, count = self.begins.shape
        return (torch.arange(steps, device=envs.device)[:, None] * count + envs).flatten()

    def of(self, envs: Tensor) -> "Sequences":
        """Of these envs alone (int64)."""
        return Sequences(begins=self.begins[:, envs], memory=self.memory[envs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A rollout with its estimates, flattened over time and envs."""

    features: Tensor  # B S
    mask: Tensor | None  # B L bool
    actions: Tensor  # B H int64 or B D float32
    log_probs: Tensor  # B H
    values: Tensor  # B, of the collecting policy before the update
    advantages: Tensor  # B
    returns: Tensor  # B
    weights: Tensor | None = None  # B, of the policy's loss; None where every step is the policy's own
    sequences: Sequences | None = None
    """Of a policy with memory, which learns from whole envs; `None` where rows stand alone."""
    stats: Stats = field(default_factory=dict)
    """Numbers about the rollout."""

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def units(self) -> int:
        """How many parts there are to draw minibatches from: rows, or envs where there are sequences."""
        return len(self) if self.sequences is None else self.sequences.begins.shape[1]

    def drawn(self, index: Tensor) -> "Batch":
        """The units named by `index` (int64)."""
        if self.sequences is None:
            return self.rows(index)
        return replace(self.rows(self.sequences.rows(index)), sequences=self.sequences.of(index))

    def rows(self, index: Tensor) -> "Batch":
        """The rows named by `index` (int64), each alone."""
        columns = _tensors(self)
        picked = {name: None if column is None else column[index] for name, column in columns.items()}
        return replace(self, stats={}, sequences=None, **cast("Any", picked))

    def chunks(self, size: int | None) -> "list[Batch]":
        """Its rows in order, cut into parts of at most `size`; sequences stay whole."""
        if size is None or size >= len(self) or self.sequences is not None:
            return [self]
        columns = _tensors(self)
        count = math.ceil(len(self) / size)
        parts = {
            name: [None] * count if column is None else torch.split(column, size)
            for name, column in columns.items()
        }
        return [
            replace(self, stats={}, **cast("Any", {name: part[number] for name, part in parts.items()}))
            for number in range(count)
        ]


_NO_COLUMNS: Final = ("sequences", "stats")


def _tensors(batch: Batch) -> dict[str, Tensor | None]:
    return {one.name: getattr(batch, one.name) for one in fields(batch) if one.name not in _NO_COLUMNS}
