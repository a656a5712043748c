"""Networks of one shape side by side, a row each, with Adam's moments and a copy that they can go back to.

Rules: moments are kept free of bias (m and v over 1 - beta^age), so that rows of different age take the same
step; epsilon stands under the root, inside v. Must not know what the weights mean.

Source: Kingma and Ba 2015, Adam; the mean of gradients g is m + (g - m) (1 - beta) / (1 - beta^age).

Shape letters: R rows.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

LEARNING_RATE: Final = 0.03
BETAS: Final = (0.9, 0.999)
EPS_ROOT: Final = 1e-16


class Stacked:
    """Weights of R networks, each tensor R ..., and their optimiser."""

    def __init__(
        self, weights: Sequence[Tensor], means: Sequence[Tensor], squares: Sequence[Tensor], age: Tensor
    ) -> None:
        self.weights, self._means, self._squares, self._age = list(weights), list(means), list(squares), age
        self._eps = torch.full((), EPS_ROOT, device=age.device)  # a fill, no copy

    @classmethod
    def zeros(cls, rows: int, shapes: Sequence[tuple[int, ...]], device: torch.device) -> "Stacked":
        """R networks of zeros."""
        weights, means, squares = (
            [torch.zeros(rows, *shape, device=device) for shape in shapes] for _ in range(3)
        )
        return cls(weights, means, squares, torch.zeros(rows, device=device))

    @property
    def tensors(self) -> list[Tensor]:
        """Weights, moments and age, not copied."""
        return [*self.weights, *self._means, *self._squares, self._age]

    def restart(self, rows: Tensor, values: Sequence[Tensor]) -> None:
        """Give the networks of `rows` (int64) these values and no past."""
        for tensor, value in zip(self.weights, values, strict=True):
            tensor.index_copy_(0, rows, value)
        for tensor in self.tensors[len(self.weights) :]:
            tensor.index_fill_(0, rows, 0.0)

    def take(self, rows: Tensor) -> "Stacked":
        """A copy of the networks of `rows` (int64)."""
        weights, means, squares = (
            [part.index_select(0, rows) for part in kind]
            for kind in (self.weights, self._means, self._squares)
        )
        return Stacked(weights, means, squares, self._age.index_select(0, rows))

    def put(self, rows: Tensor, taken: "Stacked") -> None:
        """Write back what `take` gave."""
        for tensor, value in zip(self.tensors, taken.tensors, strict=True):
            tensor.index_copy_(0, rows, value)

    def descend(self, gradients: Sequence[Tensor]) -> None:
        """One Adam step of all rows."""
        self._age += 1
        first, second = ((1 - beta) / (1 - beta**self._age) for beta in BETAS)
        for weight, gradient, mean, square in zip(
            self.weights, gradients, self._means, self._squares, strict=True
        ):
            by_row = (-1, *[1] * (weight.dim() - 1))
            mean.lerp_(gradient, first.view(by_row))
            square.lerp_(torch.addcmul(self._eps, gradient, gradient), second.view(by_row))
            weight.addcmul_(mean, square.rsqrt(), value=-LEARNING_RATE)


def squared_norm(gradients: Sequence[Tensor]) -> Tensor:
    """R: of each network's gradient, whatever tensors it lies in."""
    norms = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
    return torch.stack(norms).square().sum(dim=0)
