"""The fold: `apply(state, record, stamp)`, the only code that changes a run's state.

Rules: one branch a kind of event, ending in `assert_never`; a column folds without a Python loop per env;
nothing here reads a clock. A malformed event raises before it changes anything it cannot finish.
"""

import math
from typing import assert_never

import numpy as np

from overwatch.catalog import BY_NAME, Scope
from overwatch.events import (
    ActionTaken,
    Column,
    EarlyStopped,
    EnvCrashed,
    EpisodeEnded,
    Event,
    GateEvaluated,
    LogLine,
    Measured,
    NonFiniteSeen,
    PhaseEnded,
    Record,
    RunFinished,
    RunStarted,
    SeedStageChanged,
)  # fmt: skip
from overwatch.state.arrays import Ints
from overwatch.state.feed import entry_of
from overwatch.state.measure import measure
from overwatch.state.run import RunState
from overwatch.state.sources import Source, source_key


def new_run(record: Record) -> RunState:
    """The state of a run that was just heard of."""
    return RunState(origin=record.origin, first_at=record.event.at)


def apply(state: RunState, record: Record, stamp: int) -> bool:
    """Fold one record received at `stamp`; `False` when it had been folded before."""
    origin, event = record.origin, record.event
    source = state.sources.setdefault(source_key(origin), Source(name=f"{origin.role} {origin.rank}"))
    if not source.is_new(record.seq):
        return False
    source.heard(stamp, event.at)
    state.last_stamp = max(state.last_stamp, stamp)
    state.last_at = max(state.last_at, event.at)
    _fold(state, source, event, stamp)
    entry = entry_of(event)
    if entry is not None:
        state.feed.push(entry)
        state.feed_total += 1
    return True


def _fold(state: RunState, source: Source, event: Event, stamp: int) -> None:
    match event:
        case RunStarted():
            _start(state, source, event)
        case RunFinished():
            state.finished = event
            source.finished = True
        case Measured():
            measure(state, event, stamp)
            _note_drops(state, source, event)
        case EpisodeEnded():
            _end_episodes(state, event)
        case ActionTaken():
            _act(state, event)
        case SeedStageChanged():
            _move_seed(state, event)
        case GateEvaluated():
            _gate(state, event)
        case EnvCrashed():
            _crash(state, event)
        case NonFiniteSeen():
            _non_finite(state, event)
        case EarlyStopped() | PhaseEnded() | LogLine():
            pass
        case _:
            assert_never(event)


def _start(state: RunState, source: Source, event: RunStarted) -> None:
    state.started = event
    state.finished = None
    source.finished = False
    for slot in event.slots:
        state.slot_names.code(slot)
    for lane in event.devices:
        state.lane_names.code(lane)


def _note_drops(state: RunState, source: Source, event: Measured) -> None:
    if event.scope is not Scope.TOWER:
        return
    for name, column in event.values.items():
        row = BY_NAME.get(name)
        if row is not None and len(column):
            state.tower[row.short] = column.first()
            if row.short == "sdk_dropped":
                source.dropped = int(column.first())


def _end_episodes(state: RunState, event: EpisodeEnded) -> None:
    rows = state.envs.rows(_ids(event.env_id))
    state.envs.finish_episodes(rows, event.episode_return.array().astype(np.float64))
    if event.metric is not None:
        state.envs.measure("metric", rows, event.metric.array().astype(np.float64), event.at)
    state.envs.touch(rows, event.at)
    state.episodes += len(event.env_id)


def _act(state: RunState, event: ActionTaken) -> None:
    rows = state.envs.rows(_ids(event.env_id))
    ops = event.op.words()
    known = [state.op_names.code(op) if op is not None else -1 for op in ops]
    state.envs.op[rows] = known
    slots = event.slot.words() if event.slot is not None else [None] * len(ops)
    state.envs.op_slot[rows] = [-1 if slot is None else state.slot_names.code(slot) for slot in slots]
    state.envs.touch(rows, event.at)
    counts: dict[str, int] = {}
    for op in ops:
        if op is not None:
            counts[op] = counts.get(op, 0) + 1
    state.actions.push(counts)


def _move_seed(state: RunState, event: SeedStageChanged) -> None:
    row = state.envs.row(event.env_id)
    slot = state.slot_names.code(event.slot)
    state.envs.fit_slots(len(state.slot_names.words))
    state.envs.stage[row, slot] = event.after.code
    blueprint = event.blueprint
    state.envs.blueprint[row, slot] = -1 if blueprint is None else state.blueprint_names.code(blueprint)
    state.envs.alpha[row, slot] = math.nan if event.alpha is None else event.alpha
    state.envs.age[row, slot] = 0
    state.envs.touch(np.array([row]), event.at)


def _gate(state: RunState, event: GateEvaluated) -> None:
    result = "passed" if event.passed else "failed"
    state.envs.gates[f"{event.env_id}/{event.slot}"] = f"{event.gate} {result}"
    state.envs.touch(np.array([state.envs.row(event.env_id)]), event.at)


def _crash(state: RunState, event: EnvCrashed) -> None:
    row = state.envs.row(event.env_id)
    state.envs.seen_at[row] = max(int(state.envs.seen_at[row]), event.at)
    state.envs.crashed_at[row] = event.at
    at_step = "" if event.step is None else f" at step {event.step:,}"
    state.envs.crashes[event.env_id] = f"crashed{at_step}: {event.error}"
    state.crashes += 1


def _non_finite(state: RunState, event: NonFiniteSeen) -> None:
    state.non_finite += event.count
    state.non_finite_at = event.at
    state.non_finite_last = f"{event.kind} in {event.metric}"
    for env_id in event.env_ids:
        row = state.envs.row(env_id)
        state.envs.non_finite_at[row] = event.at
        state.envs.non_finite[env_id] = f"{event.kind} in {event.metric}"


def _ids(column: Column) -> Ints:
    return column.array().astype(np.int64)
