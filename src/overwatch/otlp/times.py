"""Which times can be, and what stands for none. Pure.

A record or a point without a time is read with `UNTIMED` in its place, since a request is read without a
clock; the receive stamp of its batch takes that place where the batch is at hand (`timed`). A time that
cannot be is a mistake of its sender, mostly of the unit. Must not know messages.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from overwatch.events import Record
from overwatch.otlp.result import Decoded, RejectedError
from overwatch.otlp.series import Point, Series

EARLIEST: Final = 946_684_800_000_000_000
"""Start of the year 2000, in Unix nanoseconds: seconds, milliseconds and microseconds are all below."""
LATEST: Final = 4_102_444_799_999_999_999
"""End of the year 2099."""
UNTIMED: Final = 0
"""No time was sent; proto3 cannot distinguish that from a time of 0."""

_UNITS: Final = {"seconds": 1_000_000_000, "milliseconds": 1_000_000, "microseconds": 1_000}


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
    value = point.position
    if value.at:
        return point
    return msgspec.structs.replace(point, position=value._replace(at=stamp, start=min(value.start, stamp)))
