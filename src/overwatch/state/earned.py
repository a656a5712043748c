"""What finished episodes tell, summed up by env: its very last, the newest, those before, its luck.

A row is summed up when somebody asks and one of its episodes ended since, so a tick costs what ended in it:
what every tick looks at is a table of its own, in `latest.py`. Derived, so no part of a checkpoint. Rules:
only episodes of the present task count; what is too large to square counts as unknown. Must not know what is
low.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import numpy as np

from overwatch.state.arrays import Derived, Floats, Ints, floats, grown, ints
from overwatch.state.places import Mask

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
_LASTING: Final = 3
"""Place, from the lowest, of the one that must be low too: four of five, or all four."""
_FEW: Final = 256
"""Up to so many rows one call for all costs less than one a column."""
_NONE: Final[Ints] = np.zeros(0, dtype=np.int64)


def usable(values: Floats) -> Floats:
    """The values whose squares are finite, NaN for the others."""
    known: Floats = np.where(np.abs(values) < HUGE, values, np.nan)
    return known


class Summed(Derived):
    """A table with a row an env, capacity C."""

    FILLS: ClassVar[Mapping[str, float]] = {}
    """Its arrays, with what an unused row holds."""

    def __init__(self) -> None:
        self.stale: Mask = np.zeros(0, dtype=np.bool_)
        """Rows whose episodes have changed since they were summed up."""
        self._settled = False
        """Whether no episode has ended since all were summed up last."""

    def arrays(self) -> Iterator[tuple[np.ndarray, float]]:
        """What has a row an env, with what an unused row holds."""
        yield self.stale, True
        yield from ((getattr(self, name), fill) for name, fill in self.FILLS.items())

    def resize(self, rows: int) -> None:
        """Make room for `rows` envs; a new row is yet to be summed up."""
        self.stale = grown(self.stale, (rows,), fill=True)
        self._settled = False
        for name, fill in self.FILLS.items():
            setattr(self, name, grown(getattr(self, name), (rows,), fill))

    def note(self, rows: Ints) -> None:
        """The episodes of these rows have changed."""
        self.stale[rows] = True
        self._settled = False

    def take_due(self, n: int) -> Ints:
        """Those of the first `n` rows to be summed up now. A new row holds what no episodes add up to."""
        if self._settled:
            return _NONE
        rows = np.flatnonzero(self.stale[:n])
        self.stale[rows] = False
        self._settled = True
        return rows


class Earned(Summed):
    """One row an env, capacity C; all are NaN or 0 while an env has too few episodes to judge by."""

    FILLS: ClassVar[Mapping[str, float]] = {
        **dict.fromkeys(("last", "lasting", "earlier", "scatter", "centre", "squares"), np.nan),
        **dict.fromkeys(("before", "count"), 0),
    }

    def __init__(self) -> None:
        super().__init__()
        self.last: Floats = floats(0)
        """The very last episode."""
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

    def sum_up(self, rows: Ints, told: Floats, fresh: Ints) -> None:
        """Sum these rows up anew, each named once.

        `told` are their returns, newest first, shape (k, RETURNS), NaN where there is none; `fresh` of them
        are of the present task, shape (k,).
        """
        values = np.where(np.arange(RETURNS) < fresh[:, None], usable(told), np.nan)
        judged = np.isfinite(values[:, :LEAST]).all(axis=1)
        few = fresh < RECENT + EARLIER
        if judged.all() and not few.any():
            self._judge(rows, values, RECENT)
            return
        for name, fill in self.FILLS.items():
            getattr(self, name)[rows[~judged]] = fill
        for which, num_recent in ((judged & ~few, RECENT), (judged & few, RECENT - 1)):
            self._judge(rows[which], values[which], num_recent)

    def _judge(self, rows: Ints, values: Floats, num_recent: int) -> None:
        recent, before = np.sort(values[:, :num_recent], axis=1), np.sort(values[:, num_recent:], axis=1)
        unknown = np.isnan(values)
        count = RETURNS - unknown.sum(axis=1)
        num_before = count - num_recent
        self.last[rows], self.before[rows], self.count[rows] = values[:, 0], num_before, count
        self.lasting[rows] = recent[:, _LASTING]
        self.earlier[rows] = earlier = _middle(before, num_before)
        own = _middle(np.sort(np.abs(before - earlier[:, None]), axis=1), num_before)
        self.scatter[rows] = np.where(num_before >= EARLIER, own, np.nan)
        # From the newest one, so that equal returns have no distance at all.
        apart = np.where(unknown, 0.0, values - values[:, :1])
        mean = added_up(apart) / count
        rest = np.where(unknown, 0.0, apart - mean[:, None])
        self.centre[rows], self.squares[rows] = values[:, 0] + mean, added_up(rest * rest)


def _middle(ordered: Floats, counts: Ints) -> Floats:
    """Median of so many first values of each row of shape (n, k); NaN, as the others are, where 0."""
    rows = np.arange(counts.size)
    found: Floats = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    return found


def added_up(values: Floats) -> Floats:
    """The sum of each row, always in the same order, from the left: both ways give the same bits."""
    total: Floats
    if values.shape[0] <= _FEW:
        total = np.add.accumulate(values, axis=1)[:, -1]
        return total
    total = values[:, 0].copy()
    for place in range(1, values.shape[1]):
        total += values[:, place]
    return total
