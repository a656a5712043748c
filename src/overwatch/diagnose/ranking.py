"""The order of envs: worst first, and calm.

An env keeps the score it was ranked by until its score moves by more than a margin, so jitter does not
reorder the board; ties keep the order they had. Pure.
"""

from typing import Final

import numpy as np

from overwatch.state.arrays import Floats, Ints

MARGIN: Final = 0.5


def rank(scores: Floats, held: Floats, order: Ints) -> tuple[Ints, Floats]:
    """New (order, held scores) from this tick's scores and the previous ones, which may be shorter.

    `order` lists rows, worst first; both results have the length of `scores`.
    """
    n = scores.size
    known = held.size
    new_held = scores.copy()
    calm = np.abs(scores[:known] - held) <= MARGIN
    settled = calm & ~((scores[:known] == 0) & (held > 0))
    new_held[:known] = np.where(settled, held, scores[:known])
    before = np.concatenate([order, np.arange(known, n, dtype=np.int64)])
    return before[np.argsort(-new_held[before], kind="stable")], new_held
