"""The alpha controller: how far each branch is let into its host, and how that changes over time.

A slot holds its alpha, or moves it up or down to a target in a number of steps along a curve. Rules: alpha
stays in 0..1 and reaches its target exactly; nothing is read from the device. Must not know stages.

Shape letters: N envs, K slots.
"""

from enum import IntEnum
from typing import Final

import torch
from torch import Tensor

from overwatch_rl.worlds.morphogenesis.actions import Curve


class Mode(IntEnum):
    """What alpha does."""

    HOLD = 0
    UP = 1
    DOWN = 2


STEEPNESS: Final = {Curve.SIGMOID_GENTLE: 6.0, Curve.SIGMOID: 12.0, Curve.SIGMOID_SHARP: 24.0}
"""How steep a sigmoid is in its middle."""
_NAMES: Final = ("value", "mode", "start", "target", "steps", "done", "curve")


def progress(curve: Tensor, share: Tensor) -> Tensor:
    """How far alpha has come after a share of the steps: 0 at 0, 1 at 1, rising; any shape.

    Cosine is (1 - cos πx) / 2. A sigmoid of s (x - 1/2) is stretched so that it begins at 0 and ends at 1.
    """
    steepness = torch.tensor([STEEPNESS.get(one, 1.0) for one in Curve], device=share.device)[curve]
    low, high = torch.sigmoid(-steepness / 2), torch.sigmoid(steepness / 2)
    found = (torch.sigmoid(steepness * (share - 0.5)) - low) / (high - low)
    found = torch.where(curve == Curve.LINEAR, share, found)
    return torch.where(curve == Curve.COSINE, (1 - (torch.pi * share).cos()) / 2, found)


class Alpha:
    """N x K alphas."""

    def __init__(self, num_envs: int, num_slots: int, device: str = "cpu") -> None:
        shape = (num_envs, num_slots)
        self.value = torch.zeros(shape, device=device)  # N K float32
        self.mode = torch.zeros(shape, dtype=torch.int64, device=device)  # N K, of `Mode`
        self.start = torch.zeros(shape, device=device)  # N K float32, where the movement began
        self.target = torch.zeros(shape, device=device)  # N K float32, where it goes
        self.steps = torch.zeros_like(self.mode)  # N K, of the whole movement
        self.done = torch.zeros_like(self.mode)  # N K, of them taken
        self.curve = torch.zeros_like(self.mode)  # N K, of `Curve`

    def move(self, where: Tensor, target: Tensor, steps: Tensor, curve: Tensor) -> None:
        """Begin a movement `where` (N K bool); in 0 steps, or to where it is, it ends at once. All N K."""
        is_over = (steps == 0) | (target == self.value)
        way = torch.where(target > self.value, int(Mode.UP), int(Mode.DOWN))
        self.start = torch.where(where, self.value, self.start)
        self.target = torch.where(where, target, self.target)
        self.steps = torch.where(where, steps, self.steps)
        self.done = torch.where(where, 0, self.done)
        self.curve = torch.where(where, curve, self.curve)
        self.mode = torch.where(where, torch.where(is_over, int(Mode.HOLD), way), self.mode)
        self.value = torch.where(where & is_over, target, self.value)

    def hold(self, where: Tensor, value: float) -> None:
        """Stand at `value` from now on, `where` (N K bool)."""
        self.move(where, torch.full_like(self.value, value), torch.zeros_like(self.steps), self.curve)

    def advance(self) -> None:
        """Take one step of every movement."""
        moves = self.mode != Mode.HOLD
        self.done = torch.where(moves, self.done + 1, self.done)
        is_over = moves & (self.done >= self.steps)
        come = progress(self.curve, self.done / self.steps.clamp(min=1))
        between = torch.lerp(self.start, self.target, come)
        self.value = torch.where(moves, torch.where(is_over, self.target, between), self.value)
        self.mode = torch.where(is_over, int(Mode.HOLD), self.mode)

    @property
    def left(self) -> Tensor:
        """N K int64: steps until a movement ends; 0 where there is none."""
        return torch.where(self.mode == Mode.HOLD, 0, self.steps - self.done)

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        return {name: getattr(self, name).clone() for name in _NAMES}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was."""
        for name in _NAMES:
            setattr(self, name, state[name].clone())
