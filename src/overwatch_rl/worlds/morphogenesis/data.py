"""The supervised task that hosts learn, and how minibatches of it come.

Digits are scikit-learn's, 8 x 8 pixels, and come with it: nothing is downloaded.

Rules: minibatch t of a seed is the same whatever was grown. Must not know networks.

Shape letters: N hosts, S samples, I pixels x channels.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from sklearn.datasets import load_digits
from torch import Tensor

NUM_CLASSES: Final = 10
DIGITS_TRAIN: Final = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Images as rows of pixels, channel by channel, and their classes; ten classes."""

    name: str
    shape: tuple[int, int, int]  # channels, height, width
    train_x: Tensor  # S I float32 in 0..1
    train_y: Tensor  # S int64
    valid_x: Tensor  # S I float32 in 0..1
    valid_y: Tensor  # S int64

    @property
    def num_pixels(self) -> int:
        """Of all channels."""
        return self.train_x.shape[1]


@cache
def digits() -> Dataset:
    """The default, 1,200 and 597 images split by position: the same for every run."""
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float() / 16.0
    y = torch.from_numpy(labels).long()
    train, valid = slice(None, DIGITS_TRAIN), slice(DIGITS_TRAIN, None)
    return Dataset(
        name="digits", shape=(1, 8, 8), train_x=x[train], train_y=y[train], valid_x=x[valid], valid_y=y[valid]
    )


class Resident:
    """All images are on the device; a minibatch is one gather."""

    def __init__(self, data: Dataset, shape: tuple[int, int], device: torch.device) -> None:
        self._x, self._y = data.train_x.to(device), data.train_y.to(device)
        self._shape = shape
        self._order = torch.Generator(device)

    def seed(self, seed: int) -> None:
        """Begin the order of this seed."""
        self._order.manual_seed(seed)

    def take(self) -> tuple[Tensor, Tensor]:
        """The next minibatch of every host."""
        index = torch.randint(
            len(self._y), self._shape, generator=self._order, device=self._y.device
        ).flatten()
        x, y = self._x.index_select(0, index), self._y.index_select(0, index)
        return x.view(*self._shape, -1), y.view(self._shape)

    def state(self) -> Tensor:
        """Of the generator."""
        return self._order.get_state()

    def restore(self, state: Tensor) -> None:
        """Go on from there."""
        self._order.set_state(state)
