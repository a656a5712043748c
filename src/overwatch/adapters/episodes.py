"""Returns and lengths of episodes, from what each of many turns paid and which of them ended one.

Pure. Must not know where turns come from, nor where episodes go.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from overwatch.adapters.turns import Block, Floats

Ended: TypeAlias = tuple[npt.NDArray[np.int64], Floats, Floats]
"""Episodes: their envs, returns and lengths, in the order of their ends."""

FEW: Final = 64
"""Envs whose rewards of one turn are a few lines of the processor's cache."""


class Episodes:
    """What each env has earned, and for how many steps, since its last episode ended."""

    def __init__(self, num_envs: int) -> None:
        self._sums = np.zeros((2, num_envs))

    def add(self, block: Block) -> Ended | None:
        """Episodes that end in these turns; what a library states holds unless it missed steps seen here."""
        paid, over, counted = block.paid, block.over, block.counted
        if len(paid) > 1 and not math.isfinite(self._sums.sum() + paid.sum()):
            return self._one_by_one(block)
        if counted is not None:
            paid, over = np.where(counted, paid, 0.0), over & counted
        if not np.count_nonzero(over):
            self._sums[0] += paid.sum(axis=0)
            self._sums[1] += len(paid) if counted is None else counted.sum(axis=0)
            return None
        turns = np.arange(1.0, len(paid) + 1)[:, None] if counted is None else _running(counted)
        sums = np.stack((self._sums[0] + _running(paid), self._sums[1] + turns))
        ends = np.flatnonzero(over)
        env, at_ends = ends % paid.shape[1], sums.reshape(2, -1).take(ends, axis=1)
        before = np.zeros_like(self._sums)
        before[:, env] = at_ends  # of several the last
        self._sums = sums[:, -1] - before
        self._sums[:, over[-1]] = 0.0
        own, order = at_ends.copy(), env.argsort(kind="stable")
        again = env[order[1:]] == env[order[:-1]]
        own[:, order[1:][again]] -= at_ends[:, order[:-1][again]]
        if block.stated is not None:
            theirs = block.stated.reshape(2, -1).take(ends, axis=1)
            own = np.where(theirs[1] >= own[1], theirs, own)
        return env, own[0], own[1]

    def forget(self, rows: Any) -> None:
        """Envs were reset: what ran there has no end."""
        self._sums[:, rows] = 0.0

    def _one_by_one(self, block: Block) -> Ended | None:
        """A sum that is not finite ends with its episode, which differences of sums would not show."""
        rows = (block.part(slice(turn, turn + 1)) for turn in range(len(block.paid)))
        return together([ended for row in rows if (ended := self.add(row)) is not None])


def _running(values: npt.NDArray[Any]) -> Floats:
    """Sums so far, turn by turn; of many envs row by row, which is the faster way through memory."""
    if values.shape[1] <= FEW:
        return values.cumsum(axis=0, dtype=np.float64)
    sums = values.astype(np.float64)
    for turn in range(1, len(sums)):
        sums[turn] += sums[turn - 1]
    return sums


def together(ended: Sequence[Ended]) -> Ended | None:
    """Episodes of several times as columns."""
    if len(ended) < 2:
        return ended[0] if ended else None
    env, returns, lengths = map(np.concatenate, zip(*ended, strict=True))
    return env, returns, lengths
