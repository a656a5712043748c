"""Short windows of recent values: the newest push the oldest out."""

from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

NORMAL: Final = 1.4826
"""Standard deviations in one median absolute deviation, for normal data."""


class Ring(msgspec.Struct, Generic[T]):
    """At most `size` items, oldest first."""

    size: int
    items: list[T] = msgspec.field(default_factory=list)

    def push(self, item: T) -> None:
        """Append one item; drop the oldest beyond `size`."""
        self.items.append(item)
        if len(self.items) > self.size:
            del self.items[0]


def median(values: list[float]) -> float | None:
    """The middle of the values, `None` of none. Exact: a sort and at most one mean."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2
