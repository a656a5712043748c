"""The policy's numbers: one series a row, judged at every update so that no breach is missed."""

import math

import msgspec

from overwatch.catalog import Limits, Metric, NonFinite
from overwatch.state.judge import Judgement, Status, judge
from overwatch.state.ring import Ring, median

HISTORY = 10
MEDIAN_WINDOW = 64
MEDIAN_NEEDS = 5
"""Relative limits wait for this many earlier values."""
STATUS_WINDOW = 5


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
    """Finite values for the median that relative limits use."""
    statuses: Ring[int]
    """Statuses of the newest updates, for holds."""
    highest: float | None = None
    """Largest finite value so far."""
    updates: int = 0
    """Values received."""
    warnings: int = 0
    criticals: int = 0


def new_series() -> Series:
    """A series that has received nothing."""
    return Series(
        at=0, stamp=0, history=Ring(HISTORY), window=Ring(MEDIAN_WINDOW), statuses=Ring(STATUS_WINDOW)
    )


def observe(series: Series, row: Metric | None, limits: Limits, value: float) -> None:
    """Fold one value of one update; custom rows (`None`) are kept and never judged."""
    series.updates += 1
    if not math.isfinite(value):
        _observe_non_finite(series, row, value)
        return
    series.value, series.non_finite = value, None
    series.highest = value if series.highest is None else max(series.highest, value)
    own_median = median(series.window.items) if len(series.window.items) >= MEDIAN_NEEDS else None
    series.judgement = None if row is None else judge(value, limits, own_median)
    series.history.push(value)
    series.window.push(value)
    if series.judgement is not None:
        _count(series, series.judgement.status)


def rebase(series: Series) -> None:
    """Forget what was best and usual, because the task is another one; what is shown stays."""
    series.highest = None
    series.window = Ring(MEDIAN_WINDOW)
    series.statuses = Ring(STATUS_WINDOW)


def _observe_non_finite(series: Series, row: Metric | None, value: float) -> None:
    series.value = None
    series.history.push(None)
    if row is not None and row.non_finite is NonFinite.UNDEFINED:
        series.non_finite, series.judgement = "undefined", None
        return
    series.non_finite = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if row is not None:
        series.judgement = Judgement(Status.CRITICAL)
        _count(series, Status.CRITICAL)


def _count(series: Series, status: Status) -> None:
    series.statuses.push(int(status))
    series.warnings += status is Status.WARNING
    series.criticals += status is Status.CRITICAL
