"""Points that mean something only with those before them: sums and distributions, not yet settled. Data only.

Must not know messages, or what becomes of a point.
"""

import msgspec

from overwatch import catalog
from overwatch.events import Origin
from overwatch.otlp.distribution import Distribution
from overwatch.otlp.moments import Moments
from overwatch.otlp.subject import Subject
from overwatch.otlp.totals import Position


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a series."""

    origin: Origin
    row: catalog.Metric
    subject: Subject
    position: Position
    value: float | Distribution
    changes: bool
    """Whether it holds what is new since the point before, rather than everything."""
    rises: bool = False
    """Of a sum: whether it can never be less than before."""
    is_tally: bool = False
    """Whether it is counted process by process; `subject` is then its labels, each name before its value."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """What a request tells, while its series are not settled."""

    moments: Moments
    """Its other values."""
    points: tuple[Point, ...]
