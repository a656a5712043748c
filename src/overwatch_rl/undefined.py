"""Numbers that are undefined, as tensors carry them: the mean of no episodes, a share of nothing.

Whether a number is defined may be known on the device alone, where every number has a place all the same.
Rule: NaN is only what a computation gave by fault, so that it can be reported as one.
"""

from typing import Final

import torch
from torch import Tensor

UNDEFINED: Final = torch.finfo(torch.float32).min
"""In the place of a number that is undefined; no computation gives it, and it is exact in wider types. Where
numbers come to the host it is left out."""


def where_defined(is_defined: Tensor, value: Tensor) -> Tensor:
    """The value where it is defined, else `UNDEFINED`; any shape."""
    return torch.where(is_defined, value, UNDEFINED)


def ratio(total: Tensor, count: Tensor) -> Tensor:
    """`total / count`, undefined where the count is 0; any shape."""
    return where_defined(count != 0, total / count)
