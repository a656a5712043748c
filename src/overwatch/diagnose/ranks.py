"""What a rank reports that the others do not: numbers far from theirs, that stand still, that are another's.

Ranks that share gradients share their policy, so its numbers lie close together, and each rank sees data of
its own, so they are never the same. One that is far above or below the others for several updates diverges;
one whose numbers stand still to the bit while the others' move repeats its data; two of many that agree to
the bit see the same data; one that sends none where most of the others do is absent. How much a rank earns
and how long it takes is its envs' and machine's matter. Pure; for how long is kept in the assessment.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog import KL, Metric
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
WATCHED: Final = (
    (KL, 5.0, 0.015), (ENTROPY, 2.0, 0.1), (CLIP_FRACTION, 3.0, 0.3), (EXPLAINED_VARIANCE, 5.0, 0.3),
    (GRAD_NORM, 5.0, 0.0), (VALUE_LOSS, 10.0, 0.0), (LEARNING_RATE, 1.5, 0.0),
)  # fmt: skip
"""How far a rank of a row must be from the others' median to be away, in either direction: times the median,
or the median times it; and in the row's unit so much above it, or a third of this below. Of what is explained
it is what is not."""
OWN: Final = (RETURN, KL, ENTROPY, EXPLAINED_VARIANCE, GRAD_NORM, VALUE_LOSS)
"""What each rank works out of its own data, and no two of them, nor one twice, to the bit."""
Values = Mapping[int, float]
"""By rank."""


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are away from the others."""

    updates: int = 0
    """Of the run, as of the last look."""
    rows: dict[str, dict[int, tuple[int, str]]] = {}
    """For how many looks in a row, and the words, by what is odd and rank."""
    sent: dict[int, int] = {}
    """Records of each rank by then."""
    values: dict[str, dict[int, float]] = {}
    """What each rank sent then, by full name."""


def away(state: RunState, before: Away) -> Away:
    """The memory after this tick; a look counts once an update, and a rank once it sent anew."""
    ranks = state.ranks
    if not ranks.others or state.updates == before.updates:
        return before if ranks.others else Away(updates=state.updates)
    absent, sent = _absent(state), dict(ranks.sent)
    fresh = {rank for rank, count in sent.items() if count != before.sent.get(rank)} | absent.keys()
    fresh |= set() if ranks.leader is None else {ranks.leader}
    values = {row.name: _values(state, row) for row in OWN}
    odd = {row.name: _far(state, row, times, least) for row, times, least in WATCHED}
    odd |= {STILL + row.name: _still(row, values[row.name], before, fresh) for row in OWN}
    odd |= {TWIN: _twins(values), ABSENT: absent}
    rows: dict[str, dict[int, tuple[int, str]]] = {}
    for what, words in odd.items():
        known = before.rows.get(what, {})
        # What a rank has not sent again shows nothing new.
        looks = {rank: known[rank] for rank in known.keys() - fresh}
        for rank in [rank for rank in sorted(words)[:MOST_AWAY] if rank in fresh]:
            looks[rank] = known.get(rank, (0, ""))[0] + 1, words[rank]
        if looks:
            rows[what] = looks
    return Away(updates=state.updates, rows=rows, sent=sent, values=values)


def _far(state: RunState, row: Metric, most: float, least: float) -> dict[int, str]:
    """Ranks that are away now; of two ranks it is the one that does not lead."""
    sent = _values(state, row)
    values = {rank: 1.0 - value if row is EXPLAINED_VARIANCE else value for rank, value in sent.items()}
    leader = values.get(state.ranks.leader or 0)
    usual = leader if len(values) == 2 and leader is not None else median(list(values.values()))
    if usual is None or len(values) < 2:
        return {}
    times = {rank: _times(value, usual) for rank, value in values.items()}
    scatter = NORMAL * (median([one - 1.0 for one in times.values()]) or 0.0) if len(values) > 2 else 0.0
    found = {}
    for rank, value in values.items():
        beyond = value - usual > least if value > usual else usual > least / 3
        if beyond and times[rank] > max(SCATTERS * scatter + 1.0, most):
            others = median([one for other, one in sent.items() if other != rank]) or 0.0
            found[rank] = f"{row.label} {sent[rank]:{row.fmt}}, the others {others:{row.fmt}}"
    return found


def _times(value: float, usual: float) -> float:
    """How many times one is the other; what is not above 0 by the distance in the usual."""
    low, high = min(value, usual), max(value, usual)
    if low > 0:
        return high / low
    return 1.0 if high == low else 1.0 + (high - low) / abs(usual) if usual <= 0 != usual else float("inf")


def _still(row: Metric, now: Values, before: Away, fresh: set[int]) -> dict[int, str]:
    """Ranks whose value is that of the last look, to the bit, while most moved."""
    then, known = before.values.get(row.name, {}), before.rows.get(STILL + row.name, {})
    both = fresh & now.keys() & then.keys()
    same = {rank for rank in both if now[rank] == then[rank]}
    if len(both) < 2 * len(same):
        return {}
    if row is RETURN:
        # At the ceiling, or the floor, of what can be earned a rank may stay.
        low, high = min(now.values(), default=0.0), max(now.values(), default=0.0)
        same = {rank for rank in same if low < now[rank] < high or rank in known}
    return {rank: f"{row.label} stays {now[rank]:{row.fmt}} to the bit, the others' moves" for rank in same}


def _twins(values: Mapping[str, Values]) -> dict[int, str]:
    """Ranks whose numbers are another one's to the bit; not where all are, or each has as many twins."""
    parted = [row for row in values.values() if len(set(row.values())) > 1]
    ranks = set.intersection(*(set(row) for row in parted)) if len(parted) > 1 else set()
    groups: dict[tuple[float, ...], list[int]] = {}
    for rank in sorted(ranks):
        groups.setdefault(tuple(row[rank] for row in parted), []).append(rank)
    if len(set(map(len, groups.values()))) < 2:
        return {}
    words = "its numbers are those of rank {}, to the bit"
    return {rank: words.format(first) for first, *others in groups.values() for rank in others}


def _absent(state: RunState) -> dict[int, str]:
    """Ranks that started and never sent numbers of the policy, where most of the others do."""
    owners = (owner.partition("/") for owner in state.ranks.starts)
    started = {int(rank) for role, _, rank in owners if role == "trainer"}
    there = started & {*state.ranks.sent, state.ranks.leader}
    words = f"it sends no numbers, {len(there)} ranks do"
    return dict.fromkeys(started - there, words) if len(there) > max(1, len(started) // 2) else {}


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
        for rank, (looks, words) in ranks.items():
            if looks >= needed:
                odd.setdefault(rank, []).append(words)
    worst = sorted(odd, key=lambda rank: (-len(odd[rank]), rank))[:NAMED]
    more = f" (and {len(odd) - len(worst)} more ranks)" if len(odd) > len(worst) else ""
    for rank in worst:
        yield Problem(
            code="rank-diverged",
            subject=f"rank {rank}",
            at=state.last_update_at,
            message=f"rank {rank} diverges from the others: {'; '.join(odd[rank])}{more}",
            hint="look at its data, its seed and its device; are gradients shared, weights equal",
            factors=tuple(odd[rank]),
            patience=UPDATES,
        )
