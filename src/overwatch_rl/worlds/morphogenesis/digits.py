"""The supervised task that hosts learn: scikit-learn's handwritten digits, 8 x 8 pixels, ten classes.

The images come with scikit-learn; nothing is downloaded.
"""

from dataclasses import dataclass
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor

NUM_TRAIN = 1200
NUM_PIXELS = 64
NUM_CLASSES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """Images as rows of 64 pixels in 0..1 and their classes."""

    train_x: Tensor  # 1200 64 float32
    train_y: Tensor  # 1200 int64
    valid_x: Tensor  # 597 64 float32
    valid_y: Tensor  # 597 int64


@cache
def digits() -> Digits:
    """The task, split by position: the same for every run."""
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float() / 16.0
    y = torch.from_numpy(labels).long()
    return Digits(train_x=x[:NUM_TRAIN], train_y=y[:NUM_TRAIN], valid_x=x[NUM_TRAIN:], valid_y=y[NUM_TRAIN:])
