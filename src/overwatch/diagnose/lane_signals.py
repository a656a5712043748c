"""What phases and readings show of a lane or rank: its use of time, memory that fills up, turns, spreads.

- `Cycle`: what each rank spends its time on, and which rank the others wait for. A share is of all the time
  that passed, so phases within phases count once each and a phase may happen many times an update. A rank's
  work is what is left of an update when its waiting for others is taken off: the straggler is who works
  longest and waits least.
- `MemoryTrend`: when memory will be full, by the trend of its peaks, where it stands out from their noise.
  Memory that goes up and down has no trend until it is higher than it ever was before it last went down; one
  that filled while the run started and stays has a trend that is over, and a few steps up are none. + − × ÷
  and square roots only.
- `Sawtooth`: a lane that works and rests in turn: its utilisation goes up and down, several times, by much.

Pure.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Final

import msgspec

from overwatch.catalog.phases import Phase as Kind
from overwatch.catalog.phases import parse_phase
from overwatch.diagnose.fleet import quick
from overwatch.events.adding import added
from overwatch.state.arrays import median, seconds_between
from overwatch.state.machines import Gauge, Peaks
from overwatch.state.rhythm import Phase

LEAST_ENDS: Final = 3
WINDOW_NS: Final = 20_000_000_000
"""Of the time that a share is a share of."""
LEAST_MARKS: Final = 4
"""Marks that are looked at, however long ago, where phases are long."""
START_NS: Final = 20_000_000_000
"""So long a learner may wait for its first experience."""
LEFT_NS: Final = 5_000_000_000
"""The least time for which others go on without a rank before it is no part of them."""
GONE: Final = 4
"""A phase that did not end for so many of its own intervals, and a minute, is no part of the loop."""


class Cycle(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank spends its time."""

    rank: int = 0
    shares: dict[str, float] = {}
    """Share of the time by kind of phase; absent where the rank reports none of the kind."""
    coming: tuple[str, ...] = ()
    """Kinds of phases that it reports, of which too little is known for a share."""
    work_s: float | None = None
    """Of each update, what it does not wait for others; only where it reports how long it waits."""
    pace: float | None = None
    """Its work over the median of the other ranks'."""
    slowest: int | None = None
    """The rank that works longest, where it is another one."""

    def share(self, kind: Kind) -> float | None:
        """Share of the time spent in a kind of phase; `None` where the rank does not report it."""
        return self.shares.get(kind.value)


def cycles_of(phases: Mapping[int, Mapping[str, Phase]]) -> dict[int, Cycle]:
    """Every rank that reports phases, by rank, compared with the others; not one that they go on without."""
    newest = max((phase.at for of_rank in phases.values() for phase in of_rank.values()), default=0)
    cycles = {rank: cycle_of(of_rank, rank) for rank, of_rank in phases.items() if _is_in(of_rank, newest)}
    works = {rank: cycle.work_s for rank, cycle in cycles.items() if cycle.work_s is not None}
    slowest = max(works, key=lambda rank: (works[rank], -rank), default=None)
    for rank, own in works.items():
        others = quick([work for other, work in works.items() if other != rank])
        if others is not None and others > 0:
            to = None if slowest == rank else slowest
            cycles[rank] = msgspec.structs.replace(cycles[rank], pace=own / others, slowest=to)
    return cycles


def _is_in(phases: Mapping[str, Phase], newest: int) -> bool:
    """Whether others wait for this rank: they have not ended phases for long since it ended its last."""
    own = max((phase.at for phase in phases.values()), default=0)
    longest_s = max((_interval(phase) or 0.0 for phase in phases.values()), default=0.0)
    return newest - own <= max(LEFT_NS, GONE * longest_s * 1e9)


def cycle_of(phases: Mapping[str, Phase], rank: int = 0) -> Cycle:
    """What one process spends its time on, beside no other."""
    newest = max((phase.at for phase in phases.values()), default=0)
    shares, coming, update_s = dict[str, float](), list[str](), None
    updates = (phase.first_at for name, phase in phases.items() if parse_phase(name) is Kind.UPDATE)
    learns_since = min((first for first in updates if first is not None), default=None)
    for name, phase in phases.items():
        kind, since = parse_phase(name), 0
        if kind is None:
            continue
        if kind is Kind.QUEUE_WAIT:
            # Before the first update, or a start that takes long, those who collect are still starting.
            since = (phase.first_at or 0) + START_NS if learns_since is None else learns_since
        share = _share(phase, newest, since)
        if share is None:
            coming.append(kind.value)
            continue
        shares[kind.value] = min(1.0, shares.get(kind.value, 0.0) + share)
        if kind is Kind.UPDATE:
            update_s = _interval(phase)
    waits = shares.get(Kind.SYNC.value)
    work_s = None if waits is None or update_s is None else update_s * (1 - waits)
    return Cycle(rank=rank, shares=shares, coming=tuple(coming), work_s=work_s)


def _interval(phase: Phase) -> float | None:
    """Median seconds from one end to the next."""
    return median(seconds_between(phase.ends.items))


def _share(phase: Phase, newest: int, since: int) -> float | None:
    """Share of the newest time, or of the newest few rounds; `None` where too little is known."""
    marks = [mark for mark in phase.marks.items if mark[0] >= since]
    if len(phase.ends.items) < LEAST_ENDS or len(marks) < 2:
        return None
    if newest - phase.at > max(3 * WINDOW_NS, GONE * (_interval(phase) or 0.0) * 1e9):
        return 0.0
    ended_at, ended_s = marks[-1]
    begun_at, begun_s = min(
        marks[-min(len(marks), LEAST_MARKS)], next(mark for mark in marks if mark[0] >= ended_at - WINDOW_NS)
    )
    return (ended_s - begun_s) / ((ended_at - begun_at) / 1e9)


LEAST_READINGS: Final = 8
"""Peaks, or readings, of a rise."""
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
LEVEL_OF: Final = 3
"""Newest readings whose mean is where memory is."""
FEW_STEPS: Final = 5
"""Steps up after which it is known whether what was written is removed again."""


class MemoryTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that goes up."""

    rate: float
    """Bytes a second."""
    oom_s: float
    """Seconds until it is full at that rate."""
    confidence: float
    span_s: float = 0.0
    """So long it has been watched."""


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
    """The trend of a lane's used memory; `None` without one, and where it cannot be known.

    Over minutes by its peaks, since it last went down, and not by a few steps; and over the newest readings,
    beside the minutes before: a line as sure as this fits better than two steps do, so what is taken once or
    twice is no trend.
    """
    if gauge is None or total is None or total < 1:
        return None
    peaks = Peaks() if peaks is None else peaks
    times, highest = peaks.at.items, peaks.highest.items
    first, before = _last_low(highest), [peaks.before]
    slow = None
    if not _is_stairs(highest[first:]):
        slow = _rise(times[first:], highest[first:], before + highest[:first], total, SURE)
    values = [value for value in gauge.history.items[-LEAST_READINGS:] if value is not None]
    before += [value for at, value in zip(times, highest, strict=True) if at <= gauge.at - BEFORE_NS]
    soon = _rise(gauge.times.items[-LEAST_READINGS:], values, before, total, SURE_SOON)
    return min(filter(None, (slow, soon)), key=lambda trend: trend.oom_s, default=None)


def _rise(
    times: Sequence[int], values: Sequence[float], before: Sequence[float], total: float, sure: float
) -> MemoryTrend | None:
    """A line beyond the noise of these, which goes on, and is higher now than it was before."""
    if len(values) < LEAST_READINGS:
        return None
    line, half = _line(times, values), len(values) // 2
    newer, span_s = _line(times[half:], values[half:]), (times[-1] - times[0]) / 1e9
    if line.slope * span_s < LEAST_RISE * total or line.slope < sure * line.error:
        return None
    level = added(values[-LEVEL_OF:]) / LEVEL_OF
    if newer.slope < STILL * line.slope or level <= max(before, default=0.0):
        return None
    rate = max(line.slope, newer.slope)
    left = max(0.0, total - max(newer.end, values[-1]))
    return MemoryTrend(rate=rate, oom_s=left / rate, confidence=0.5 + 0.45 * line.fit, span_s=span_s)


def _last_low(values: Sequence[float]) -> int:
    """Where it was last lower than before by half of its range; 0 where it was not, or that is short ago."""
    deep = (max(values, default=0.0) - min(values, default=0.0)) / 2
    tops = enumerate(accumulate(values, max), start=1)
    first = max((place for place, top in tops if top - values[place - 1] >= deep > 0), default=0)
    return first if len(values) - first >= LEAST_READINGS else 0


def _is_stairs(values: Sequence[float]) -> bool:
    """Whether it rises by a few steps, rests between them, and is not rising for long now."""
    tops = list(accumulate(values, max))
    rises = [after - before > (tops[-1] - tops[0]) / len(tops) / 2 for before, after in pairwise(tops)]
    runs = [len(list(run)) for rising, run in groupby(rises) if rising]
    is_rising = bool(runs) and rises[-1] and runs[-1] >= LEAST_READINGS
    return not is_rising and 3 * rises.count(False) >= len(rises) and len(runs) <= FEW_STEPS


def _line(times: Sequence[int], values: Sequence[float]) -> _Line:
    """Least squares; a line through one moment is sure of nothing."""
    n = len(values)
    xs = [(at - times[-1]) / 1e9 for at in times]
    mean_x, mean_y = added(xs) / n, added(values) / n
    square_x = added((x - mean_x) * (x - mean_x) for x in xs)
    if square_x <= 0:
        return _Line(0.0, values[-1], float("inf"), 0.0)
    slope = added((x - mean_x) * (y - mean_y) for x, y in zip(xs, values, strict=True)) / square_x
    square_y = added((y - mean_y) * (y - mean_y) for y in values)
    rest = max(0.0, square_y - slope * slope * square_x)
    fit = 1.0 - rest / square_y if square_y > 0 else 0.0
    return _Line(slope, mean_y - slope * mean_x, (rest / (n - 2) / square_x) ** 0.5, fit)


SWING: Final = 0.4
"""Between the level when it works and the level when it rests."""
TURNS: Final = 3
"""Crossings of the middle among the newest readings."""
LEAST_VALUES: Final = 6


def sawtooth(gauge: Gauge | None) -> str:
    """`util swings 20% to 95% every 4.0s`, by the newest readings; empty where it does not.

    A driver averages over up to a second: a saw of shorter teeth is not in the readings, only in phases.
    """
    values = [value for value in gauge.history.items if value is not None] if gauge else []
    if gauge is None or len(values) < LEAST_VALUES:
        return ""
    ordered, quarter = sorted(values), max(1, len(values) // 4)
    low, high = added(ordered[:quarter]) / quarter, added(ordered[-quarter:]) / quarter
    middle = (low + high) / 2
    turns = sum((before < middle) != (after < middle) for before, after in pairwise(values))
    span_s = (gauge.times.items[-1] - gauge.times.items[-len(values)]) / 1e9
    if high - low < SWING or turns < TURNS or span_s <= 0:
        return ""
    return f"util swings {low:.0%} to {high:.0%} every {2 * span_s / turns:.1f}s"
