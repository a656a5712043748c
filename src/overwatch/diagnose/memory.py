"""When a lane's memory will be full: the trend of its peaks, where it stands out from their noise.

Memory that goes up and down with every update has level peaks and no trend; one that filled while the run
started and stays has a trend that is over. Pure; + − × ÷ and square roots only.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from overwatch.events.adding import added
from overwatch.state.machines import Gauge, Peaks

LEAST_PEAKS: Final = 8
LEAST_READINGS: Final = 8
SURE: Final = 6.0
"""Standard errors by which the slope must be above 0; readings that follow one another are alike."""
SURE_SOON: Final = 8.0
"""The same for eight readings."""
LEAST_RISE: Final = 0.005
"""Share of the whole memory that the window must have risen."""
STILL: Final = 0.5
"""Share of the window's slope that its newer part must have: else the rise is over."""
BEFORE_NS: Final = 15_000_000_000
"""Peaks older than this are what was usual, for a rise of seconds."""
LEVEL: Final = 3
"""Newest readings whose mean is where memory is, for a rise of seconds."""
QUICK_CONFIDENCE: Final = 0.7


class MemoryTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that goes up."""

    rate: float
    """Bytes a second."""
    oom_s: float
    """Seconds until it is full at that rate."""
    confidence: float


class _Line(msgspec.Struct, frozen=True):
    """A straight line through points."""

    slope: float
    end: float
    """Its value at the newest point."""
    error: float
    """Standard error of the slope."""
    fit: float
    """Share of the variance that the line explains."""


def memory_trend(gauge: Gauge | None, peaks: Peaks | None, total: float | None) -> MemoryTrend | None:
    """The trend of a lane's used memory; `None` without one, and where nobody can tell."""
    if gauge is None or total is None or total < 1:
        return None
    slow = None if peaks is None else _of_peaks(peaks, total)
    quick = _of_seconds(gauge, peaks, total)
    found = [trend for trend in (slow, quick) if trend is not None]
    return min(found, key=lambda trend: trend.oom_s, default=None)


def _of_peaks(peaks: Peaks, total: float) -> MemoryTrend | None:
    """Over minutes."""
    times, values = peaks.at.items, peaks.highest.items
    if len(values) < LEAST_PEAKS:
        return None
    line, since = _line(times, values), _jump(values)
    newer = _line(times[since:], values[since:])
    span_s = (times[-1] - times[0]) / 1e9
    if line.slope * span_s < LEAST_RISE * total or line.slope < SURE * line.error:
        return None
    if newer.slope < STILL * line.slope:
        return None
    rate = max(line.slope, newer.slope)
    left = max(0.0, total - max(newer.end, values[-1]))
    return MemoryTrend(rate=rate, oom_s=left / rate, confidence=0.5 + 0.45 * line.fit)


def _of_seconds(gauge: Gauge, peaks: Peaks | None, total: float) -> MemoryTrend | None:
    """Over the newest eight readings: a line beyond their noise, higher than it was in the minutes before.

    A line as sure as this fits better than two steps do, so what is taken once or twice is no trend.
    """
    times, history = gauge.times.items[-LEAST_READINGS:], gauge.history.items[-LEAST_READINGS:]
    values = [value for value in history if value is not None]
    if len(values) < LEAST_READINGS:
        return None
    line, newer = _line(times, values), _line(times[LEAST_READINGS // 2 :], values[LEAST_READINGS // 2 :])
    rise = line.slope * (times[-1] - times[0]) / 1e9
    if rise < LEAST_RISE * total or line.slope < SURE_SOON * line.error or newer.slope < STILL * line.slope:
        return None
    older = [] if peaks is None else _older(peaks, gauge.at - BEFORE_NS)
    if older and added(values[-LEVEL:]) / LEVEL <= max(older):
        return None
    left = max(0.0, total - max(line.end, values[-1]))
    return MemoryTrend(rate=line.slope, oom_s=left / line.slope, confidence=QUICK_CONFIDENCE)


def _jump(values: Sequence[float]) -> int:
    """Where values are best cut in a lower and a higher part: one step up, which is no climb, is there."""
    total, before, best, place = added(values), 0.0, 0.0, len(values) // 2
    for size, value in enumerate(values[:-1], start=1):
        before += value
        apart = (total - before) / (len(values) - size) - before / size
        between = apart * abs(apart) * size * (len(values) - size)
        if between > best:
            best, place = between, size
    return place


def _older(peaks: Peaks, until: int) -> list[float]:
    return [value for at, value in zip(peaks.at.items, peaks.highest.items, strict=True) if at <= until]


def _line(times: Sequence[int], values: Sequence[float]) -> _Line:
    """Least squares; a line through fewer than three points is sure of nothing."""
    n = len(values)
    xs = [(at - times[-1]) / 1e9 for at in times]
    mean_x, mean_y = added(xs) / n, added(values) / n
    square_x = added((x - mean_x) * (x - mean_x) for x in xs)
    if n < 3 or square_x <= 0:
        return _Line(0.0, values[-1], float("inf"), 0.0)
    both = added((x - mean_x) * (y - mean_y) for x, y in zip(xs, values, strict=True))
    slope = both / square_x
    square_y = added((y - mean_y) * (y - mean_y) for y in values)
    rest = max(0.0, square_y - slope * both)
    error = (rest / (n - 2) / square_x) ** 0.5
    fit = 1.0 - rest / square_y if square_y > 0 else 0.0
    return _Line(slope, mean_y - slope * mean_x, error, fit)
