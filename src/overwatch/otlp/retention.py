"""How much of a run's numbers is left, from all of them to nothing, facts included.

Owns the steps and their order. Must not know batches.
"""

from enum import Enum
from typing import Final

_SECOND_NS: Final = 1_000_000_000


class RetentionLevel(Enum):
    """What a stretch of a recording still holds of a run; the value is the word in the index."""

    WHOLE = "whole"
    """Everything, as it came."""
    SECOND = "second"
    """Facts, one number a second, and everything around findings."""
    MINUTE = "minute"
    """Facts, one number a minute, and everything around findings."""
    SPARSE = "sparse"
    """Facts, one number in ten minutes, and one a second around findings."""
    GONE = "gone"
    """Nothing."""

    @property
    def step(self) -> int:
        """How far down it is, from 0."""
        return _ORDER.index(self)

    @property
    def period_ns(self) -> int:
        """Time of which one number is left; 0 where all are."""
        return _PERIODS[self]

    @property
    def kept_period_ns(self) -> int:
        """The same around findings."""
        return _SECOND_NS if self is RetentionLevel.SPARSE else 0

    @property
    def coarser(self) -> "RetentionLevel":
        """The next step down; `GONE` is the last."""
        return _ORDER[min(self.step + 1, len(_ORDER) - 1)]


_ORDER: Final = tuple(RetentionLevel)
_PERIODS: Final = {
    RetentionLevel.WHOLE: 0,
    RetentionLevel.SECOND: _SECOND_NS,
    RetentionLevel.MINUTE: 60 * _SECOND_NS,
    RetentionLevel.SPARSE: 600 * _SECOND_NS,
    RetentionLevel.GONE: 0,
}
