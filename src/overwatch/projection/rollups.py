"""Rollups over the fleet and over each lane: seeds by stage, mix of actions, the envs at both ends."""

from typing import Final

import numpy as np

from overwatch.catalog.stages import Stage
from overwatch.projection.board import BoardRows, lane_name, lanes_worst_first
from overwatch.projection.text import safe
from overwatch.snapshot import Aggregates, Best, LaneAggregates
from overwatch.state.arrays import Ints
from overwatch.state.run import RunState

_STAGES: Final = tuple((stage.value, stage.code) for stage in Stage)
_UNKNOWN: Final = Stage.UNKNOWN.value


def aggregates(rows: BoardRows) -> Aggregates:
    """Census of seeds and mix of recent actions, of all and of each lane, and the envs at both ends."""
    envs = rows.state.envs
    return Aggregates(
        seed_census=_census(envs.stage[: envs.n]),
        actions=_actions(rows.state),
        best=_ends(rows, worst=False),
        worst=_ends(rows, worst=True),
        lanes=tuple(_lane(rows, lane) for lane in lanes_worst_first(rows)),
    )


def _lane(rows: BoardRows, lane: int) -> LaneAggregates:
    envs = rows.state.envs
    on = rows.lanes[lane]
    return LaneAggregates(
        gpu_id=lane_name(rows.state, lane),
        seed_census=_census(envs.stage[on]),
        actions=_mix(rows.state, envs.actions.op[on]),
    )


def _census(codes: Ints) -> dict[str, int]:
    """Slots by stage; every stage is there, UNKNOWN only where there is one."""
    if not codes.shape[1]:
        return {}
    counts = np.bincount(codes.ravel() + 1, minlength=len(Stage) + 1)[1:].tolist()
    return {word: counts[code] for word, code in _STAGES if word != _UNKNOWN or counts[code]}


def _mix(state: RunState, ops: Ints) -> dict[str, float]:
    words = state.op_names.words
    if not words:
        return {}
    counts = np.bincount(ops[ops >= 0], minlength=len(words)).tolist()
    total = sum(counts)
    return {safe(word): n / total for word, n in zip(words, counts, strict=True) if n}


def _actions(state: RunState) -> dict[str, float]:
    totals: dict[str, int] = {}
    for counts in state.actions.items:
        for op, count in counts.items():
            totals[op] = totals.get(op, 0) + count
    everything = sum(totals.values())
    known = [op for op in state.op_names.words if op in totals]
    return {safe(op): totals[op] / everything for op in known}


def _ends(rows: BoardRows, *, worst: bool) -> tuple[Best, ...]:
    found = []
    info = rows.state.started.metric if rows.state.started else None
    for field, values, higher_is_better in (
        ("return", rows.returns, True),
        ("metric", rows.metric, info.higher_is_better if info else True),
    ):
        known = np.flatnonzero(np.isfinite(values))
        if not known.size:
            continue
        low = worst == higher_is_better
        row = int(known[np.argmin(values[known]) if low else np.argmax(values[known])])
        found.append(Best(env_id=int(rows.state.envs.ids[row]), field=field, value=float(values[row])))
    return tuple(found)
