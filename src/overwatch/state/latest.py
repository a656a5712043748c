"""What each env's newest finished episodes tell: their mean, and what it earns now.

Looked at in every tick, so it is little; what all its episodes tell is in `earned.py`. Must not know what is
low.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from overwatch.state.arrays import Floats, Ints, floats
from overwatch.state.earned import EARLIER, HUGE, LEAST, RECENT, SHOWN_RETURNS, Summed, added_up
from overwatch.state.places import Mask

MANY: Final = max(SHOWN_RETURNS, RECENT + EARLIER)
"""Episodes of the present task from which on a row needs no care."""
_MIDDLE: Final = 2
"""Place, from the lowest, of the recent return: the median of five, the upper one of four."""


class Latest(Summed):
    """One row an env, capacity C."""

    FILLS: ClassVar[Mapping[str, float]] = {"mean": np.nan, "recent": np.nan, "judged": False}

    def __init__(self) -> None:
        super().__init__()
        self.mean: Floats = floats(0)
        """Mean of the newest episodes, of any task; NaN before the first."""
        self.recent: Floats = floats(0)
        """Middle of the newest of the present task; NaN while they are too few to judge by."""
        self.judged: Mask = np.zeros(0, dtype=np.bool_)
        """Whether they are enough."""

    def sum_up(self, rows: Ints, told: Floats, done: Ints, fresh: Ints) -> None:
        """Sum these rows up anew, each named once.

        `told` are their newest returns, newest first, shape (k, SHOWN_RETURNS), NaN where there is none; of
        `done` finished episodes `fresh` are of the present task; both of shape (k,).
        """
        newest = told[:, :RECENT].copy()
        judged = (np.abs(newest) < HUGE).all(axis=1)
        if int(fresh.min()) >= MANY:
            self.mean[rows] = added_up(told) / SHOWN_RETURNS
        else:
            self.mean[rows] = _mean(told, done)
            judged &= fresh >= LEAST
            newest[fresh < RECENT + EARLIER, RECENT - 1] = np.nan
        newest.sort(axis=1)
        self.recent[rows] = np.where(judged, newest[:, _MIDDLE], np.nan)
        self.judged[rows] = judged


def _mean(told: Floats, done: Ints) -> Floats:
    counts = np.minimum(done, SHOWN_RETURNS)
    told = np.where(np.arange(SHOWN_RETURNS) < counts[:, None], told, 0.0)
    return np.divide(added_up(told), counts, out=floats(done.size), where=counts > 0)
