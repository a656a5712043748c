"""The policy's numbers: one series a row, judged at every update so that no breach is missed."""

import math
from enum import Enum

import msgspec

from overwatch.catalog import Limits, Metric, NonFinite
from overwatch.events.adding import added
from overwatch.state.judge import Judgement, Status, judge
from overwatch.state.ring import Ring, median

HISTORY = 10
MEDIAN_WINDOW = 64
MEDIAN_NEEDS = 5
"""Relative limits wait for this many earlier values."""
LEVEL = 5
"""Newest values whose median has no bad luck left."""
STATUS_WINDOW = 5
UNDEFINED = "undefined"
"""What is said of a value that has no answer yet."""
SHARE_WINDOW = 20
"""Newest updates over which a share of updates is told."""


class Health(Enum):
    """How a run was before an update, as far as its baselines are concerned."""

    WELL = "well"
    """It earns its best, or more and more."""
    UNKNOWN = "unknown"
    TROUBLE = "trouble"


class Series(msgspec.Struct, kw_only=True):
    """One policy value over time."""

    at: int
    """Producer's time of the newest value, Unix nanoseconds."""
    stamp: int
    """Receive stamp of the newest value."""
    value: float | None = None
    """The newest value; `None` when it was not finite."""
    non_finite: str | None = None
    """`nan`, `inf`, `-inf`; `undefined` where the row allows it."""
    judgement: Judgement | None = None
    """`None` while nothing finite was judged."""
    history: Ring[float | None]
    window: Ring[float]
    """Newest finite values."""
    usual: Ring[float] = msgspec.field(default_factory=lambda: Ring(MEDIAN_WINDOW))
    """Those for the median that relative limits use: none that were bad, or of a run in trouble."""
    statuses: Ring[int]
    """Statuses of the newest updates, for holds."""
    highest: float | None = None
    """Largest finite value so far."""
    lowest: float | None = None
    """Smallest finite value so far."""
    highest_level: float | None = None
    """Largest median of `LEVEL` values one after another so far: no lucky update makes it."""
    updates: int = 0
    """Values received."""
    warnings: int = 0
    criticals: int = 0


class Many(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of several updates that became one."""

    n: int
    low: float | None = None
    high: float | None = None
    """Finite extremes; `None` where the row has no limits."""
    warnings: int = 0
    criticals: int = 0


def new_series() -> Series:
    """A series that has received nothing."""
    return Series(
        at=0, stamp=0, history=Ring(HISTORY), window=Ring(MEDIAN_WINDOW), statuses=Ring(STATUS_WINDOW)
    )


def observe(
    series: Series, row: Metric | None, limits: Limits, value: float, *, health: Health = Health.UNKNOWN
) -> None:
    """Fold one value of one update; custom rows (`None`) are kept and never judged."""
    series.updates += 1
    if not math.isfinite(value):
        _observe_non_finite(series, row, value)
        return
    series.value, series.non_finite = value, None
    _stretch(series, value)
    own_median = _own_median(series)
    series.history.push(value)
    series.window.push(value)
    level = median(series.window.items[-LEVEL:])
    if level is not None and (series.highest_level is None or level > series.highest_level):
        series.highest_level = level
    series.judgement = None if row is None else _judged(series, row, limits, own_median)
    if series.judgement is not None:
        _count(series, series.judgement.status)
    if limits.is_relative and _is_usual(series, health):
        series.usual.push(value)


def _is_usual(series: Series, health: Health) -> bool:
    """Whether the newest value is a measure for later ones: a baseline that learns a fault hides it."""
    bad = series.judgement is not None and series.judgement.status is not Status.OK
    return health is Health.WELL or not (bad or health is Health.TROUBLE)


def _stretch(series: Series, value: float) -> None:
    """Widen the range of what was seen so far."""
    series.highest = value if series.highest is None else max(series.highest, value)
    series.lowest = value if series.lowest is None else min(series.lowest, value)


class Rest(msgspec.Struct, kw_only=True):
    """The updates of one record before its last: their breaches, and how many of those were answered."""

    n: int
    warnings: int
    criticals: int
    last: int = 0
    """Number of the record's last update."""
    excused_warnings: int = 0
    excused_criticals: int = 0


def observe_conflated(
    series: Series,
    row: Metric | None,
    limits: Limits,
    value: float,
    many: Many,
    *,
    health: Health = Health.UNKNOWN,
) -> Rest:
    """Fold several updates, of which `value` is the last; returns what is known of those before it.

    A hold looks at the newest updates, so of many it sees a sample with the same shares of bad ones.
    """
    own_median = _own_median(series)
    if row is not None and row.mean_of > 1:
        many = Many(n=many.n)
    last = judge(value, limits, own_median).status if math.isfinite(value) else Status.CRITICAL
    warnings, criticals = _breaches(many, limits, own_median)
    rest = Rest(
        n=many.n - 1,
        warnings=max(warnings - (last is Status.WARNING), 0),
        criticals=max(criticals - (last is Status.CRITICAL), 0),
    )
    for status in _sample(rest.n, rest.warnings, rest.criticals):
        series.statuses.push(int(status))
    series.warnings += rest.warnings
    series.criticals += rest.criticals
    series.updates += rest.n
    for end in (many.low, many.high):
        if end is not None:
            _stretch(series, end)
    observe(series, row, limits, value, health=health)
    return rest


def _breaches(many: Many, limits: Limits, own_median: float | None) -> tuple[int, int]:
    """Warnings and criticals: as counted by the sender, and no worse than the extremes allow.

    The sender may count by other limits than those of this run; the extremes are judged by these.
    """
    extremes = [judge(end, limits, own_median).status for end in (many.low, many.high) if end is not None]
    if not extremes:
        return many.warnings, many.criticals
    worst = max(extremes)
    if worst is Status.OK:
        return 0, 0
    if worst is Status.WARNING:
        return max(many.warnings + many.criticals, 1), 0
    return many.warnings, max(many.criticals, 1)


def excuse(series: Series, rest: Rest, *, warnings: int, criticals: int) -> None:
    """So many breaches before the last update of the newest record were none."""
    warnings, criticals = min(warnings, rest.warnings), min(criticals, rest.criticals)
    if (warnings, criticals) == (rest.excused_warnings, rest.excused_criticals):
        return
    series.warnings -= warnings - rest.excused_warnings
    series.criticals -= criticals - rest.excused_criticals
    rest.excused_warnings, rest.excused_criticals = warnings, criticals
    items = series.statuses.items
    sample = _sample(rest.n, rest.warnings - warnings, rest.criticals - criticals)
    newest = [*(int(status) for status in sample), *items[-1:]][-len(items) :]
    items[-len(newest) :] = newest


def _sample(n: int, warnings: int, criticals: int) -> list[Status]:
    """At most a window of statuses in the proportions of `n` updates, the bad ones newest."""
    size = min(n, STATUS_WINDOW)
    bad = size * min(criticals, n) // n if n else 0
    poor = size * min(criticals + warnings, n) // n - bad if n else 0
    return [Status.OK] * (size - bad - poor) + [Status.WARNING] * poor + [Status.CRITICAL] * bad


def share_above(series: Series, limit: float) -> float:
    """In what share of the newest updates with a finite value it was above `limit`; there must be one."""
    newest = series.window.items[-SHARE_WINDOW:]
    return sum(value > limit for value in newest) / len(newest)


def forgive(series: Series) -> None:
    """The newest value is no breach: the trainer itself has answered it."""
    judgement = series.judgement
    if judgement is None or judgement.status is Status.OK:
        return
    series.warnings -= judgement.status is Status.WARNING
    series.criticals -= judgement.status is Status.CRITICAL
    series.statuses.items[-1] = int(Status.OK)
    series.judgement = Judgement(Status.OK, judgement.limit, judgement.threshold)


def unjudge(series: Series) -> None:
    """Forget how the values so far were judged, because they were not what they were taken for."""
    rebase(series)
    series.warnings = series.criticals = 0


def rebase(series: Series) -> None:
    """Forget what was best and usual, because the task is another one; what is shown stays."""
    series.highest = series.lowest = series.highest_level = None
    series.judgement = None
    series.window, series.usual = Ring(MEDIAN_WINDOW), Ring(MEDIAN_WINDOW)
    series.statuses = Ring(STATUS_WINDOW)


def _judged(series: Series, row: Metric, limits: Limits, own_median: float | None) -> Judgement | None:
    """The newest value judged, or the mean of as many as the row asks for; `None` while there are fewer."""
    newest = series.window.items[-row.mean_of :]
    if len(newest) < row.mean_of:
        return None
    return judge(added(newest) / len(newest), limits, own_median)


def _own_median(series: Series) -> float | None:
    return median(series.usual.items) if len(series.usual.items) >= MEDIAN_NEEDS else None


def _observe_non_finite(series: Series, row: Metric | None, value: float) -> None:
    series.value = None
    series.history.push(None)
    if row is not None and row.non_finite is NonFinite.UNDEFINED:
        series.non_finite, series.judgement = UNDEFINED, None
        return
    series.non_finite = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if row is not None:
        series.judgement = Judgement(Status.CRITICAL)
        _count(series, Status.CRITICAL)


def _count(series: Series, status: Status) -> None:
    series.statuses.push(int(status))
    series.warnings += status is Status.WARNING
    series.criticals += status is Status.CRITICAL
