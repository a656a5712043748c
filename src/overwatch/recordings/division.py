"""One disk budget for all that a collector writes: how much each part of it may have.

Owns the division. What is needed for durability is reserved first; what can be made again yields first and
whole. What a volume has left counts as well as the budget, as others write to it too. Pure; must not know
what a part holds, or how its bytes are counted and freed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

OF_VOLUME: Final = 0.8
"""Share of a volume that is the budget where none is set, unless the parts want less."""
TIGHT: Final = 0.85
"""From this share of the room on what is written fills its budget."""
_SPARE_OF_VOLUME: Final = 0.05
_MOST_SPARE: Final = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something that is written."""

    name: str
    floor: int
    """Bytes that it needs to work at all."""
    most: int
    """Bytes that it may have on a large volume."""
    bytes: int = 0
    """On disk now."""
    is_needed: bool = False
    """Its bytes are not given back for others: acknowledged data, or what it takes to start again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A file system."""

    size: int
    free: int
    """Bytes that this process may still write."""

    @property
    def spare(self) -> int:
        """Bytes that are left to others: a volume is never filled to its end."""
        return min(round(self.size * _SPARE_OF_VOLUME), _MOST_SPARE)


def budget(volume: Volume, parts: Sequence[Part], wanted: int | None) -> int:
    """Most bytes of all parts: what was set, else by the volume."""
    if wanted is not None:
        return wanted
    return min(round(volume.size * OF_VOLUME), sum(part.most for part in parts))


def room(volume: Volume, parts: Sequence[Part], wanted: int | None) -> int:
    """Bytes that all parts may have now: the budget, or less where others have filled the volume."""
    possible = sum(part.bytes for part in parts) + volume.free - volume.spare
    return max(0, min(budget(volume, parts, wanted), possible))


def fitted(most: int, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The same parts, with floors that are no more than half of a small budget."""
    floors = sum(part.floor for part in parts)
    if floors <= most // 2:
        return tuple(parts)
    return tuple(replace(part, floor=part.floor * (most // 2) // floors) for part in parts)


def shares(most: int, parts: Sequence[Part]) -> dict[str, int]:
    """Bytes that each part may have, by its name; `parts` begin with the one that yields last.

    A needed part keeps what it has; then floors are granted in order, and the rest in proportion to what
    each part wants beyond its floor.
    """
    left, granted = most, dict.fromkeys((part.name for part in parts), 0)
    ordered = sorted(parts, key=lambda part: not part.is_needed)
    for part in ordered:
        floor = max(part.floor, part.bytes) if part.is_needed else part.floor
        granted[part.name] = min(floor, left)
        left -= granted[part.name]
    wants = {part.name: max(0, part.most - granted[part.name]) for part in parts}
    scale = min(1.0, left / sum(wants.values())) if any(wants.values()) else 0.0
    return {name: bytes_ + int(wants[name] * scale) for name, bytes_ in granted.items()}
