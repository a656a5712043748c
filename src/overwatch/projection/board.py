"""The flight board: env rows in rank order within their lane, worst lane first, and what is added up of them.

Selects, cuts and formats what `diagnose` ranked and added up; only what a filter leaves is added up here.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from overwatch.catalog.stages import Stage
from overwatch.diagnose.anomaly import STATUSES
from overwatch.diagnose.fleet import End, Sums, middles_of
from overwatch.projection.rows import UNKNOWN, WORDS, BoardRows, env_views, lane_anomaly
from overwatch.projection.selection import Chosen, choose
from overwatch.projection.text import safe
from overwatch.snapshot import Aggregates, Best, Board, Env, Group, LaneAggregates, View
from overwatch.state.places import num_of
from overwatch.state.run import RunState

_SHOWN: Final = (*range(len(STATUSES) - 1, -1, -1), UNKNOWN)
"""Worst first."""
_STAGES: Final = tuple((stage.value, stage.code) for stage in Stage)
_UNKNOWN_STAGE: Final = Stage.UNKNOWN.value


def board(rows: BoardRows, view: View) -> tuple[Board, tuple[Env, ...]]:
    """The board's head and at most `view.rows` env rows, as the view orders and filters them."""
    chosen = choose(rows, view)
    shown = chosen.order[: view.rows]
    counts = _counts(rows, chosen)
    by_lane: dict[int, list[int]] = {lane: [] for lane in _lanes(rows, chosen) if lane in counts}
    for row, lane in zip(shown.tolist(), rows.state.envs.lane[shown].tolist(), strict=True):
        by_lane[lane].append(row)
    head = Board(
        sort=view.sort,
        direction="desc" if view.descending else "asc",
        filter=chosen.filter,
        counts=_named([sum(of_lane) for of_lane in zip(*counts.values(), strict=True)]),
        matched=None if chosen.filter is None else int(chosen.order.size),
        groups=tuple(_group(rows, lane, chosen, counts[lane], len(some)) for lane, some in by_lane.items()),
        columns=rows.rollups.columns,
    )
    placed = [row for some in by_lane.values() for row in some] if view.grouped else shown.tolist()
    return head, env_views(rows, placed)


def _lanes(rows: BoardRows, chosen: Chosen) -> tuple[int, ...]:
    """Lane codes in the order of the view."""
    return rows.lane_order if chosen.order is rows.order else rows.state.envs.lanes_by(chosen.order)


def _counts(rows: BoardRows, chosen: Chosen) -> dict[int, list[int]]:
    """Envs of each lane by status, of those that pass the filter; lanes without any are left out."""
    width = len(WORDS)
    if chosen.mask is None and not rows.stale and not rows.anomalies.factors:
        sizes = {lane: num_of(on) for lane, on in rows.lanes.items()}
        return {lane: [size, *[0] * (width - 1)] for lane, size in sizes.items()}
    cells = (rows.state.envs.lane[: rows.state.envs.n] + 1) * width + rows.codes
    if chosen.mask is not None:
        cells = cells[chosen.mask]
    table = np.bincount(cells, minlength=-(-int(cells.max(initial=0) + 1) // width) * width)
    found: list[list[int]] = table.reshape(-1, width).tolist()
    return {place - 1: counts for place, counts in enumerate(found) if any(counts)}


def _group(rows: BoardRows, lane: int, chosen: Chosen, counts: Sequence[int], num_shown: int) -> Group:
    added_up = rows.rollups.middles.get(lane) if chosen.filter is None else None
    if added_up is None:
        members = rows.lanes[lane]
        if chosen.mask is not None:
            members = np.flatnonzero(chosen.mask & (rows.state.envs.lane[: rows.state.envs.n] == lane))
        added_up = middles_of(
            {"return": rows.returns, "metric": rows.metric, "rent": rows.rent, "fps": rows.fps}, members
        )
    return Group(
        gpu_id=rows.lane_names[lane],
        n_envs=sum(counts),
        counts=_named(counts),
        median_return=added_up.median_return,
        median_metric=added_up.median_metric,
        median_rent=added_up.median_rent,
        median_fps=added_up.median_fps,
        p10_return=added_up.p10_return,
        p90_return=added_up.p90_return,
        hidden=sum(counts) - num_shown,
        anomaly=lane_anomaly(rows.judged, None if lane < 0 else rows.state.lane_names.words[lane]),
    )


def _named(counts: Sequence[int]) -> dict[str, int]:
    """Envs by status word, worst first; those of none are left out."""
    return {WORDS[code]: counts[code] for code in _SHOWN if counts and counts[code]}


def aggregates(rows: BoardRows) -> Aggregates:
    """Census of seeds and mix of recent actions, of all and of each lane, and the envs at both ends."""
    added_up = rows.rollups
    return Aggregates(
        seed_census=_census(added_up.fleet),
        actions=_actions(rows.state),
        best=_ends(added_up.best),
        worst=_ends(added_up.worst),
        lanes=tuple(
            LaneAggregates(
                gpu_id=rows.lane_names[lane],
                seed_census=_census(added_up.lanes[lane]),
                actions=_mix(rows.state, added_up.lanes[lane]),
            )
            for lane in rows.lane_order
            if lane in added_up.lanes
        ),
    )


def _census(sums: Sums) -> dict[str, int]:
    """Slots by stage; every stage is there, UNKNOWN only where there is one."""
    counts = sums.seeds
    return {
        word: counts[code] for word, code in _STAGES if counts and (word != _UNKNOWN_STAGE or counts[code])
    }


def _mix(state: RunState, sums: Sums) -> dict[str, float]:
    total = sum(sums.ops)
    return {safe(word): n / total for word, n in zip(state.op_names.words, sums.ops, strict=False) if n}


def _actions(state: RunState) -> dict[str, float]:
    totals: dict[str, int] = {}
    for counts in state.actions.items:
        for op, count in counts.items():
            totals[op] = totals.get(op, 0) + count
    everything = sum(totals.values())
    known = [op for op in state.op_names.words if op in totals]
    return {safe(op): totals[op] / everything for op in known}


def _ends(ends: Sequence[End]) -> tuple[Best, ...]:
    return tuple(Best(env_id=end.env_id, field=end.field, value=end.value) for end in ends)
