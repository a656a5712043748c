"""The order of envs: worst first, and calm.

An env goes up at once when its score rises by more than a margin. It goes down only when its score has been
lower for two seconds on end, and then to the highest it had in them: whatever jitters, and whatever flickers
at a limit, stays where it was at its worst. The order as a whole changes at most twice a second, but at once
for an env whose score rises by as much as a factor that begins to weigh. Ties keep the order they had. Pure.
"""

from typing import Final

import msgspec
import numpy as np

from overwatch.state.arrays import Floats, Ints, floats, ints, no_floats
from overwatch.state.envs import Envs

MARGIN: Final = 0.5
"""Scores that differ by less are alike."""
RELEASE_NS: Final = 2_000_000_000
"""How long a score must be lower before its env goes down."""
REORDER_NS: Final = 500_000_000
"""Least time between two changes of the order, unless a score jumps."""
JUMP: Final = 1.0
"""A rise of a score that is shown at once: the least that a factor weighs that names a fault."""


class Lives(msgspec.Struct, frozen=True, kw_only=True):
    """Whose row each row is, at one tick; both arrays of shape (n,)."""

    moved: int = 0
    """As the table counts it: while it is the same, so is all else."""
    numbers: Ints = msgspec.field(default_factory=lambda: ints(0))
    env_ids: Ints = msgspec.field(default_factory=lambda: ints(0))


def lives_of(envs: Envs, before: Lives) -> Lives:
    """Whose rows they are now; as before where nothing moved."""
    if before.moved == envs.moved:
        return before
    return Lives(moved=envs.moved, numbers=envs.lives[: envs.n].copy(), env_ids=envs.ids[: envs.n].copy())


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """The order of the envs at one tick, and what keeps it calm; all but `order` by row, shape (n,)."""

    order: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Rows, worst first."""
    held: Floats = msgspec.field(default_factory=lambda: floats(0))
    """The score each env is ranked by; NaN of one that was not ranked yet."""
    lower_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Tick since which each env's score has been lower than that; 0 where it is not."""
    peak: Floats = msgspec.field(default_factory=lambda: floats(0))
    """Its highest score since then."""
    ordered_at: int = 0
    """Tick at which the order last changed."""


def carried(before: Ranked, then: Lives, now: Lives) -> tuple[Ranked, frozenset[int]]:
    """The last tick's ranks by rows of now, which may have moved, gone or been given away.

    New rows come last, in order of their birth. Beside them the ids of envs whose life has ended since.
    """
    if then is now:
        return before, frozenset()
    place = np.argsort(now.numbers, kind="stable")
    at = np.searchsorted(now.numbers[place], then.numbers)
    there = np.zeros(then.numbers.size, dtype=np.bool_)
    inside = at < place.size
    there[inside] = now.numbers[place[at[inside]]] == then.numbers[inside]
    row = np.full(then.numbers.size, -1, dtype=np.int64)
    row[there] = place[at[there]]
    known = row[before.order][there[before.order]]
    fresh = place[np.isin(place, known, invert=True)]
    held, lower_at, peak = floats(place.size), ints(place.size), floats(place.size)
    held[row[there]], peak[row[there]] = before.held[there], before.peak[there]
    lower_at[row[there]] = before.lower_at[there]
    order = np.concatenate([known, fresh])
    moved = Ranked(order=order, held=held, lower_at=lower_at, peak=peak, ordered_at=before.ordered_at)
    return moved, frozenset(then.env_ids[~there].tolist())


def rank(scores: Floats, before: Ranked, tick: int) -> Ranked:
    """The ranks at `tick` (ns) from its scores and the ranks before it, which may have fewer rows."""
    n, known = scores.size, before.held.size
    if before.held is scores:
        return before
    if known == n and _is_calm(scores, before):
        if scores is not no_floats(n):
            return before
        # Where no env stands out the scores are one array for as long as that lasts.
        at = before.ordered_at
        return Ranked(order=before.order, held=scores, lower_at=before.lower_at, peak=scores, ordered_at=at)
    held, peak, lower_at = scores.copy(), scores.copy(), ints(n)
    held[:known], lower_at[:known], peak[:known] = before.held, before.lower_at, before.peak
    fresh = np.isnan(held)
    with np.errstate(invalid="ignore"):
        higher = fresh | (scores > held + MARGIN)
        lower = (scores < held - MARGIN) | ((scores == 0) & (held > 0))
    peak = np.where(lower & (lower_at > 0), np.maximum(peak, scores), scores)
    lower_at = np.where(lower, np.where(lower_at > 0, lower_at, tick), 0)
    settled = lower & (tick - lower_at >= RELEASE_NS)
    lower_at[settled] = 0
    jumped = bool((fresh | (scores >= held + JUMP)).any())
    held = np.where(higher, scores, np.where(settled, peak, held))
    order, at = np.concatenate([before.order, np.arange(known, n, dtype=np.int64)]), before.ordered_at
    if jumped or tick - at >= REORDER_NS:
        place = -held[order]
        if (place[1:] < place[:-1]).any():
            order, at = order[np.argsort(place, kind="stable")], tick
    return Ranked(order=order, held=held, lower_at=lower_at, peak=peak, ordered_at=at)


def _is_calm(scores: Floats, before: Ranked) -> bool:
    """Whether every env is where its score puts it, and nothing waits to change."""
    if before.lower_at.any() or (scores != before.held).any() or (scores != before.peak).any():
        return False
    ordered = scores[before.order]
    return not (ordered[1:] > ordered[:-1]).any()
