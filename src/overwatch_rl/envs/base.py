"""The contract of a world: many environments stepped as one batched computation.

Rules: tensors in, tensors out, on the world's own device; all randomness from the seed of `reset`; an env
whose episode ends is reset within the same step. A world must not know algorithms, storage or telemetry.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from overwatch_rl.types import ActionSpec, Observation, Step, WorldInfo

MAX_ENVS: Final = 4096
MAX_SLOTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """What every world is told."""

    num_envs: int = 32
    """Environments stepped together."""
    num_slots: int = 3
    """Slots of each environment, in worlds that have slots."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_envs <= MAX_ENVS:
            raise ValueError(f"envs is {self.num_envs}; use 1 to {MAX_ENVS}")
        if not 1 <= self.num_slots <= MAX_SLOTS:
            raise ValueError(f"slots is {self.num_slots}; use 1 to {MAX_SLOTS}")


class VecEnv(Protocol):
    """N environments as one."""

    @property
    def num_envs(self) -> int:
        """N."""
        ...

    @property
    def num_features(self) -> int:
        """D, the width of an observation."""
        ...

    @property
    def action_spec(self) -> ActionSpec:
        """The heads of an action and what each operation uses."""
        ...

    @property
    def info(self) -> WorldInfo:
        """What the world says of itself."""
        ...

    def reset(self, seed: int) -> Observation:
        """Begin new episodes everywhere; the same seed and actions give the same numbers."""
        ...

    def step(self, actions: Tensor) -> Step:
        """Take one action an env.

        `actions`: N H int64; entries of heads that the operation does not use are ignored. Raises
        `ValueError` when an action is illegal under the last observation's mask, naming the first.
        """
        ...


def check_legal(spec: ActionSpec, mask: Tensor, actions: Tensor) -> None:
    """Raise `ValueError` naming the first env whose action is illegal; mask: N L bool, actions: N H int64."""
    ops = actions[:, 0]
    everyone = torch.arange(len(ops))
    uses = torch.tensor(spec.uses)[ops]
    blocks = spec.unpack(mask)
    legal = blocks[0][everyone, ops]
    for number, block in enumerate(blocks[1:], start=1):
        legal = legal & (block[everyone, ops, actions[:, number]] | ~uses[:, number])
    if not bool(legal.all()):
        env = int((~legal).nonzero()[0, 0])
        words = [
            head.labels[int(choice)]
            for head, choice, used in zip(spec.heads, actions[env], uses[env], strict=True)
            if used
        ]
        raise ValueError(f"env {env} may not {' '.join(words)} now; choose what the mask allows")
