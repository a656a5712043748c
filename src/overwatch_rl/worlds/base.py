"""The contract of a world: many environments stepped as one batched computation.

Rules: tensors in, tensors out, on the world's own device; a world that steps on the host leaves all but the
observation there; all randomness from the seed of `reset`; an env
whose episode ends is reset within the same step; nothing is read from the device in `step`, but under a named
`sync_point`. A world must not know algorithms, storage or telemetry.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from overwatch_rl.types import Factored, Observation, Step, WorldSpec

MAX_ENVS: Final = 65_536
MAX_SLOTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """What every world is given; settings of one world alone are its own config."""

    num_envs: int = 32
    """Environments stepped together."""
    device: str = "cpu"
    """Where its tensors are."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_envs <= MAX_ENVS:
            raise ValueError(f"envs is {self.num_envs}; use 1 to {MAX_ENVS}")


class World(Protocol):
    """N environments as one."""

    @property
    def spec(self) -> WorldSpec:
        """What it is."""
        ...

    def reset(self, seed: int) -> Observation:
        """Begin new episodes everywhere; the same seed and actions give the same numbers."""
        ...

    def step(self, actions: Tensor) -> Step:
        """Take one action an env.

        `actions`: N H int64 or N D float32; entries of heads that the operation does not use are ignored.
        Actions must be legal under the last mask: a world on the CPU raises `ValueError` naming the first
        that is not, one on a device does not look.
        """
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on, generators included; empty where the spec is not resumable."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> Observation:
        """Become as it was when `state` was taken; the observation of that moment."""
        ...


def check_legal(spec: Factored, mask: Tensor, actions: Tensor) -> None:
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
