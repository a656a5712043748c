"""The policy, as a view may know it: one reading a row, judged and formatted, and how two returns part."""

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
    role: str | None = None
    """Of a service's number the role of the process that reports it..."""
    rank: int | None = None
    """...and its rank."""


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy is paid by beside what is really wanted; see the finding `reward-hacking`."""

    state: str
    """`no-true-signal` and `waiting` abstain; else `together`, `parted`, or `parting` until that is held."""
    text: str
    """The state in words, with numbers."""
    gap: float | None = None
    """How far the proxy return is ahead: each as a place between its lowest and its highest, -1 to 1."""
    pairs: int = 0
    """Updates so far that had both returns."""
    needed: int = 0
    """Of them, the least before there is a verdict."""
    way: str | None = None
    """How they part: the true return `falls`, stays `flat`, or what is eaten follows the draw (`shares`)."""
    factors: tuple[str, ...] = ()
    """What shows it, while the finding stands."""
