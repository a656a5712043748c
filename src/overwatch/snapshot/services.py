"""Services beside a trainer, process by process, as a view may know them: how they are, what they count."""

import msgspec

from overwatch.snapshot.system import Bound


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a histogram whose span is known."""

    bucket: int
    """Place of its bucket."""
    value: float
    at: float
    """When it was observed, Unix seconds."""
    trace_id: str
    span_id: str


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One counter or histogram with labels, of one process over all its lives."""

    name: str
    """Full name; of a custom one without its prefix."""
    role: str
    rank: int
    labels: dict[str, str] = {}
    is_custom: bool = False
    """Whether no row of the catalogue knows it."""
    total: float | None = None
    """Of a counter its total, of a histogram the sum of its values, where that is known."""
    count: int | None = None
    """How many values a histogram holds; absent of a counter."""
    bounds: tuple[float, ...] = ()
    """Upper ends of a histogram's buckets, where they are known."""
    counts: tuple[int, ...] = ()
    """Values in each bucket, not cumulated, and one more of those above the last end."""
    samples: tuple[Sample, ...] = ()
    """The newest of each bucket that a trace shows."""


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A counter or histogram over all processes and labels."""

    total: float | None = None
    """Of a counter its total, of a histogram the sum of its values."""
    count: int | None = None
    """How many values a histogram holds; absent of a counter."""
    rate: float | None = None
    """Counted in a second, over the last minute; absent before its second record."""
    p50: float | None = None
    """About the middle of a histogram's values of the last minute; absent without any."""
    p99: float | None = None


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a service in a line."""

    name: str
    """Its role, and its rank where that is not 0."""
    status: str
    """`ok`, `warning`, `critical`, or `silent` where it has not reported for half a minute."""
    age_s: float
    """Since its newest record came."""
    parts: tuple[str, ...] = ()
    """What it is like in words with numbers, what matters most first."""
    bound: Bound | None = None
    """What holds it back, by its own phases; absent of a learner, which is a rank of its run."""
