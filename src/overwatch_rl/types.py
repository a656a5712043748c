"""The shapes that flow through the flight: specs, steps, rollouts, batches, statistics, reports.

Owns every type that two of the flight's modules share, so that worlds, algorithms, storage and telemetry
need not know one another. Rules: tensors stay where they were made; nothing here computes.

Shape letters, on every field that holds a tensor:

    T  steps of one rollout        D  features of an observation
    N  environments                L  logits of all heads, side by side
    P  operations                  C  choices of one argument head
    B  rows of a batch (T x N)     H  action heads
    M  minibatches of an update    K  slots of an environment
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor

from overwatch.catalog import Stage
from overwatch.events import MetricInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One categorical choice of an action."""

    name: str
    labels: tuple[str, ...]
    """A word per choice, as telemetry shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """Factored discrete actions: the first head chooses the operation, the others its arguments.

    An argument head has one row of choices per operation, so its mask and its logits may depend on the
    operation. Flat layout: the operations, then for each argument head operations x choices.
    """

    heads: tuple[Head, ...]
    uses: tuple[tuple[bool, ...], ...]
    """For each operation, which heads it causally depends on; the first is always used."""

    def __post_init__(self) -> None:
        if not self.heads or not all(head.labels for head in self.heads):
            raise ValueError("an action needs at least one head, and every head at least one choice")
        if len(self.uses) != self.num_ops or any(len(row) != len(self.heads) for row in self.uses):
            raise ValueError(f"`uses` needs {self.num_ops} rows of {len(self.heads)} entries")
        if not all(row[0] for row in self.uses):
            raise ValueError("every operation uses the first head: it is the operation")

    @property
    def num_ops(self) -> int:
        """Number of operations."""
        return len(self.heads[0].labels)

    @property
    def num_heads(self) -> int:
        """H."""
        return len(self.heads)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Width of each head's block in the flat layout."""
        ops = self.num_ops
        return (ops, *(ops * len(head.labels) for head in self.heads[1:]))

    @property
    def num_logits(self) -> int:
        """L."""
        return sum(self.sizes)

    def unpack(self, flat: Tensor) -> list[Tensor]:
        """The heads of a flat tensor B L: operations B P, then for each argument B P C."""
        blocks = torch.split(flat, list(self.sizes), dim=1)
        choices = [len(head.labels) for head in self.heads[1:]]
        return [
            blocks[0],
            *(
                block.reshape(-1, self.num_ops, width)
                for block, width in zip(blocks[1:], choices, strict=True)
            ),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldInfo:
    """What a world says of itself at the start of a run."""

    task: str
    metric: MetricInfo
    reward_mode: str
    slots: tuple[str, ...] = ()
    """Slot names in order; empty in a world without slots."""
    embargo: int | None = None
    """Steps for which a slot stays embargoed after a prune."""
    blueprints: tuple[tuple[str, str], ...] = ()
    """Pairs of blueprint id and two-letter code, in order of their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """A seed moved from one stage to the next."""

    env_id: int
    slot: str
    seed_id: str
    before: Stage
    after: Stage
    blueprint: str | None
    """`None` once the seed is gone."""
    alpha: float
    age: int
    """Steps spent in the stage that was left."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """A gate of the lifecycle was asked, and what it answered."""

    env_id: int
    slot: str
    seed_id: str
    gate: str
    passed: bool
    score: float | None
    """What the gate measured; `None` where it measures nothing."""
    checks_passed: tuple[str, ...]
    checks_failed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTable:
    """Every slot of every env at one moment."""

    stage: Tensor  # N K int64, Stage.code
    blueprint: Tensor  # N K int64, index into WorldInfo.blueprints, -1 where there is none
    alpha: Tensor  # N K float32
    age: Tensor  # N K int64, steps in the stage
    grad: Tensor  # N K float32, gradient health 0..1, NaN where no seed learned


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the policy sees and may do."""

    features: Tensor  # N D float32
    mask: Tensor  # N L bool, true where a choice is legal


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step of all envs returned.

    Envs whose episode ended have been reset: `observation` is of the new episode, everything else of the
    step that was taken.
    """

    observation: Observation
    reward: Tensor  # N float32
    terminated: Tensor  # N bool, the task itself ended: nothing to bootstrap
    truncated: Tensor  # N bool, cut short from outside: bootstrap with the final observation
    final_features: Tensor | None  # N D float32, before the reset; None in worlds that never truncate
    metric: Tensor  # N float32, the task's own measure
    rent: Tensor | None = None  # N float32
    slots: SlotTable | None = None
    stage_changes: tuple[StageChange, ...] = ()
    gate_checks: tuple[GateCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What the collecting policy saw, did and got."""

    features: Tensor  # T N D
    mask: Tensor  # T N L bool
    actions: Tensor  # T N H int64
    log_probs: Tensor  # T N H, 0 for heads that the operation does not use
    values: Tensor  # T N
    rewards: Tensor  # T N
    terminated: Tensor  # T N bool
    truncated: Tensor  # T N bool
    final_values: Tensor  # T N, value of the final observation where truncated, else 0
    last_values: Tensor  # N, value of the observation after the last step


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A rollout with its estimates, flattened over time and envs."""

    features: Tensor  # B D
    mask: Tensor  # B L bool
    actions: Tensor  # B H int64
    log_probs: Tensor  # B H
    values: Tensor  # B, of the collecting policy before the update
    advantages: Tensor  # B
    returns: Tensor  # B

    def __len__(self) -> int:
        return self.features.shape[0]

    def rows(self, index: Tensor) -> "Batch":
        """The rows named by `index` (int64)."""
        return Batch(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Numbers of one update as scalar tensors on the training device, named as in the catalogue."""

    kl_divergence: Tensor
    kl_joint: Tensor
    kl_max: Tensor
    first_ratio_error: Tensor
    entropy: Tensor
    clip_fraction: Tensor
    explained_variance: Tensor
    grad_norm: Tensor
    policy_loss: Tensor
    value_loss: Tensor

    def read(self) -> dict[str, float]:
        """All values by name, in one transfer from the device."""
        names = [field.name for field in fields(self)]
        packed = torch.stack([getattr(self, name).double() for name in names])
        return dict(zip(names, packed.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """An update ended before its last epoch because the policy had moved too far."""

    epoch: int
    """The last epoch that ran, from 1."""
    kl_divergence: float
    target: float
    minibatches_skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEpisodes:
    """Episodes that ended at one step, a row each."""

    env_id: Tensor  # E int64
    episode_return: Tensor  # E float64
    length: Tensor  # E int64
    metric: Tensor  # E float32


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step of all envs, as it is reported."""

    index: int
    """Steps of the vector env since the run began, from 1."""
    actions: Tensor  # N H int64
    step: Step
    duration_s: float
    ended: EndedEpisodes | None
    """`None` where no episode ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """One update, as it is reported."""

    index: int
    """From 1."""
    values: dict[str, float]
    """Policy numbers by short name; NaN where a value is undefined."""
    early_stop: EarlyStop | None = None


class Reporter(Protocol):
    """Where a run's numbers go; reporters are composed, the trainer knows one."""

    def phase(self, name: str) -> AbstractContextManager[object]:
        """Measure a phase of the training loop."""
        ...

    def step(self, report: StepReport) -> None:
        """Report one step of all envs."""
        ...

    def update(self, report: UpdateReport) -> None:
        """Report one update."""
        ...

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """End the report; the outcome is `completed`, `failed` or `interrupted`. Safe to call twice."""
        ...
