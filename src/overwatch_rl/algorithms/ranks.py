"""What an algorithm asks of the other processes that train the same policy.

The default is to be alone. Must not know how ranks reach one another.
"""

from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    """Reductions over all ranks; each is asked by every rank, in the same order."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        ...

    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks of a float tensor of any shape."""
        ...

    def any(self, flag: Tensor) -> Tensor:
        """Bool scalar: whether it is true on any rank."""
        ...

    def average(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its mean over ranks, in place; every rank counts the same."""
        ...

    def share(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by that of the first rank, in place."""
        ...


class Alone:
    """One process."""

    size = 1

    def sum(self, values: Tensor) -> Tensor:
        """Its own."""
        return values

    def any(self, flag: Tensor) -> Tensor:
        """Its own."""
        return flag

    def average(self, tensors: list[Tensor]) -> None:
        """They stay."""

    def share(self, tensors: list[Tensor]) -> None:
        """They stay."""
