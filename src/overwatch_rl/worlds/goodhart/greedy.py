"""Policies that walk to the nearest cell of a kind, to measure a trained one against.

`greedy((FOOD,))` is the best that is simple; `greedy((FOOD, POISON))` is what the proxy asks for. Must not
know networks or algorithms.

Shape letters: N envs, V rows and columns of the view.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import torch
from torch import Tensor

from overwatch_rl.types import Observation
from overwatch_rl.worlds.goodhart.cells import FOOD, MOVES, POISON

Act: TypeAlias = Callable[[Observation], Tensor]
"""From an observation to actions, N 1 int64."""

TRUTH: Final = (FOOD,)
PROXY: Final = (FOOD, POISON)
ONWARDS: Final = tuple(MOVES).index("right")
"""Where to go while nothing is in view."""


def greedy(wanted: tuple[int, ...]) -> Act:
    """Move towards the nearest wanted cell in view, else onwards; `wanted`: codes."""
    actions = {move: number for number, move in enumerate(MOVES.values())}

    def act(observation: Observation) -> Tensor:
        """Return a step towards the nearest food."""
        views = observation.features
        size = views.shape[1]
        offsets = torch.arange(size, device=views.device) - size // 2
        moves = torch.maximum(offsets[:, None].abs(), offsets[None, :].abs())
        towards = torch.tensor(
            [
                [actions.get((_sign(x), _sign(y)), ONWARDS) for x in offsets.tolist()]
                for y in offsets.tolist()
            ],
            device=views.device,
        )
        wants = torch.zeros_like(views, dtype=torch.bool)
        for code in wanted:
            wants = wants | (views == code)
        distance = torch.where(wants & (moves > 0), moves, size).flatten(1)
        nearest, cell = distance.min(dim=1)
        return torch.where(nearest < size, towards.flatten()[cell], ONWARDS)[:, None]

    return act


def _sign(offset: int) -> int:
    return (offset > 0) - (offset < 0)
