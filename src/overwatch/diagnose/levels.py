"""What a row of the policy was like over the whole run, and how its returns stand: the only baselines.

A level is the median of ten updates one after another. A baseline is the levels of the present task but the
newest ones: its middle, its ends and how far one level lies from the next. So a row that rises and falls with
a schedule has its whole period in the baseline, noise that lasts (each update echoes the one before) is in
the distance of levels, and one lucky level is no measure: what a return held for two levels is its best. A
value that is sent again until an episode ends is one observation. An announced change of the task begins
anew; where the learning rate is raised, what follows is no departure.

`Outlook` is how the return stands, and decides how bad it is that another row departs: at its best or rising
nothing is lost. A return that never rose beyond its noise has no best. Pure; + − × ÷ and square roots only.
"""

from collections.abc import Mapping
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from overwatch.catalog.policy import LEARNING_RATE, RETURN
from overwatch.events.adding import added
from overwatch.state.arrays import NORMAL, median
from overwatch.state.policy import Series, scatter, unrest
from overwatch.state.run import RunState

BLOCK: Final = 10
"""Updates of a level."""
FEW: Final = 3
"""The same of a row that is sent every few updates, whose values are means already."""
SEEN: Final = 64
"""Observations that are remembered."""
RUNS: Final = 9
RUNS_NEEDED: Final = 3
"""Runs of one value that show how long a value is sent again."""
MOST: Final = 64
"""Levels that are remembered."""
FIRST: Final = 5
"""Updates whose median is what a row was at first."""
OF_TEN: Final = 0.4
"""Standard deviations of one update in the median of ten."""
NEEDED: Final = 5
"""Levels of a baseline from which a departure from it can be known."""
CURVE: Final = 7
"""Levels from which their scatter can be distinguished from a curve."""
LONG: Final = 16
"""Levels of which most are on no steep part of a curve, so that their steps show what lasts."""
LEAST_SPREAD: Final = 0.05
"""Distance of levels of a row that hardly scatters, as a share of its middle."""


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one row."""

    known: int = 0
    """Values of the series that are in it."""
    changed_at: int = 0
    """When the task last changed, as these levels know it."""
    seen: tuple[float, ...] = ()
    """The newest observations of the task: a value that is sent again and again until it changes is one."""
    last: float | None = None
    run: int = 0
    """Values since the last that differed."""
    runs: tuple[int, ...] = ()
    """For how many values the newest ones that differed were sent."""
    open: int = 0
    """Observations that are in no level yet."""
    first: float | None = None
    """Median of the first observations of the task."""
    items: tuple[float, ...] = ()
    """Levels of the present task, oldest first."""
    high: float = 0.0
    """The highest one by size, however old: what has died is a trace of it."""


def remember(known: Levels | None, series: Series, changed_at: int, size: int = BLOCK) -> Levels:
    """Return the levels after an update of a series."""
    if known is None or known.changed_at != changed_at or series.known < known.known:
        # The newest value came with, or after, what changed.
        start = 0 if known is None else series.known - 1
        known = Levels(changed_at=changed_at, known=start, high=0.0 if known is None else known.high)
    values = series.window.items
    for value in values[len(values) - min(series.known - known.known, len(values)) :]:
        known = observe(known, value, size)
    return msgspec.structs.replace(known, known=series.known)


def observe(known: Levels, value: float, size: int = BLOCK) -> Levels:
    """Return the levels with one more value."""
    runs, run = known.runs, known.run + 1
    if value != known.last:
        runs, run = ((*runs, known.run)[-RUNS:] if known.run else runs), 1
    usual = int(median([float(length) for length in runs]) or 1) if len(runs) >= RUNS_NEEDED else 1
    if run != 1 and run % usual:
        return msgspec.structs.replace(known, run=run)
    seen, count = (*known.seen, value)[-SEEN:], known.open + 1
    first, items, high = known.first, known.items, known.high
    if first is None and len(seen) >= min(FIRST, size):
        first = median(list(seen)) or 0.0
        high = max(high, abs(first))
    if count >= size:
        items, count = (*items, median(list(seen[-size:])) or 0.0)[-MOST:], 0
        high = max(high, abs(items[-1]))
    return msgspec.structs.replace(
        known, seen=seen, last=value, run=run, runs=runs, open=count, first=first, items=items, high=high
    )


class Span(NamedTuple):
    """What was usual of a row before its newest levels."""

    low: float
    middle: float
    high: float
    spread: float
    """How far one level lies from the next by chance."""


def span_of(known: Levels | None, series: Series, newest: int) -> Span | None:
    """Return the baseline without so many newest levels; `None` while there are few."""
    items = [] if known is None else list(known.items[: len(known.items) - newest])
    middle = median(items)
    if middle is None or len(items) < NEEDED:
        return None
    spread = max(_apart(items), OF_TEN * scatter(series.window.items), LEAST_SPREAD * abs(middle))
    return Span(min(items), middle, max(items), spread)


def _apart(items: list[float]) -> float:
    """How far a level lies from its neighbours, robust; a curve is no distance, and few show none."""
    if len(items) < CURVE:
        return 0.0
    steps = [after - before for before, after in pairwise(items)]
    bends = [abs(after - before) for before, after in pairwise(steps)]
    # A bend is of three levels: of levels that echo nothing it scatters √6 times as much as one of them.
    apart = NORMAL * (median(bends) or 0.0) / 2
    if len(items) >= LONG:
        centre = median(steps) or 0.0
        apart = max(apart, NORMAL * (median([abs(step - centre) for step in steps]) or 0.0))
    return apart


def rate_was_raised(state: RunState, levels: Mapping[str, Levels]) -> bool:
    """Whether the learning rate is well above what it was: steps become larger because they were asked to."""
    series, known = state.policy.get(LEARNING_RATE.name), levels.get(LEARNING_RATE.name)
    if series is None or series.value is None or known is None or len(known.items) < 2:
        return False
    return series.value > RAISED * min(known.items[-3:])


RAISED: Final = 1.3
BEGINNING: Final = 4
"""First levels, of which the lowest is what an untrained policy earns."""


class Outlook(Enum):
    """How a return stands."""

    UNKNOWN = "unknown"
    """None is sent, or too few."""
    FLAT = "flat"
    """It never rose beyond its noise, or stands still below its best."""
    GOOD = "good"
    """It rises, or is at its best."""
    FALLEN = "fallen"
    """It lost much of what it gained, beyond its noise."""


class Standing(NamedTuple):
    """A return beside its own past."""

    outlook: Outlook
    now: float = 0.0
    best: float = 0.0
    gained: float = 0.0
    """From the lowest level of the beginning to the best one; 0 where it never rose."""
    is_near: bool = False
    """Whether it is as high as it ever was, but for luck."""


LOST: Final = 0.3
"""Share of what was gained whose loss is a fall."""
LOST_EVALUATED: Final = 0.2
"""The same of evaluations, whose luck is less."""
LOST_AT_ONCE: Final = 0.5
"""The same where only the newest few updates show it."""
OF_LEVEL: Final = 0.7
"""Share of the level itself that counts as gained at least: what hardly rose has little to lose."""
NEAR: Final = 0.2
"""Share of it below the best that is at its best."""
NOISE: Final = 3.0
"""Distances of levels by which a rise must be beyond chance."""
FAR: Final = 4.0
"""The same of a fall: the best of many levels is a lucky one."""
UPDATES_OF_FALL: Final = 5.0
"""Scatters of one update by which each of the newest three must lie below, where a fall is sudden."""


def standing(known: Levels | None, size: int = BLOCK) -> Standing:
    """Return how a return stands, by levels of so many values."""
    values = [] if known is None else list(known.seen)
    if known is None or known.first is None or len(values) < 2 * FIRST:
        return _young(values)
    # What is mostly at its ceiling scatters by its dips alone; a fall that began is no noise.
    noise = max(scatter(values), unrest(values[: -min(FIRST, size)]))
    newest, ten = median(values[-min(FIRST, size) :]) or 0.0, median(values[-size:]) or 0.0
    # Where a return is all or nothing the median is no level.
    highest = max(newest, ten, added(values[-size:]) / len(values[-size:]))
    chance = max(OF_TEN * noise, _apart(list(known.items)))
    best, floor = _best(known, values)
    lost = LOST if size == BLOCK else LOST_EVALUATED
    gained = best - floor if best - floor > NOISE * chance else 0.0
    least = max(gained, (OF_LEVEL if gained else 1.0) * abs(best))
    at_once = best - max(LOST_AT_ONCE * least, UPDATES_OF_FALL * noise, FAR * chance)
    sank = len(known.items) >= 2 and highest < best - max(lost * least, FAR * chance)
    if (sank or max(values[-3:]) < at_once) and least > 0:
        return Standing(Outlook.FALLEN, newest, best, gained)
    before = median(values[-2 * size : -size]) if len(values) >= 2 * size else known.first
    rises = min(newest, ten) > max(before or 0.0, floor) + NOISE * chance
    # What rose is known to be noisy; of what never did a level of five is all that shows a fall.
    near = (highest if gained else newest) >= best - max(NEAR * least, NOISE * chance)
    near = near and values[-1] >= best - max(LOST * least, UPDATES_OF_FALL * noise)
    outlook = Outlook.GOOD if rises or (gained and near) else Outlook.FLAT
    return Standing(outlook, newest, best, gained, near)


def _young(values: list[float]) -> Standing:
    """How the return of a run with few updates stands: it rises, or nothing is known."""
    if len(values) < FIRST or min(values[-3:]) <= max(values[:2]):
        return Standing(Outlook.UNKNOWN)
    return Standing(Outlook.GOOD, values[-1], max(values), max(values) - min(values))


def _best(known: Levels, values: list[float]) -> tuple[float, float]:
    """The highest level that was held for two, and the lowest of the beginning."""
    items = (known.first or 0.0, *known.items)
    if len(items) < 3:
        return max(median(values[:BLOCK]) or 0.0, items[-1]), min(items)
    best = max(min(pair) for pair in pairwise(items))
    return best, min(items[:BEGINNING])


def of_return(levels: Mapping[str, Levels]) -> Standing:
    """Return how the training return stands."""
    return standing(levels.get(RETURN.name))
