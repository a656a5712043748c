"""When a lane's memory will be full: the trend of its peaks, where it stands out from their noise.

Memory that goes up and down with every update has level peaks and no trend; one that filled while the run
started and stays has a trend that is over. Pure; + − × ÷ and square roots only.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from overwatch.state.run import Gauge
from overwatch.state.usage import Peaks

LEAST_PEAKS: Final = 8
LEAST_READINGS: Final = 8
SURE: Final = 6.0
"""Standard errors by which the slope must be above 0; readings that follow one another are alike."""
LEAST_RISE: Final = 0.005
"""Share of the whole memory that the window must have risen."""
STILL: Final = 0.5
"""Share of the window's slope that its newer half must have: else the rise is over."""
BEFORE_NS: Final = 15_000_000_000
"""Peaks older than this are what was usual, for a rise of seconds."""
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
    if gauge is None or total is None or total <= 0:
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
    line, half = _line(times, values), len(values) // 2
    newer = _line(times[half:], values[half:])
    span_s = (times[-1] - times[0]) / 1e9
    if line.slope * span_s < LEAST_RISE * total or line.slope < SURE * line.error:
        return None
    if newer.slope < STILL * line.slope:
        return None
    rate = max(line.slope, newer.slope)
    left = max(0.0, total - max(newer.end, values[-1]))
    return MemoryTrend(rate=rate, oom_s=left / rate, confidence=0.5 + 0.45 * line.fit)


def _of_seconds(gauge: Gauge, peaks: Peaks | None, total: float) -> MemoryTrend | None:
    """Over the newest readings: up at nearly every one, and higher than it ever was in the minutes before."""
    values = [value for value in gauge.history.items if value is not None]
    if len(values) < LEAST_READINGS:
        return None
    steps = [after - before for before, after in pairwise(values)]
    if min(steps) < 0 or sum(step > 0 for step in steps) < 0.8 * len(steps):
        return None
    span_s = (gauge.times.items[-1] - gauge.times.items[-len(values)]) / 1e9
    if span_s <= 0 or values[-1] - values[0] < LEAST_RISE * total:
        return None
    older = [] if peaks is None else _older(peaks, gauge.at - BEFORE_NS)
    if older and values[-1] <= max(older):
        return None
    rate = (values[-1] - values[0]) / span_s
    return MemoryTrend(rate=rate, oom_s=max(0.0, total - values[-1]) / rate, confidence=QUICK_CONFIDENCE)


def _older(peaks: Peaks, until: int) -> list[float]:
    return [value for at, value in zip(peaks.at.items, peaks.highest.items, strict=True) if at <= until]


def _line(times: Sequence[int], values: Sequence[float]) -> _Line:
    """Least squares; a line through fewer than three points is sure of nothing."""
    n = len(values)
    xs = [(at - times[-1]) / 1e9 for at in times]
    mean_x, mean_y = sum(xs) / n, sum(values) / n
    square_x = sum((x - mean_x) * (x - mean_x) for x in xs)
    if n < 3 or square_x <= 0:
        return _Line(0.0, values[-1], float("inf"), 0.0)
    both = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, values, strict=True))
    slope = both / square_x
    square_y = sum((y - mean_y) * (y - mean_y) for y in values)
    rest = max(0.0, square_y - slope * both)
    error = (rest / (n - 2) / square_x) ** 0.5
    fit = 1.0 - rest / square_y if square_y > 0 else 0.0
    return _Line(slope, mean_y - slope * mean_x, error, fit)
