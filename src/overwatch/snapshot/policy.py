"""The policy pulse, as a view may know it: one reading a row, already judged and formatted."""

import msgspec


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit that a value crossed, else the nearest one."""

    text: str
    """As shown, e.g. `>.015` or `>4.0×`."""
    value: float
    """In the row's unit; relative limits are already multiplied out."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One policy value with its judgement."""

    value: float | None = None
    status: str = "absent"
    """`ok`, `warning`, `critical` or `absent`."""
    non_finite: str | None = None
    """`nan`, `inf`, `-inf`, or `undefined` where the row allows it."""
    limit: Limit | None = None
    trend: str | None = None
    """`up`, `flat` or `down`."""
    direction: str | None = None
    """Which way is good: `up`, `down`, or absent where neither is."""
    age_s: float | None = None
    history: tuple[float | None, ...] = ()
    """At most ten values, newest last; `None` where an update had no finite one."""
    scale: tuple[float, float] | None = None
    """Ends of the sparkline: the healthy end and the critical limit; absent means its own window."""
    spread: float | None = None
    """Largest minus smallest over the ranks; absent with one rank."""
    label: str = ""
    text: str = "–"
    """The value as shown."""
    warnings: int = 0
    """Updates so far that were beyond the warning limit and not beyond the critical one."""
    criticals: int = 0
    """Updates so far that were beyond the critical limit, or not finite."""
