"""What departs slowly, or alone: a row that creeps towards its bad side, a rank far from the others.

Slow drift goes update by update, too slowly for any limit or spike. Each row has a baseline: its median and
its scatter after the warm-up, or when returns last rose, for then the policy was another one. None is taken
while the run is in trouble. A cumulative sum (CUSUM) adds up by how much each update lies on the bad side of
it, less an allowance for chance; a drift counts against the row's own limit too. A row of which more is
better raises its baseline with its level: it drifts when it sinks below the best that it kept.

Ranks that share gradients share their policy, so its numbers lie close together: one far from the others for
several updates diverges; what they earn and how long they take is their envs' and machines' matter. Pure;
sums and how long a rank has been away are kept in the assessment.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, KL, Direction, Metric
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    LEARNING_RATE,
    RETURN,
    VALUE_LOSS,
)
from overwatch.diagnose.policy_rows import WARM_UP_UPDATES, targets_vary
from overwatch.diagnose.problem import UPDATES, Problem, of_policy
from overwatch.state.arrays import NORMAL, median
from overwatch.state.policy import Health, Series, has_risen, health_of, unrest
from overwatch.state.run import RunState

BASELINE: Final = 20
"""Updates that make the baseline, the first of them after the warm-up."""
NOW: Final = 5
"""Newest updates whose median is where the row is now."""
ALLOWANCE: Final = 1.0
"""Scatters by which one update may be worse and adds nothing: a shift of less than twice this is chance."""
MOST: Final = 3.0
"""Scatters that one update counts for at most, so that one outlier makes no drift."""
ALARM: Final = 8.0
"""Sum from which it is a drift: an unmoved normal row reaches it less than once in a million updates."""
CEILING: Final = 2 * ALARM
"""Largest sum, so that what has recovered is let go of."""
LEAST_SCATTER: Final = 0.05
"""Scatter of a row that hardly scatters, as a share of its baseline."""
LUCK: Final = 2.5
"""Standard deviations of one update by which a return must have sunk besides."""
CODE: Final = "slow-drift"


class Drifting(msgspec.Struct, frozen=True, kw_only=True):
    """A row that may drift, and how far it must have moved to matter."""

    row: Metric
    share: float = 0.0
    """Of its baseline."""
    least: float = 0.0
    """In the row's unit."""
    of_limit: float = 0.0
    """Share of its warning limit that it must have reached; below, it is far from any trouble."""


WATCHED: Final = (
    Drifting(row=KL, share=0.5, of_limit=2 / 3),
    Drifting(row=CLIP_FRACTION, share=0.5, of_limit=2 / 3),
    Drifting(row=EXPLAINED_VARIANCE, least=0.25),
    Drifting(row=RETURN, share=0.15),
    # Their own limits are multiples of a median that creeps along.
    Drifting(row=GRAD_NORM, share=1.5),
    Drifting(row=VALUE_LOSS, share=1.5),
)


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one row."""

    baseline: float
    scatter: float
    updates: int
    """Values taken so far."""
    changed_at: int = 0
    """When the task last changed, as the baseline knows it."""
    total: float = 0.0
    earned: float | None = None
    """What the policy earned when the baseline was taken; `None` where it is not known."""


def drifts(state: RunState, before: Mapping[str, Drift]) -> dict[str, Drift]:
    """The sums after this tick, by full name; rows that have no baseline yet are left out."""
    found: dict[str, Drift] = {}
    earned, health = state.policy.get(RETURN.name), health_of(state.policy)
    for watched in WATCHED:
        series, known = state.policy.get(watched.row.name), before.get(watched.row.name)
        if series is None or series.value is None or not _says_something(state, watched.row):
            if known is not None:
                found[watched.row.name] = known
            continue
        outgrown = watched.row is not RETURN and _is_outgrown(known, earned)
        anew = _is_outdated(known, state) or outgrown
        fresh = _frozen(state, series) if anew and health is not Health.TROUBLE else None
        after = fresh or (None if _is_outdated(known, state) else _added(watched.row, series, known))
        if after is not None:
            found[watched.row.name] = after
    return found


def _says_something(state: RunState, row: Metric) -> bool:
    """A critic whose targets hardly vary explains nothing, and none the less."""
    return row is not EXPLAINED_VARIANCE or targets_vary(state)


def _is_outdated(known: Drift | None, state: RunState) -> bool:
    return known is None or known.changed_at != state.task_changed_at


def _is_outgrown(known: Drift | None, earned: Series | None) -> bool:
    """Whether the policy earns far more than when the baseline was taken: it is another one, with its own."""
    if known is None or known.earned is None or earned is None:
        return False
    return has_risen(earned, known.earned, BASELINE)


def _frozen(state: RunState, series: Series) -> Drift | None:
    """A first baseline, from the newest updates of the present task."""
    newest = series.window.items[-BASELINE:]
    if state.updates < WARM_UP_UPDATES + BASELINE or len(newest) < BASELINE:
        return None
    level, apart = _level(newest)
    if not math.isfinite(level) or not math.isfinite(apart):
        return None
    earned = state.policy.get(RETURN.name)
    return Drift(
        baseline=level,
        scatter=apart,
        updates=series.updates,
        changed_at=state.task_changed_at,
        earned=None if earned is None else median(earned.window.items[-BASELINE:]),
    )


def _level(values: list[float]) -> tuple[float, float]:
    level = median(values) or 0.0
    scatter = NORMAL * (median([abs(value - level) for value in values]) or 0.0)
    return level, max(scatter, LEAST_SCATTER * abs(level))


def _added(row: Metric, series: Series, known: Drift | None) -> Drift | None:
    if known is None or series.value is None or series.updates == known.updates:
        return known
    known = msgspec.structs.replace(known, updates=series.updates)
    if row.direction is Direction.UP:
        level, scatter = _level(series.window.items[-BASELINE:])
        if known.baseline < level < math.inf and scatter < math.inf:
            known = msgspec.structs.replace(known, baseline=level, scatter=scatter, total=0.0)
    if known.scatter <= 0:
        return known
    apart = (series.value - known.baseline) / known.scatter * (-1 if row.direction is Direction.UP else 1)
    if not math.isfinite(apart):
        return known
    total = min(max(known.total + min(apart, MOST) - ALLOWANCE, 0.0), CEILING)
    return msgspec.structs.replace(known, total=total)


def drift_problems(
    state: RunState, found: Mapping[str, Drift], standing: Mapping[str, Problem]
) -> Iterator[tuple[Metric, Problem]]:
    """Rows that have drifted, and far enough to matter; one that stands goes on until half is regained."""
    for watched in WATCHED:
        drift, series = found.get(watched.row.name), state.policy.get(watched.row.name)
        if drift is None or series is None or drift.total < ALARM:
            continue
        now = median(series.window.items[-NOW:])
        # A few episodes an update scatter by more than any share of what they earn at best.
        luck = LUCK * unrest(series.window.items) if watched.row is RETURN else 0.0
        far = max(watched.share * abs(drift.baseline), watched.least, luck)
        least = _least(state, watched)
        if f"{CODE}:policy:{watched.row.short}" in standing:
            far, least = far / 2, least / 2
        if now is not None and now >= least and _worse_by(watched.row, drift, now) >= far:
            yield watched.row, _problem(watched.row, drift, now, series.at)


def _least(state: RunState, watched: Drifting) -> float:
    """Where the row must be for a drift to matter, by the limit that judges it in this run."""
    limit = state.limits(watched.row).warning
    return -math.inf if limit is None or not watched.of_limit else watched.of_limit * limit.value


def _worse_by(row: Metric, drift: Drift, now: float) -> float:
    return drift.baseline - now if row.direction is Direction.UP else now - drift.baseline


def _problem(row: Metric, drift: Drift, now: float, at: int) -> Problem:
    way = "sank" if row.direction is Direction.UP else "crept up"
    return of_policy(
        code=CODE,
        subject=row.short,
        at=at,
        message=f"{row.label} {way} slowly to {now:{row.fmt}} from {drift.baseline:{row.fmt}}",
        hint=row.fix or "compare with the checkpoint from before; look at what was changed since",
    )


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
