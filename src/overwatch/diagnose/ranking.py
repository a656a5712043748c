"""The order of envs: worst first, and calm.

An env keeps the score it was ranked by until its score moves by more than a margin, so jitter does not
reorder the board; ties keep the order they had. Pure.
"""

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from overwatch.state.arrays import Floats, Ints, ints
from overwatch.state.envs import Envs

MARGIN: Final = 0.5


class Lives(msgspec.Struct, frozen=True, kw_only=True):
    """Whose row each row is, at one tick; both of shape (n,)."""

    numbers: Ints = msgspec.field(default_factory=lambda: ints(0))
    env_ids: Ints = msgspec.field(default_factory=lambda: ints(0))


def lives_of(envs: Envs) -> Lives:
    """Whose rows they are now."""
    return Lives(numbers=envs.lives[: envs.n].copy(), env_ids=envs.ids[: envs.n].copy())


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the last tick left about envs, by rows of now."""

    lives: Lives
    """Of now."""
    held: Floats
    """Score each env was ranked by, shape (n,); NaN of those that are new."""
    order: Ints
    """Rows, worst first; new ones last, in order of their birth."""
    lost: frozenset[int]
    """Ids of envs whose life ended since."""


def carried(before: Lives, held: Floats, order: Ints, now: Lives) -> Remembered:
    """The last tick's scores and order by rows of now, which may have moved, gone or been given away."""
    if np.array_equal(before.numbers, now.numbers):
        return Remembered(lives=now, held=held, order=order, lost=frozenset())
    place = np.argsort(now.numbers, kind="stable")
    at = np.searchsorted(now.numbers[place], before.numbers)
    there = np.zeros(before.numbers.size, dtype=np.bool_)
    inside = at < place.size
    there[inside] = now.numbers[place[at[inside]]] == before.numbers[inside]
    row = np.full(before.numbers.size, -1, dtype=np.int64)
    row[there] = place[at[there]]
    scores = np.full(now.numbers.size, np.nan)
    scores[row[there]] = held[there]
    known = row[order][there[order]]
    fresh = place[np.isin(place, known, invert=True)]
    return Remembered(
        lives=now,
        held=scores,
        order=np.concatenate([known, fresh]),
        lost=frozenset(before.env_ids[~there].tolist()),
    )


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
    if known == n and np.array_equal(new_held, held):
        return order, held
    before = np.concatenate([order, np.arange(known, n, dtype=np.int64)])
    return before[np.argsort(-new_held[before], kind="stable")], new_held
