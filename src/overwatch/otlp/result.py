"""What decoding yields: records, points that are not settled yet, and an exact account of all else. Pure.

A record or a point without a time is read with `UNTIMED` in its place, since a request is read without a
clock; the receive stamp of its batch takes that place where the batch is at hand (`timed`). A time that
cannot be is a mistake of its sender, mostly of the unit. Must not know messages.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from overwatch import catalog
from overwatch.events import Origin, Record
from overwatch.otlp.distribution import Distribution
from overwatch.otlp.moments import Moments, Subject
from overwatch.otlp.totals import Alive, Position

EARLIEST: Final = 946_684_800_000_000_000
"""Start of the year 2000, in Unix nanoseconds: seconds, milliseconds and microseconds are all below."""
LATEST: Final = 4_102_444_799_999_999_999
"""End of the year 2099."""
UNTIMED: Final = 0
"""No time was sent; proto3 cannot distinguish that from a time of 0."""

_UNITS: Final = {"seconds": 1_000_000_000, "milliseconds": 1_000_000, "microseconds": 1_000}

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


class SeriesKey(msgspec.Struct, frozen=True, kw_only=True):
    """Of which series a point is, and how it counts."""

    origin: Origin
    row: catalog.Metric
    subject: Subject
    group: str
    """What adds up to one value."""
    part: str
    """Which series of the group."""
    changes: bool
    """Whether its points hold what is new since the one before, rather than everything."""
    rises: bool
    """Of a sum: whether it can never be less than before."""
    is_tally: bool
    """Whether it is counted process by process; `subject` is then its labels, each name before its value."""


class Point(msgspec.Struct, frozen=True):
    """One point of a series, which means something only with those before it."""

    of: SeriesKey
    start: int
    """Unix nanoseconds since which it counts; 0 where that is not known."""
    at: int
    value: float | Distribution

    @property
    def position(self) -> Position:
        """Where it belongs."""
        return Position(self.of.origin.run_id, self.of.group, self.of.part, self.start, self.at)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """What a request reports, while its series are not settled."""

    moments: Moments
    """Its other values."""
    points: tuple[Point, ...]


def reject(problems: list[Problem], rejected: RejectedError) -> None:
    """Count an item that was rejected."""
    # Details beyond what is ever read would cost many times the bytes they came in.
    problems.append(problems[-1] if len(problems) >= DETAILED else rejected.problem)


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
    is_scaled: bool = False
    """Whether a value of a metric is other than it was sent, for its unit or its sign."""
    untimed: int = 0
    """Items without a time: the batch's receive stamp is theirs."""
    alive: tuple[Alive, ...] = ()
    """Reports of entities, which end when there are no more."""
    late: int = 0
    """Points of settled series that came twice, or after a newer one."""
    resets: int = 0
    """Series that began anew, for a restart or a gap."""
    overlaps: int = 0
    """Points that two writers sent of one series at once."""


def checked_time(what: str, at: int) -> int:
    """A time, Unix nanoseconds, or `UNTIMED`; raises `RejectedError` for one that cannot be."""
    if EARLIEST <= at <= LATEST or at == UNTIMED:
        return at
    day = datetime.fromtimestamp(at // _UNITS["seconds"], tz=UTC).date()
    fits = (f"it looks like {unit}: multiply by {by:,}" for unit, by in _UNITS.items() if can_be(at * by))
    fix = next(fits, "check the sender's clock")
    raise RejectedError(
        "impossible_time", f"{what} has time {at}, which is {day} in nanoseconds since 1970; {fix}"
    )


def can_be(at: int) -> bool:
    """Whether something can have been sent at this time, Unix nanoseconds."""
    return EARLIEST <= at <= LATEST


def timed(decoded: Decoded, stamp: int) -> Decoded:
    """A request with its batch's receive stamp wherever it has no time."""
    if not decoded.untimed:
        return decoded
    series = decoded.series
    if series is not None:
        points = tuple(_timed_point(point, stamp) for point in series.points)
        series = Series(moments=series.moments.copy(stamp), points=points)
    replace = msgspec.structs.replace
    return replace(
        decoded,
        records=tuple(_timed_record(record, stamp) for record in decoded.records),
        series=series,
        alive=tuple(one if one.at else replace(one, at=stamp) for one in decoded.alive),
        untimed=0,
    )


def _timed_record(record: Record, stamp: int) -> Record:
    if record.event.at:
        return record
    return msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, at=stamp))


def _timed_point(point: Point, stamp: int) -> Point:
    if point.at:
        return point
    return msgspec.structs.replace(point, at=stamp, start=min(point.start, stamp))
