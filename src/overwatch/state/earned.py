"""What each env's finished episodes tell, summed up when one ends: its newest, those before, its luck.

Only rows of which an episode ended are summed up anew, when somebody asks, so a tick costs what ended in it.
Derived, so no part of a checkpoint. Rules: only episodes of the present task count; what is too large to
square counts as unknown. Must not know what is low.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from overwatch.state.arrays import Derived, Floats, Ints, floats, grown, ints

RETURNS: Final = 32
"""Finished episodes remembered per env."""
SHOWN_RETURNS: Final = 10
"""Newest finished episodes whose mean is an env's return."""
LEAST: Final = 5
"""Episodes of the present task from which on an env is judged."""
RECENT: Final = 5
"""Newest episodes that tell what an env earns now; while there are few in all, one less."""
EARLIER: Final = 5
"""Episodes before those from which on there are enough."""
HUGE: Final = 1e100
"""From here on a square may not be finite."""
_MIDDLE: Final = 2
"""Place, from the lowest, of the recent return: the median of five, the upper one of four."""
_LASTING: Final = 3
"""Place of the one that must be low too: four of five, or all four."""
_FEW: Final = 256
"""Up to so many rows one call for all costs less than one a column."""
_FLOATS: Final = ("mean", "last", "recent", "lasting", "earlier", "scatter", "centre", "squares")
_INTS: Final = ("before", "count")


def usable(values: Floats) -> Floats:
    """The values whose squares are finite, NaN for the others."""
    known: Floats = np.where(np.abs(values) < HUGE, values, np.nan)
    return known


def middle(values: Floats) -> Floats:
    """Median of each row of shape (n, k), NaN left out; NaN where a row has no value."""
    ordered = np.sort(values, axis=1)
    counts = np.isfinite(ordered).sum(axis=1)
    low = np.maximum(counts - 1, 0) // 2
    high = np.minimum(counts // 2, values.shape[1] - 1)
    rows = np.arange(values.shape[0])
    found: Floats = np.where(counts > 0, (ordered[rows, low] + ordered[rows, high]) / 2, np.nan)
    return found


class Earned(Derived):
    """One row an env, capacity C; all but `mean` are NaN or 0 while an env has too few episodes to judge."""

    def __init__(self) -> None:
        self.stale = np.zeros(0, dtype=np.bool_)
        """Rows whose episodes have changed since they were summed up."""
        self.mean: Floats = floats(0)
        """Mean of the newest episodes, of any task; NaN before the first."""
        self.last: Floats = floats(0)
        """The very last episode."""
        self.recent: Floats = floats(0)
        """Middle of the newest."""
        self.lasting: Floats = floats(0)
        """The fourth lowest of the newest."""
        self.earlier: Floats = floats(0)
        """Median of those before; NaN where there are none."""
        self.scatter: Floats = floats(0)
        """Median distance of those from `earlier`; NaN where they are too few."""
        self.before: Ints = ints(0)
        """How many those are."""
        self.count: Ints = ints(0)
        """Newest and earlier ones together."""
        self.centre: Floats = floats(0)
        """Mean of all these."""
        self.squares: Floats = floats(0)
        """Squared distances of all these from `centre`, added up."""

    def arrays(self) -> Iterator[tuple[np.ndarray, float]]:
        """What has a row an env, with what an unused row holds."""
        yield self.stale, True
        yield from ((getattr(self, name), np.nan) for name in _FLOATS)
        yield from ((getattr(self, name), 0) for name in _INTS)

    def resize(self, rows: int) -> None:
        """Make room for `rows` envs; a new row is yet to be summed up."""
        self.stale = grown(self.stale, (rows,), fill=True)
        for name in (*_FLOATS, *_INTS):
            setattr(self, name, grown(getattr(self, name), (rows,), np.nan if name in _FLOATS else 0))

    def sum_up(self, rows: Ints, told: Floats, done: Ints, fresh: Ints) -> None:
        """Sum these rows up anew, each named once.

        `told` are their returns, newest first, shape (k, RETURNS), NaN where there is none; of `done`
        finished episodes `fresh` are of the present task; both of shape (k,).
        """
        self.stale[rows] = False
        self.mean[rows] = _mean(told, done)
        values = usable(told)
        judged = (fresh >= LEAST) & np.isfinite(values[:, :RECENT]).all(axis=1)
        if judged.all():
            self._judge(rows, values, fresh[:, None])
            return
        self._blank(rows[~judged])
        if judged.any():
            self._judge(rows[judged], values[judged], fresh[judged, None])

    def _blank(self, rows: Ints) -> None:
        for name in _FLOATS[1:]:
            getattr(self, name)[rows] = np.nan
        for name in _INTS:
            getattr(self, name)[rows] = 0

    def _judge(self, rows: Ints, values: Floats, have: Ints) -> None:
        num_recent = np.where(have < RECENT + EARLIER, RECENT - 1, RECENT)
        back = np.arange(RETURNS)
        ordered = np.sort(np.where(back < num_recent, values, np.nan)[:, :RECENT], axis=1)
        before = np.where((back >= num_recent) & (back < have), values, np.nan)
        counts = np.isfinite(before).sum(axis=1)
        earlier = middle(before)
        self.last[rows] = values[:, 0]
        self.recent[rows], self.lasting[rows] = ordered[:, _MIDDLE], ordered[:, _LASTING]
        self.earlier[rows], self.before[rows] = earlier, counts
        own = middle(np.abs(before - earlier[:, None]))
        self.scatter[rows] = np.where(counts >= EARLIER, own, np.nan)
        # From the newest one, so that equal returns have no distance at all.
        apart = np.where(back < num_recent, values, before) - values[:, :1]
        known = np.isfinite(apart)
        count = known.sum(axis=1)
        mean = _added(np.where(known, apart, 0.0)) / count
        rest = np.where(known, apart - mean[:, None], 0.0)
        self.count[rows], self.centre[rows], self.squares[rows] = (
            count, values[:, 0] + mean, _added(rest * rest)
        )  # fmt: skip


def _mean(told: Floats, done: Ints) -> Floats:
    counts = np.minimum(done, SHOWN_RETURNS)
    with np.errstate(over="ignore", invalid="ignore"):
        total = _added(np.where(np.arange(SHOWN_RETURNS) < counts[:, None], told[:, :SHOWN_RETURNS], 0.0))
        return np.divide(total, counts, out=floats(done.size), where=counts > 0)


def _added(values: Floats) -> Floats:
    """The sum of each row, always in the same order, from the left: both ways give the same bits."""
    total: Floats
    if values.shape[0] <= _FEW:
        total = np.add.accumulate(values, axis=1)[:, -1]
        return total
    total = values[:, 0].copy()
    for place in range(1, values.shape[1]):
        total += values[:, place]
    return total
