"""The past of a run, as a view may know it: an answer of its own, which no recording of snapshots holds.

Columns are parallel tuples, the oldest first; a column stands for some samples, with the least and the most
of them, `None` where none was finite.
"""

from typing import Final

import msgspec

HISTORY_VERSION: Final = "1.2"
MOST_COLUMNS: Final = 512
MOST_CURVES: Final = 64
"""Of one answer; further ones are asked for by name."""
CLOSE_S: Final = 120.0
"""A range so long, and none longer, is read again from a recording to show every sample of it."""


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of a run's past is wanted."""

    names: tuple[str, ...] = ()
    """Names of numbers, or patterns with `*`; all without."""
    columns: int = 256
    """Most columns of a curve."""
    since: float | None = None
    """From when, Unix seconds."""
    until: float | None = None
    about: bool = False
    """With the run's configuration."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, as a line across a chart."""

    value: float
    severity: str
    """`warning` or `critical`."""
    text: str
    """As shown, e.g. `>.015`."""
    above: bool = True
    """Whether what is above it is bad, else what is below."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One number over time."""

    name: str
    label: str
    unit: str | None = None
    fmt: str
    """`format()` specification of its values."""
    suffix: str = ""
    rank: int | None = None
    """The rank that it is of, where that is not the one that leads."""
    samples: int
    """Of the whole run."""
    non_finite: int
    """Samples among them that were not finite."""
    each: int | None = None
    """Samples that a column stands for at most: with 1 every sample is shown."""
    at: tuple[float, ...] = ()
    """Time of each column's newest sample, Unix seconds."""
    update: tuple[int | None, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    limits: tuple[Line, ...] = ()
    scale: tuple[float, float] | None = None
    """Ends of the axis of a row with limits; absent where the range of the values is to be taken."""
    direction: str | None = None
    """Which way is good: `up`, `down`, or absent where neither is."""
    status: str = "absent"
    """Of the newest value: `ok`, `warning`, `critical`, or `absent` where nothing judges it."""
    text: str = "–"
    """The newest value as shown."""
    best: float | None = None
    """The best value of the whole run, where a direction is good."""
    best_update: int | None = None


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A finding on the axis of time."""

    code: str
    severity: str
    subject: str | None = None
    """`gpu gpu1`, `env 17`; absent for the run as a whole."""
    since: float
    cleared_at: float | None = None
    message: str = ""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What the trainer is and how it was started."""

    config: dict[str, str] = {}
    """Its settings, by name."""
    revision: dict[str, str] = {}
    environment: dict[str, str] = {}


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The past of one run, as far as it was asked for."""

    schema_version: str = HISTORY_VERSION
    run_id: str
    since: float | None = None
    """From when on numbers are held, Unix seconds: the run's begin, or later where the past begins later."""
    until: float | None = None
    names: tuple[str, ...] = ()
    """Of all numbers that there are."""
    cut: dict[str, int] = {}
    """Samples of numbers that are beyond the most of a run, by name."""
    left_out: tuple[str, ...] = ()
    """Names that were asked for and are beyond the most of one answer."""
    curves: tuple[Curve, ...] = ()
    moments: tuple[Moment, ...] = ()
    """Oldest first."""
    moments_left_out: int = 0
    """Older ones that are not held any more."""
    about: About | None = None


decode: Final = msgspec.json.Decoder(History).decode
"""An answer from JSON; raises `msgspec.MsgspecError`."""
