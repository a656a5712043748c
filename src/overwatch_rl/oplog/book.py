"""What a store must know of the state that its operations fold to."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar


class Timed(Protocol):
    """An operation."""

    @property
    def at(self) -> int:
        """When it was, in Unix nanoseconds."""
        ...


Op = TypeVar("Op", bound=Timed)


class Book(Protocol[Op]):
    """A state, which changes by operations alone."""

    @property
    def items(self) -> Mapping[int, Any]:
        """What lives, by id: its bytes are kept."""
        ...

    def apply(self, operation: Op) -> None:
        """Change the state. Raises `LookupError` or `ValueError` where the operation is not of this state."""
        ...

    def snapshot(self, at: int) -> Op:
        """An operation that makes the whole state out of any other."""
        ...

    def mended(self, operation: Op) -> Op | None:
        """What an operation means where earlier ones are lost; `None` for nothing."""
        ...

    def lost(self, items: tuple[int, ...], at: int) -> list[Op]:
        """What takes items out whose bytes are gone."""
        ...
