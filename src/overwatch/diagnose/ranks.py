"""What a rank reports that the others do not: numbers far from theirs, that stand still, that are another's.

Ranks that share gradients share their policy, so its numbers lie close together, and each rank sees data of
its own, so they are never the same. One that is far above or below the others for several updates diverges;
one whose numbers stand still to the bit while the others' move repeats its data; two of many that agree to
the bit see the same data; one that sends none where most of the others do is absent. How much a rank earns
and how long it takes is its envs' and machine's matter. Pure; for how long is kept in the assessment.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, KL, Metric
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    LEARNING_RATE,
    RETURN,
    VALUE_LOSS,
)
from overwatch.diagnose.problem import UPDATES, Problem
from overwatch.state.arrays import NORMAL, median
from overwatch.state.run import RunState

NEEDED: Final = 3
"""Updates in a row."""
MANY: Final = 6
"""The same, of what chance or a late record may do for a few: numbers that stand still, or are absent."""
SCATTERS: Final = 8.0
"""Robust standard deviations of the ranks from which one is away."""
NAMED: Final = 3
MOST_AWAY: Final = 256
"""Ranks and rows that are remembered as away."""
STILL, TWIN, ABSENT = "still ", "twin", "absent"
"""What is remembered beside the full name of a row that is far: a row that does not move begins so."""


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rank of a row must be from the others' median to be away, in either direction."""

    row: Metric
    times: float
    """Of the median, or the median of it."""
    least: float = 0.0
    """In the row's unit, above the median; below it the median must be a third of this."""

    def read(self, value: float) -> float:
        """The value as it is compared: of what is explained, what is not."""
        return 1.0 - value if self.row is EXPLAINED_VARIANCE else value


WATCHED_RANKS: Final = (
    Apart(row=KL, times=5.0, least=0.015),
    Apart(row=ENTROPY, times=2.0, least=0.1),
    Apart(row=CLIP_FRACTION, times=3.0, least=0.3),
    Apart(row=EXPLAINED_VARIANCE, times=5.0, least=0.3),
    Apart(row=GRAD_NORM, times=5.0),
    Apart(row=VALUE_LOSS, times=10.0),
    Apart(row=LEARNING_RATE, times=1.5),
)
OWN: Final = (RETURN, KL, ENTROPY, EXPLAINED_VARIANCE, GRAD_NORM, VALUE_LOSS)
"""What each rank works out of its own data, and no two of them, nor one twice, to the bit."""


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are away from the others."""

    updates: int = 0
    """Of the run, as of the last look."""
    rows: dict[str, dict[int, int]] = {}
    """For how many looks in a row, by what is odd and rank."""
    sent: dict[int, int] = {}
    """Records of each rank by then."""
    values: dict[str, dict[int, float]] = {}
    """What each rank sent then, by full name."""


def away(state: RunState, before: Away) -> Away:
    """The memory after this tick; a look counts once an update, and a rank once it sent anew."""
    if not state.ranks.others:
        return before if not before.rows else Away(updates=state.updates)
    if state.updates == before.updates:
        return before
    sent = dict(state.ranks.sent)
    fresh = {rank for rank, count in sent.items() if count != before.sent.get(rank)}
    fresh |= set() if state.ranks.leader is None else {state.ranks.leader}
    values = {row.name: _values(state, row) for row in OWN}
    odd = {apart.row.name: _far(state, apart) for apart in WATCHED_RANKS}
    odd |= {STILL + row.name: _still(row, values[row.name], before, fresh) for row in OWN}
    odd |= {TWIN: list(_twins(values)), ABSENT: _absent(state)}
    rows: dict[str, dict[int, int]] = {}
    for what, ranks in odd.items():
        known, counts = before.rows.get(what, {}), fresh | set(ranks if what == ABSENT else ())
        # What a rank has not sent again shows nothing new.
        looks = {rank: known[rank] for rank in known.keys() - counts}
        looks |= {rank: known.get(rank, 0) + 1 for rank in ranks[:MOST_AWAY] if rank in counts}
        if looks:
            rows[what] = looks
    return Away(updates=state.updates, rows=rows, sent=sent, values=values)


def _far(state: RunState, apart: Apart) -> list[int]:
    """Ranks that are away now, lowest first; of two ranks it is the one that does not lead."""
    values = {rank: apart.read(value) for rank, value in _values(state, apart.row).items()}
    if len(values) < 2:
        return []
    leader = values.get(state.ranks.leader or 0)
    usual = leader if len(values) == 2 and leader is not None else median(list(values.values()))
    if usual is None:
        return []
    times = {rank: _times(value, usual) for rank, value in values.items()}
    scatter = NORMAL * (median([one - 1.0 for one in times.values()]) or 0.0) if len(values) > 2 else 0.0
    far = max(SCATTERS * scatter + 1.0, apart.times)
    return sorted(
        rank
        for rank, value in values.items()
        if times[rank] > far and (value - usual > apart.least if value > usual else usual > apart.least / 3)
    )


def _times(value: float, usual: float) -> float:
    """How many times one is the other; what is not above 0 by the distance in the usual."""
    low, high = min(value, usual), max(value, usual)
    if low > 0:
        return high / low
    return 1.0 if high == low else 1.0 + (high - low) / abs(usual) if usual <= 0 != usual else float("inf")


def _still(row: Metric, now: Mapping[int, float], before: Away, fresh: set[int]) -> list[int]:
    """Ranks whose value is that of the last look, to the bit, while most moved."""
    then = before.values.get(row.name, {})
    same = {rank for rank in fresh & now.keys() & then.keys() if now[rank] == then[rank]}
    moved = len(fresh & now.keys() & then.keys()) - len(same)
    if not same or moved < len(same):
        return []
    if row is not RETURN:
        return sorted(same)
    # At the ceiling, or the floor, of what can be earned a rank may stay.
    low, high = min(now.values()), max(now.values())
    known = before.rows.get(STILL + row.name, {})
    return sorted(rank for rank in same if low < now[rank] < high or rank in known)


def _twins(values: Mapping[str, Mapping[int, float]]) -> Iterator[int]:
    """Ranks whose numbers are another one's to the bit; not where all are, or each has as many twins."""
    parted = [row for row in values.values() if len(set(row.values())) > 1]
    ranks = set.intersection(*(set(row) for row in parted)) if len(parted) > 1 else set()
    marks = {rank: tuple(row[rank] for row in parted) for rank in ranks}
    groups = Counter(marks.values())
    if len(set(groups.values())) < 2:
        return
    firsts = {mark: min(rank for rank in ranks if marks[rank] == mark) for mark in groups}
    yield from (rank for rank in sorted(ranks) if firsts[marks[rank]] != rank)


def _absent(state: RunState) -> list[int]:
    """Ranks that started and never sent numbers of the policy, where most of the others do."""
    owners = (owner.partition("/") for owner in state.ranks.starts)
    started = {int(rank) for role, _, rank in owners if role == "trainer"}
    senders = set(state.ranks.sent) | {state.ranks.leader}
    there = started & senders
    return sorted(started - senders) if len(there) > 1 and 2 * len(there) > len(started) else []


def _values(state: RunState, row: Metric) -> dict[int, float]:
    values = dict(state.ranks.others.get(row.name, {}))
    led = state.policy.get(row.name)
    if values and led is not None and led.value is not None and state.ranks.leader is not None:
        values[state.ranks.leader] = led.value
    return values


def rank_problems(state: RunState, known: Away) -> Iterator[Problem]:
    """One finding for each rank that has been away for long enough, a few at most."""
    odd: dict[int, list[str]] = {}
    for what, ranks in known.rows.items():
        needed = MANY if what.startswith((STILL, ABSENT)) else NEEDED
        for rank, looks in ranks.items():
            if looks >= needed:
                odd.setdefault(rank, []).append(what)
    worst = sorted(odd, key=lambda rank: (-len(odd[rank]), rank))[:NAMED]
    for rank in worst:
        yield _rank_problem(state, known, rank, odd[rank], more=len(odd) - len(worst))


def _rank_problem(state: RunState, known: Away, rank: int, odd: list[str], *, more: int) -> Problem:
    stated = tuple(words for what in odd if (words := _stated(state, known, rank, what)))
    return Problem(
        code="rank-diverged",
        subject=f"rank {rank}",
        at=state.last_update_at,
        message=f"rank {rank} diverges from the others: {'; '.join(stated)}"
        + (f" (and {more} more ranks)" if more else ""),
        hint="look at its data, its seed and its device; check that gradients are shared and weights equal",
        factors=stated,
        patience=UPDATES,
    )


def _stated(state: RunState, known: Away, rank: int, what: str) -> str:
    """What is odd about a rank, with the numbers."""
    if what == ABSENT:
        return f"it sends no numbers, {len(state.ranks.sent) + 1} ranks do"
    if what == TWIN:
        return "its numbers are those of another rank, to the bit"
    row = BY_NAME[what.removeprefix(STILL)]
    values = _values(state, row)
    if rank not in values:
        return ""
    if what.startswith(STILL):
        looks = known.rows[what][rank]
        return f"{row.label} {values[rank]:{row.fmt}} for {looks} updates to the bit, the others' moves"
    usual = median([value for other, value in values.items() if other != rank]) or 0.0
    return f"{row.label} {values[rank]:{row.fmt}}, the others {usual:{row.fmt}}"
