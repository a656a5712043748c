"""Rollups over the fleet and over each lane: seeds by stage, mix of actions, the envs at both ends."""

from collections.abc import Sequence
from typing import Final

from overwatch.catalog.stages import Stage
from overwatch.diagnose.rollups import End, Sums
from overwatch.projection.board import BoardRows
from overwatch.projection.text import safe
from overwatch.snapshot import Aggregates, Best, LaneAggregates
from overwatch.state.run import RunState

_STAGES: Final = tuple((stage.value, stage.code) for stage in Stage)
_UNKNOWN: Final = Stage.UNKNOWN.value


def aggregates(rows: BoardRows) -> Aggregates:
    """Census of seeds and mix of recent actions, of all and of each lane, and the envs at both ends."""
    told = rows.rollups
    return Aggregates(
        seed_census=_census(told.fleet),
        actions=_actions(rows.state),
        best=_ends(told.best),
        worst=_ends(told.worst),
        lanes=tuple(
            LaneAggregates(
                gpu_id=rows.lane_names[lane],
                seed_census=_census(told.lanes[lane]),
                actions=_mix(rows.state, told.lanes[lane]),
            )
            for lane in rows.lane_order
            if lane in told.lanes
        ),
    )


def _census(sums: Sums) -> dict[str, int]:
    """Slots by stage; every stage is there, UNKNOWN only where there is one."""
    counts = sums.seeds
    return {word: counts[code] for word, code in _STAGES if counts and (word != _UNKNOWN or counts[code])}


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
