"""What all facts share: the producer's time, and how bad a thing is."""

from enum import Enum
from typing import Final

import msgspec


class Severity(Enum):
    """How bad; also the word in JSON."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for debug up to 3 for critical."""
        return _SEVERITY_RANK[self]


_SEVERITY_RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """What all events have: the producer's time."""

    at: int
    """Producer's Unix time in nanoseconds."""
