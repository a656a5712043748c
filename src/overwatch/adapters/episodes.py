"""Returns and lengths of episodes, from what each of many turns paid and which of them ended one.

Pure. Must not know where turns come from, nor where episodes go.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from overwatch.adapters.turns import Block, Floats

Ended: TypeAlias = tuple[npt.NDArray[np.int64], Floats, Floats]
"""Episodes: their envs, returns and lengths, in the order of their ends."""


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
        steps = np.stack((paid, np.broadcast_to(1.0 if counted is None else counted, paid.shape)))
        if not np.count_nonzero(over):
            self._sums += steps.sum(axis=1)
            return None
        sums = self._sums[:, None] + steps.cumsum(axis=1)
        env, turn = over.T.nonzero()
        at_ends = sums[:, turn, env]
        before = np.zeros_like(self._sums)
        before[:, env] = at_ends  # of several the last
        self._sums = sums[:, -1] - before
        self._sums[:, over[-1]] = 0.0
        own = at_ends.copy()
        own[:, 1:] -= np.where(env[1:] == env[:-1], at_ends[:, :-1], 0.0)
        if block.stated is not None:
            theirs = block.stated[:, turn, env]
            own = np.where(theirs[1] >= own[1], theirs, own)
        order = turn.argsort(kind="stable")
        return env[order], own[0, order], own[1, order]

    def forget(self, rows: Any) -> None:
        """Envs were reset: what ran there has no end."""
        self._sums[:, rows] = 0.0

    def _one_by_one(self, block: Block) -> Ended | None:
        """A sum that is not finite ends with its episode, which differences of sums would not show."""
        rows = (block.part(slice(turn, turn + 1)) for turn in range(len(block.paid)))
        return together([ended for row in rows if (ended := self.add(row)) is not None])


def together(ended: Sequence[Ended]) -> Ended | None:
    """Episodes of several times as columns."""
    if len(ended) < 2:
        return ended[0] if ended else None
    env, returns, lengths = map(np.concatenate, zip(*ended, strict=True))
    return env, returns, lengths
