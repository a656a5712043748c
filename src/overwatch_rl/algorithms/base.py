"""The contract of an algorithm, and the plan by which it computes.

Rules: tensors in, tensors out, on the algorithm's device; no logger, no clock, nothing read from the device
but under a named `sync_point`. An algorithm must not know worlds, storage or telemetry.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import torch
from torch import Tensor

from overwatch_rl.types import Decision, Observation, Rollout, Stats

PRECISIONS: Final = ("fp32", "bf16")

B = TypeVar("B")
R_contra = TypeVar("R_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the same numbers are computed: chosen by measurement, kept in checkpoints."""

    precision: str = "fp32"
    """Of all layers but the last ones, in acting and learning alike."""
    channels_last: bool = False
    """Whether images lie channels last in memory."""
    chunk: int | None = None
    """Most rows of one pass; gradients of chunks are added. `None` for whole minibatches."""
    is_compiled: bool = False
    """Whether the network is compiled; on CUDA only."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision is {self.precision!r}; use one of {', '.join(PRECISIONS)}")
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"chunk is {self.chunk}; use 1 or more, or leave it out")


class Learner(Protocol[R_contra, B]):
    """What learns from experience, whichever component made it."""

    plan: Plan
    """How it computes now."""
    config: Any
    """How it learns."""

    def follow(self, plan: Plan) -> None:
        """Compute by another plan from now on."""
        ...

    def prepare(self, rollout: R_contra) -> B:
        """The estimates that an update learns from."""
        ...

    def update(self, batch: B) -> Stats:
        """Learn; scalars on the device by short catalogue name."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors only: policy, value, optimiser, statistics, generators."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was when `state` was taken."""
        ...

    def acting_keys(self) -> frozenset[str]:
        """The names in `state_dict` of every tensor that acting reads."""
        ...


class Algorithm(Learner[Rollout, B], Protocol[B]):
    """What acts in worlds and learns."""

    def act(
        self, observation: Observation, generator: torch.Generator | None, *, greedy: bool = False
    ) -> Decision:
        """Actions with their log-probabilities and values; drawn, or the likeliest."""
        ...
