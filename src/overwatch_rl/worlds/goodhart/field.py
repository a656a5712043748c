"""The fields: a torus of cells for each env, where food and poison lie, and where they come back.

Each env keeps a permutation of its cells: food in the first places, poison behind it, empty cells in the
rest. What is eaten changes places with an empty cell drawn evenly, so amounts hold exactly and nothing is
searched; another amount moves the borders between the places. Rules: nothing is read from the device; every
operation has the same shapes at every step. Must not know agents or rewards.

Shape letters: N envs, E cells of one env, V rows (and columns) of a view.
"""

import torch
from torch import Tensor

from overwatch_rl.worlds.goodhart.cells import FOOD, POISON


class Field:
    """N tori of `size` x `size` cells."""

    def __init__(self, num_envs: int, size: int, view: int, device: torch.device) -> None:
        self._shape = (num_envs, size * size)
        self._size = size
        self._device = device
        self._base = torch.arange(num_envs, device=device) * size * size  # N, where an env's cells begin
        self._offsets = torch.arange(view, device=device) - view // 2  # V
        nothing = torch.zeros(num_envs, dtype=torch.int32, device=device)
        in_order = torch.arange(size * size, dtype=torch.int32, device=device).expand(self._shape)
        self.restore(in_order, (nothing, nothing))

    def lay(self, amounts: tuple[Tensor, Tensor], generator: torch.Generator | None) -> None:
        """Lay everything out anew; `amounts`: food and poison, N int32 each."""
        order = torch.rand(self._shape, generator=generator, device=self._device).argsort(dim=1)
        self.restore(order.to(torch.int32), amounts)

    def restore(self, cells: Tensor, amounts: tuple[Tensor, Tensor]) -> None:
        """Lay everything out as given; `cells`: N E int32, the cell in each place."""
        order = cells.long()
        places = torch.arange(self._shape[1], dtype=torch.int32, device=self._device).expand(self._shape)
        self._places = torch.zeros_like(cells).scatter(1, order, places).flatten()  # N*E, the place of a cell
        self._cells = cells.flatten().clone()  # N*E int32, the cell in a place
        self._share(amounts)

    def cells(self) -> Tensor:
        """N E int32: the cell in each place, a view."""
        return self._cells.view(self._shape)

    def codes(self) -> Tensor:
        """N rows columns int8: what each cell holds, a view."""
        return self._codes.view(self._shape[0], self._size, self._size)

    def at(self, row: Tensor, column: Tensor) -> Tensor:
        """N int8: what the cell holds; row and column: N int64."""
        return self._codes[self._base + row * self._size + column]

    def move(self, row: Tensor, column: Tensor, takes: Tensor, draw: Tensor) -> None:
        """Let what lies in a cell reappear elsewhere where `takes` (N bool); `draw`: N in 0..1."""
        cell = row * self._size + column
        place = self._places[self._base + cell].long()
        self._swap(place, torch.where(takes, self._empty_place(draw), place))

    def empty(self, draw: Tensor, needed: Tensor) -> tuple[Tensor, Tensor]:
        """Row and column of an empty cell where one is needed (N bool), else of any; `draw`: N in 0..1."""
        # A place that is the same at every step is in the processor's cache; one drawn for nothing is not.
        cell = self._cells[self._base + self._empty_place(draw) * needed].long()
        return cell // self._size, cell % self._size

    def redraw(self, amounts: tuple[Tensor, Tensor], row: Tensor, column: Tensor) -> None:
        """Change how much there is; the cell of the agent stays empty."""
        place = self._places[self._base + row * self._size + column].long()
        self._swap(place, torch.full_like(place, self._shape[1] - 1))
        self._share(amounts)

    def around(self, row: Tensor, column: Tensor) -> Tensor:
        """M V V int8, M a multiple of N: the cells around, rows downwards, columns to the right."""
        base = self._base.repeat(len(row) // self._shape[0])
        rows = (row[:, None] + self._offsets) % self._size * self._size + base[:, None]
        columns = (column[:, None] + self._offsets) % self._size
        index = rows[:, :, None] + columns[:, None, :]
        return self._codes.index_select(0, index.flatten()).view(index.shape)

    def _empty_place(self, draw: Tensor) -> Tensor:
        """N: the place of an empty cell, drawn evenly."""
        first = self.food + self.poison
        count = self._shape[1] - first
        return first + torch.minimum((draw * count).long(), count - 1)

    def _swap(self, place: Tensor, other: Tensor) -> None:
        """Exchange the cells of two places, N each, and what they hold."""
        at, to = self._base + place, self._base + other
        cell, into = self._cells[at], self._cells[to]
        cell_at, into_at = self._base + cell, self._base + into
        code, blank = self._codes[cell_at], self._codes[into_at]
        self._cells[at], self._cells[to] = into, cell
        self._places[cell_at], self._places[into_at] = other.to(torch.int32), place.to(torch.int32)
        self._codes[cell_at], self._codes[into_at] = blank, code

    def _share(self, amounts: tuple[Tensor, Tensor]) -> None:
        """Set which places hold food and which poison."""
        self.food, self.poison = amounts  # N int32 each
        places = self._places.view(self._shape)
        is_item = places < (self.food + self.poison)[:, None]
        codes = is_item.to(torch.int8).mul_(POISON).add_(places < self.food[:, None], alpha=FOOD - POISON)
        self._codes = codes.flatten()  # N*E int8, what a cell holds
