"""A rank far from the others: ranks that share gradients share their policy, so its numbers are alike.

One far from the others for several updates diverges; what they earn and how long they take is their envs' and
machines' matter. Pure; how long a rank has been away is kept in the assessment.
"""

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
    VALUE_LOSS,
)
from overwatch.diagnose.problem import UPDATES, Problem
from overwatch.state.arrays import NORMAL, median
from overwatch.state.run import RunState

RANK_DIVERGED: Final = "rank-diverged"
NEEDED: Final = 3
"""Updates in a row."""
SCATTERS: Final = 8.0
"""Robust standard deviations of the ranks from which one is away."""
NAMED: Final = 3
MOST_AWAY: Final = 256
"""Ranks and rows that are remembered as away."""


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rank of a row must be from the others' median to be away."""

    row: Metric
    share: float
    """Of the median."""
    least: float = 0.0
    """In the row's unit."""


WATCHED_RANKS: Final = (
    Apart(row=KL, share=4.0, least=0.015),
    Apart(row=ENTROPY, share=0.5, least=0.1),
    Apart(row=CLIP_FRACTION, share=2.0, least=0.3),
    Apart(row=EXPLAINED_VARIANCE, share=0.0, least=1.0),
    Apart(row=GRAD_NORM, share=4.0),
    Apart(row=VALUE_LOSS, share=9.0),
    Apart(row=LEARNING_RATE, share=0.5),
)


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are away from the others."""

    updates: int = 0
    """Of the run, as of the last look."""
    rows: dict[str, dict[int, int]] = {}
    """For how many looks in a row, by full name and rank."""


def away(state: RunState, before: Away) -> Away:
    """The memory after this tick; a look counts once an update."""
    if not state.ranks.others:
        return before if not before.rows else Away(updates=state.updates)
    if state.updates == before.updates:
        return before
    rows: dict[str, dict[int, int]] = {}
    room = MOST_AWAY
    for apart in WATCHED_RANKS:
        known = before.rows.get(apart.row.name, {})
        found = {rank: known.get(rank, 0) + 1 for rank in _far(state, apart)[:room]}
        room -= len(found)
        if found:
            rows[apart.row.name] = found
    return Away(updates=state.updates, rows=rows)


def _far(state: RunState, apart: Apart) -> list[int]:
    """Ranks that are away now, lowest first; of two ranks it is the one that does not lead."""
    values = _values(state, apart.row)
    if len(values) < 2:
        return []
    leader = values.get(state.ranks.leader or 0)
    usual = leader if len(values) == 2 and leader is not None else median(list(values.values()))
    if usual is None:
        return []
    apart_by = {rank: abs(value - usual) for rank, value in values.items()}
    scatter = NORMAL * (median(list(apart_by.values())) or 0.0) if len(values) > 2 else 0.0
    far = max(SCATTERS * scatter, apart.share * abs(usual), apart.least)
    return sorted(rank for rank, distance in apart_by.items() if distance > far)


def _values(state: RunState, row: Metric) -> dict[int, float]:
    values = dict(state.ranks.others.get(row.name, {}))
    led = state.policy.get(row.name)
    if values and led is not None and led.value is not None and state.ranks.leader is not None:
        values[state.ranks.leader] = led.value
    return values


def rank_problems(state: RunState, known: Mapping[str, Mapping[int, int]]) -> Iterator[Problem]:
    """One finding for each rank that has been away for long enough, a few at most."""
    rows: dict[int, list[str]] = {}
    for name, ranks in known.items():
        for rank, looks in ranks.items():
            if looks >= NEEDED:
                rows.setdefault(rank, []).append(name)
    worst = sorted(rows, key=lambda rank: (-len(rows[rank]), rank))[:NAMED]
    for rank in worst:
        yield _rank_problem(state, rank, rows[rank], more=len(rows) - len(worst))


def _rank_problem(state: RunState, rank: int, names: list[str], *, more: int) -> Problem:
    sent = []
    for name in names:
        row, values = BY_NAME[name], _values(state, BY_NAME[name])
        usual = median([value for other, value in values.items() if other != rank])
        if rank in values and usual is not None:
            sent.append(f"{row.label} {values[rank]:{row.fmt}}, the others {usual:{row.fmt}}")
    return Problem(
        code=RANK_DIVERGED,
        subject=f"rank {rank}",
        at=state.last_update_at,
        message=f"rank {rank} diverges from the others: {'; '.join(sent)}"
        + (f" (and {more} more ranks)" if more else ""),
        hint="look at its data, its seed and its device; check that gradients are shared and weights equal",
        factors=tuple(sent),
        patience=UPDATES,
    )
