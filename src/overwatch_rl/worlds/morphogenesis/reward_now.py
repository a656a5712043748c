"""Today's reward, and what a reward may look at. Goes when `rewards` is there."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from overwatch.catalog.stages import Stage
from overwatch_rl.worlds.morphogenesis.blueprints import BLUEPRINTS
from overwatch_rl.worlds.morphogenesis.lifecycle import GROWING

RENT: Final = 0.002
"""Reward that one seed of unit size costs a step while it grows."""
FOSSIL_SHARE: Final = 0.5
"""What a fossil pays of that."""
FOSSIL_BONUS: Final = 0.02
PENALTY: Final = 0.1
"""What a rollback costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What happened in one step."""

    progress: Tensor  # N, accuracy gained
    accuracy: Tensor  # N
    contribution: Tensor  # N K, NaN where no branch is
    stage_before: Tensor  # N K int64
    stage: Tensor  # N K int64
    age: Tensor  # N K int64, this step included
    age_before: Tensor  # N K int64
    auto_pruned: Tensor  # N K bool, by a rule of the lifecycle
    alpha_change: Tensor  # N K
    overhead: Tensor  # N, grown parameters over the host's
    op: Tensor  # N int64
    slot: Tensor  # N int64
    refused: Tensor  # N bool
    fossilised: Tensor  # N K bool
    governor: Tensor  # N uint8
    step: Tensor  # N int64, of the episode, from 0
    is_end: Tensor  # N bool


def parts(evidence: Evidence, sizes: Tensor) -> dict[str, Tensor]:
    """Terms by name, N each; `sizes`: N K parameters of each branch."""
    share = sum((evidence.stage == stage.code).float() for stage in GROWING)
    share = share + FOSSIL_SHARE * (evidence.stage == Stage.FOSSILISED.code)
    relative = sizes / BLUEPRINTS[0].num_parameters
    return {
        "gain": evidence.progress,
        "rent": -RENT * (share * relative).sum(dim=1),
        "fossil_bonus": FOSSIL_BONUS * evidence.fossilised.sum(dim=1),
        "penalty": -PENALTY * (evidence.governor > 0).float(),
    }
