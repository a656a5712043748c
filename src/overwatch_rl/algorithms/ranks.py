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

    def mean(self, values: Tensor) -> Tensor:
        """The mean over ranks of a float tensor of any shape."""
        ...

    def any(self, flag: Tensor) -> Tensor:
        """Bool scalar: whether it is true on any rank."""
        ...

    def gradients(self, parameters: list[Tensor]) -> None:
        """Replace every gradient by its mean over ranks."""
        ...


class Alone:
    """One process."""

    size = 1

    def mean(self, values: Tensor) -> Tensor:
        """Its own."""
        return values

    def any(self, flag: Tensor) -> Tensor:
        """Its own."""
        return flag

    def gradients(self, parameters: list[Tensor]) -> None:
        """They stay."""
