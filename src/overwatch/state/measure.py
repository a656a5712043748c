"""Folding numbers: one `Measured` event into the columns of its scope."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple, assert_never

import numpy as np

from overwatch.catalog import BY_NAME, KL, NO_LIMITS, Kind, Metric, NonFinite, Scope, of_scope, parse_stage
from overwatch.catalog.env import BOOST, CONTRIBUTION, GRADIENT_HEALTH, INTERACTION, SHAPLEY
from overwatch.catalog.machine import (
    DISK_TOTAL,
    DISK_USED,
    ECC_UNCORRECTED,
    MEMORY_USED,
    RAM_TOTAL,
    RAM_USED,
    THROTTLE,
    UTILIZATION,
)
from overwatch.catalog.phases import Phase as Turn
from overwatch.catalog.phases import parse_phase
from overwatch.catalog.run import STEPS
from overwatch.events import Column, Conflated, Measured
from overwatch.state.arrays import LARGEST, Ints, counted
from overwatch.state.derived import derive, settle_stops
from overwatch.state.env_tables import FURTHER, MEASURES
from overwatch.state.machines import HOSTS, Gauge, HostReadings, LaneHealth, Peaks, Rested, Throttle
from overwatch.state.places import looked_up
from overwatch.state.policy import Many, health_of, new_series, observe, observe_conflated
from overwatch.state.repeats import has_total_of_run, updates_counted
from overwatch.state.rhythm import UPDATE, Rhythm
from overwatch.state.run import LANES, MAX_RANKS, RunState
from overwatch.state.sources import Source

MARK_NS = 250_000_000
"""Least producer time between two marks of the step rate."""
MOST_READING: Final = 1e100
"""In any unit; no machine reports more, and squares and sums of what is less are numbers."""
MAX_AGE = 2.0**53
"""Steps; what is more, or less than none, is no age."""
_NARROW: Final = 4
"""Bytes of whole numbers that are all below it."""
MAX_CUSTOM = 256
"""Most policy values that no row knows."""
_FILLS: Final = frozenset(row.name for row in (RAM_USED, RAM_TOTAL, DISK_USED, DISK_TOTAL))
"""Readings of what fills up, which are kept for each host."""
_OF_SLOTS: Final = {row.name: row.short for row in (CONTRIBUTION, INTERACTION, BOOST, SHAPLEY)}
_COUNTERS: Final = [row for row in of_scope(Scope.RUN) if row.kind is Kind.COUNTER]


def measure(state: RunState, event: Measured, stamp: int, source: Source) -> None:
    """Fold one measurement of a producer, received at `stamp`."""
    rank = source.rank
    match event.scope:
        case Scope.POLICY:
            _policy(state, event, stamp, source)
        case Scope.ENV:
            _envs(state, event, rank)
        case Scope.SLOT:
            _slots(state, event)
        case Scope.GPU:
            _lanes(state, event, stamp)
        case Scope.HOST:
            _host(state, event, stamp, rank)
        case Scope.RUN:
            _numbers(state, event, stamp, source)
        case Scope.TOWER:
            pass
        case Scope.LEARNER | Scope.ACTOR | Scope.REPLAY | Scope.ORCHESTRATOR | Scope.ROLLOUTS:
            pass
        case _:
            assert_never(event.scope)


def _policy(state: RunState, event: Measured, stamp: int, source: Source) -> None:
    _numbers(state, event, stamp, source)
    derive(state, event, stamp)
    state.pairs.take(event.values)
    if not state.updates:
        state.pace.restart()
    again = updates_counted(state, source, event)
    more = min(event.updates(state.index), event.updates(None) - again)
    if more:
        state.updates, state.index = counted(state.updates, more), event.index
    state.update = state.updates if event.index is None else event.index
    if state.kl_rest is not None and KL.name in event.values:
        state.kl_rest.last = state.update
    settle_stops(state)
    step_update(state, source, event.at)
    if more or not again:
        _note_pace(state, event.at, state.updates)
    state.last_update_at = max(state.last_update_at, event.at)


def step_update(state: RunState, source: Source, at: int) -> None:
    """Note an update of a rank as a step of its loop, unless its phases show more."""
    if not any(parse_phase(name) is Turn.UPDATE for name in state.phases.get(source.rank, {})):
        rhythm = state.rhythms.setdefault(source.rank, Rhythm())
        rhythm.step(UPDATE, at, is_paused=state.paused_at is not None)


def _note_pace(state: RunState, at: int, updates: int) -> None:
    """Note what is done; in a pause, whose end may come in later, no stretch ends."""
    if state.paused_at is not None:
        state.pace.skip()
    state.pace.note(at, (state.steps, updates), state.phases)


def hand_over(state: RunState, before: int) -> None:
    """Begin the policy's numbers and the count of updates anew: a rank lower than `before` leads now."""
    for name in [name for name, row in BY_NAME.items() if row.scope is Scope.POLICY]:
        series = state.policy.pop(name, None)
        if series is not None and series.value is not None:
            state.ranks.aside(before, {name: Column.scalar(series.value)})
    state.updates, state.update, state.index, state.kl_rest = 0, None, None, None
    state.pairs.restart()


def _numbers(state: RunState, event: Measured, stamp: int, source: Source) -> None:
    """Fold values of one subject into their series; an empty column ends its series."""
    health = health_of(state.policy)
    for name, column in event.values.items():
        if not len(column):
            state.policy.pop(name, None)
            continue
        row = BY_NAME.get(name)
        if row is not None and row.scope is Scope.RUN:
            _take_count(state, row, Reported(source, event.at, column.first()))
            continue
        if row is None and name not in state.policy and len(state.policy) >= MAX_CUSTOM:
            state.overflow.note("metric", name)
            continue
        series = state.policy.get(name)
        if series is None:
            series = state.policy[name] = new_series()
        limits = NO_LIMITS if row is None else state.limits(row)
        if event.conflated is None or event.conflated.n <= 1:
            observe(series, row, limits, column.first(), health=health)
            rest = None
        else:
            many = _many(event.conflated, name)
            rest = observe_conflated(series, row, limits, column.first(), many, health=health)
        if row is KL:
            state.kl_rest = rest
        series.at, series.stamp = event.at, stamp


class Reported(NamedTuple):
    """A total as a producer reports it."""

    source: Source
    at: int
    total: float


def _take_count(state: RunState, row: Metric, reported: Reported) -> None:
    """Keep a counter of the run that its producers keep themselves.

    One that fell began again, but where a checkpoint was gone on from: that total is the run's, and repeats.
    """
    key, most = f"{row.short} {reported.source.rank}", MAX_RANKS * len(_COUNTERS)
    if not 0 <= reported.total < math.inf or (key not in state.reported and len(state.reported) >= most):
        return
    total, before = min(reported.total, float(LARGEST)), state.reported.get(key, 0.0)
    if has_total_of_run(state, reported.source):
        total = max(total, before)
    state.reported[key] = total
    more = total - before if total >= before else total
    whole = min(state.reported_counts.get(row.short, 0.0) + more, float(LARGEST))
    state.reported_counts[row.short] = whole
    if row is STEPS and whole > state.steps:
        state.steps = int(whole)
        state.step_marks.push((reported.at, state.steps))


def _many(conflated: Conflated, name: str) -> Many:
    low, high = conflated.low.get(name), conflated.high.get(name)
    return Many(
        n=min(max(conflated.n, 1), LARGEST),
        low=low.first() if low else None,
        high=high.first() if high else None,
        warnings=conflated.warnings.get(name, 0),
        criticals=conflated.criticals.get(name, 0),
    )


def _envs(state: RunState, event: Measured, rank: int) -> None:
    reported = state.envs.at(event.keys["env_id"])
    lane = event.values.get("lane")
    if lane is not None:
        state.envs.report_lanes(reported, lane, _numbered(lane, state.lane_code))
    for name, column in event.values.items():
        row = BY_NAME.get(name)
        if row is not None and row.short == "return":
            state.envs.report_returns(reported, column.array().astype(np.float64), event.at)
        elif row is not None and row.short in MEASURES:
            values = column.array()
            state.envs.measure(row.short, reported.span, values, event.at)
            if row.non_finite is NonFinite.CRITICAL:
                state.envs.note_non_finite(reported.rows, values, row.name, event.at)
        elif row is not None and row.short in FURTHER:
            state.envs.measure(row.short, reported.span, column.array(), event.at)
    state.envs.report(reported.span, event.at)
    state.envs.trends.sample(reported, event.index, event.at, state.envs.values)
    if event.index is not None:
        _count_steps(state, rank, reported.rows.size, event)


def _count_steps(state: RunState, rank: int, num_envs: int, event: Measured) -> None:
    """Each rank numbers its own steps; one that counts them itself (`_take_count`) is not counted again."""
    if f"{STEPS.short} {rank}" in state.reported:
        return
    if rank not in state.step_index and len(state.step_index) >= MAX_RANKS:
        return
    index, marks = event.index or 0, state.step_marks
    first = index if event.conflated is None or event.conflated.first is None else event.conflated.first
    before = state.step_index.get(rank, first - 1)
    if index <= before:
        return
    state.steps = counted(state.steps, num_envs * (index - before))
    state.step_index[rank] = index
    if not marks.items or event.at - marks.items[-1][0] >= MARK_NS:
        marks.push((event.at, state.steps))
        if not state.updates:
            _note_pace(state, event.at, 0)


def _slots(state: RunState, event: Measured) -> None:
    envs = state.envs
    reported, slot = envs.at(event.keys["env_id"]), event.keys["slot"]
    cells = envs.cells(event.keys["env_id"], slot, _numbered(slot, state.slot_names.code))
    envs.fit_slots(len(state.slot_names.words))
    stage = event.values.get("overwatch.slot.stage")
    if stage is not None:
        envs.move(cells, codes(stage, stage_code), event.at)
    blueprint = event.values.get("blueprint")
    if blueprint is not None:
        cells.put(envs.blueprint, codes(blueprint, state.blueprint_names.code))
    alpha = event.values.get("overwatch.slot.alpha")
    if alpha is not None:
        cells.put(envs.alpha, alpha.array())
    age = event.values.get("overwatch.slot.age")
    if age is not None:
        cells.put(envs.age, _ages(age))
    grad = event.values.get(GRADIENT_HEALTH.name)
    if grad is not None:
        envs.graded = True
        cells.put(envs.grad, grad.array())
    for name, column in event.values.items():
        short = _OF_SLOTS.get(name)
        if short is not None:
            envs.measure_slots(short, cells, column.array())
    envs.touch(cells.span if cells.width else reported.rows, event.at)


def _ages(column: Column) -> np.ndarray:
    """Ages in steps; -1 for what is no age."""
    ages = column.array()
    if ages.dtype.kind == "i" and ages.itemsize <= _NARROW:
        steps: np.ndarray = np.maximum(ages, -1)
        return steps
    return np.where((ages >= 0) & (ages < MAX_AGE), ages, -1)


def stage_code(word: str) -> int:
    """Number of a stage's word; an unknown word is the stage UNKNOWN."""
    return parse_stage(word).code


def codes(column: Column, code: Callable[[str], int]) -> Ints:
    """The run's own number of each word of a dictionary-coded column; -1 where absent."""
    return looked_up(column, _numbered(column, code))


def _numbered(column: Column, code: Callable[[str], int]) -> tuple[int, ...]:
    """The run's own number of each label."""
    if column.labels is None:
        raise ValueError("a column of words needs labels; this one holds bare numbers")
    return tuple([code(label) for label in column.labels])


def _host(state: RunState, event: Measured, stamp: int, rank: int) -> None:
    """Readings of the run as a whole, the newest of any host; those of what fills up by host too."""
    fills: dict[str, float] = {}
    for name, column in event.values.items():
        if len(column):
            value = column.first()
            _gauge(state.host, name, value, event.at, stamp)
            if name in _FILLS and _is_reading(value):
                fills[name] = value
        elif name in BY_NAME:
            state.host.pop(BY_NAME[name].short, None)
    node = _node(state, rank)
    if not fills or (node not in state.hosts and len(state.hosts) >= HOSTS):
        return
    host = state.hosts.setdefault(node, HostReadings())
    for name, value in fills.items():
        _gauge(host.gauges, name, value, event.at, stamp)
        if name in (RAM_USED.name, DISK_USED.name):
            host.peaks.setdefault(BY_NAME[name].short, Peaks()).note(event.at, value)


def _node(state: RunState, rank: int) -> str:
    """The host that a rank runs on; the rank itself where it did not name one."""
    start = state.ranks.starts.get(f"trainer/{rank:09d}")
    return f"rank {rank}" if start is None or not start.node else start.node


def _lanes(state: RunState, event: Measured, stamp: int) -> None:
    ids = event.keys["gpu_id"].words()
    labels, nodes = (_words(event, name, len(ids)) for name in ("label", "node"))
    for position, (lane_id, label, node) in enumerate(zip(ids, labels, nodes, strict=True)):
        if lane_id is None:
            continue
        if len(state.lanes) >= LANES and state.lane_ids.name(lane_id) not in state.lanes:
            state.overflow.note("lane", lane_id)
            continue
        if label is not None:
            state.call_lane(lane_id, label, node)
        lane = state.lane(lane_id)
        readings = state.lanes.setdefault(lane, {})
        for name, column in event.values.items():
            if name == THROTTLE.name:
                state.throttles[lane] = _throttle(column, position, event.at, stamp)
            elif column.labels is None:
                value = float(column.array()[position])
                if math.isnan(value):
                    _forget(readings, name, event.at)
                _gauge(readings, name, value, event.at, stamp)
                _note_usage(state, lane, name, value, event.at)


def _note_usage(state: RunState, lane: str, name: str, value: float, at: int) -> None:
    """What minutes of readings show of a lane, beyond its newest few."""
    if not _is_reading(value):
        return
    if name == MEMORY_USED.name:
        state.peaks.setdefault(lane, Peaks()).note(at, value)
    elif name == UTILIZATION.name:
        state.rested.setdefault(lane, Rested()).note(at, value)
    elif name == ECC_UNCORRECTED.name:
        state.lane_health.setdefault(lane, LaneHealth()).count_errors(value, at)


def _is_reading(value: float) -> bool:
    """Whether a machine may have read it."""
    return abs(value) <= MOST_READING


def _words(event: Measured, name: str, count: int) -> list[str | None]:
    column = event.values.get(name)
    return [None] * count if column is None or column.labels is None else column.words()


def _throttle(column: Column, position: int, at: int, stamp: int) -> Throttle:
    word = column.words()[position]
    reasons = [part.strip() for part in (word or "").split(",")]
    return Throttle(reasons=[part for part in reasons if part and part != "none"], at=at, stamp=stamp)


def _forget(readings: dict[str, Gauge], name: str, at: int) -> None:
    """A reading that is none any more; one that came later stays."""
    row = BY_NAME.get(name)
    known = None if row is None else readings.get(row.short)
    if row is not None and known is not None and known.at <= at:
        del readings[row.short]


def _gauge(readings: dict[str, Gauge], name: str, value: float, at: int, stamp: int) -> None:
    row = BY_NAME.get(name)
    if row is None or not _is_reading(value):
        return
    known = readings.get(row.short)
    if known is None:
        known = readings[row.short] = Gauge(value=value, at=at, stamp=stamp)
    known.value, known.at, known.stamp = value, at, stamp
    known.history.push(value)
    known.times.push(at)
