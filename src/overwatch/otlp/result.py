"""What decoding yields: records, and an exact account of what became none."""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from overwatch.events import Record
from overwatch.otlp.entities import Alive
from overwatch.otlp.series import Series

Rest: TypeAlias = Callable[[], object] | None
"""What who is in no hurry calls now and then while something is decoded."""
DETAILED: Final = 256
"""Problems of one request that have a detail of their own."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One item that was malformed."""

    reason: str
    """A word to count by, e.g. `malformed`."""
    detail: str
    """What was wrong, with the offending value."""


class RejectedError(ValueError):
    """One item that can be none of what is kept."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(reason=reason, detail=detail)


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one request and a count of everything else."""

    items: int = 0
    """Log records, data points or spans in the request."""
    records: tuple[Record, ...] = ()
    problems: tuple[Problem, ...] = ()
    unattributed: int = 0
    """Items that name no run and nothing that implies one, and that no run would begin with."""
    unmapped: int = 0
    """Metric points of foreign producers that no catalogue row knows."""
    series: Series | None = None
    """Of metrics: what must be settled before there are records; nothing else is in `records` then."""
    untimed: int = 0
    """Items without a time: the batch's receive stamp is theirs."""
    alive: tuple[Alive, ...] = ()
    """Reports of entities, which end when there are no more."""
    late: int = 0
    """Points of settled series that came twice, or after a newer one."""
    resets: int = 0
    """Series that began anew, for a restart or a gap."""
    overlaps: int = 0
    """Points that two writers told of one series at once."""
