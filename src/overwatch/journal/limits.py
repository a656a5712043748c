"""What a journal on disk may use, and what it promises for that."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

SEGMENT_BYTES: Final = 16 << 20
"""Of a journal that is large."""


class Durability(Enum):
    """What an acknowledged batch survives."""

    FSYNC = "fsync"
    """The machine's power loss."""
    FAST = "fast"
    """The collector's death; a power loss may cost the last second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """What a journal on disk may use."""

    durability: Durability = Durability.FSYNC
    """When a batch counts as accepted."""
    held_bytes: int = 256 << 20
    """Most bytes of batches that wait for their readers."""
    disk_bytes: int = 2 << 30
    """Most bytes on disk, one segment more or less."""
    segment_bytes: int = SEGMENT_BYTES
    """Size of one file, the unit in which room is given back."""

    def __post_init__(self) -> None:
        if self.held_bytes < 1 or self.disk_bytes < 2 * self.segment_bytes:
            raise ValueError(f"the disk must have room for two segments, and readers for a byte: {self}")
