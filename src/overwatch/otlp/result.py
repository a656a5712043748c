"""What decoding yields: records, and an exact account of what became none."""

from typing import Final

import msgspec

from overwatch.events import Record

DETAILED: Final = 256
"""Problems of one request that have a detail of their own."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One item that was malformed."""

    reason: str
    """A word to count by, e.g. `malformed`."""
    detail: str
    """What was wrong, with the offending value."""


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one request and a count of everything else."""

    records: tuple[Record, ...] = ()
    problems: tuple[Problem, ...] = ()
    unattributed: int = 0
    """Items without a run id."""
    unmapped: int = 0
    """Metric points of foreign producers that no catalogue row knows."""
