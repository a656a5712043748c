"""The fold: `apply(state, record, stamp)`, the only code that changes a run's state.

Rules: one branch a kind of event, ending in `assert_never`; a column folds without a Python loop per env;
nothing here reads a clock. A malformed event raises before it changes anything it cannot finish.
"""

import math
from bisect import bisect_left
from typing import Final, TypeVar, assert_never

import msgspec
import numpy as np

from overwatch import events
from overwatch.catalog import BY_NAME, Scope, chosen_by
from overwatch.catalog.compiling import COMPILE
from overwatch.catalog.goodhart import PROXY, TRUE
from overwatch.catalog.learner import CHECKPOINT_DURATION
from overwatch.catalog.policy import RETURN, VALUE_LOSS
from overwatch.catalog.processes import SUBSYSTEM
from overwatch.catalog.run import STEPS
from overwatch.catalog.tallies import SERVICES
from overwatch.state.arrays import counted
from overwatch.state.caps import forget_late, remove, source_of, within
from overwatch.state.derived import settle_stops, settle_units
from overwatch.state.feed import begin, entry_of, measured, score_text
from overwatch.state.machines import GPU_SUBSYSTEM, LaneHealth, note_processes
from overwatch.state.measure import MARK_NS, codes, hand_over, measure, step_update
from overwatch.state.places import Cells, ids_in
from overwatch.state.policy import rebase
from overwatch.state.repeats import begin as begin_life
from overwatch.state.repeats import is_counted
from overwatch.state.rhythm import Phase, Rhythm
from overwatch.state.run import (
    LANES,
    MAX_RANKS,
    PAUSED,
    PHASE_NAMES,
    SLOT_NAMES,
    Entry,
    Episode,
    FailedSaves,
    RunState,
)
from overwatch.state.saves import note_failed_save
from overwatch.state.sources import LEARNS, Source, end_of, holder_of, source_key

K = TypeVar("K")

_SCOPES_APART: Final = (
    Scope.ENV,
    Scope.SLOT,
    Scope.GPU,
    Scope.HOST,
    Scope.TOWER,
    *SERVICES,
)
_APART: Final = (
    events.EpisodeEnded, events.ActionTaken, events.SeedStageChanged, events.GateEvaluated,
    events.PhaseBegan, events.PhaseEnded, events.LogLine, events.Tallied, events.RunStateChanged,
    events.CommandApplied,
)  # fmt: skip


def new_run(record: events.Record) -> RunState:
    """The state of a run that is new."""
    return RunState(origin=record.origin, first_at=record.event.at)


def apply(state: RunState, record: events.Record, stamp: int) -> bool:
    """Fold one record received at `stamp`; `False` when it had been folded before."""
    origin, event = record.origin, record.event
    if isinstance(event, events.FindingAcknowledged):
        _acknowledge(state, event)
        return True
    source = source_of(state, origin)
    if not source.is_new(record.seq):
        return False
    is_new = not source.stamp
    waited = state.paused_at is not None or source.at <= state.resumed_at
    source.received(stamp, event.at, is_usual=not waited)
    if is_new:
        state.finished = end_of(state.sources)
    state.last_stamp = max(state.last_stamp, stamp)
    state.last_at = max(state.last_at, event.at)
    part = within(state, event)
    if part is None:
        return True
    if part is not event:
        event = part
        record = msgspec.structs.replace(record, event=part)
    known = state.envs.n
    _fold(state, source, record, stamp)
    state.heeded += not _is_apart(event)
    if state.envs.n != known:
        state.pace.restart()
    if state.envs.n > known and event.at <= state.envs.removed_at:
        forget_late(state)
    entry = entry_of(event)
    if entry is not None:
        _note_line(state, _of_part(state, source, event, entry))
    return True


def _of_part(state: RunState, source: Source, event: events.Event, entry: Entry) -> Entry:
    """The line of an end that is not the run's names the producer that ended."""
    if (
        not isinstance(event, events.RunFinished)
        or state.sources.get(holder_of(state.sources) or "") is source
    ):
        return entry
    severity = "warning" if entry.severity == "critical" else entry.severity
    return msgspec.structs.replace(entry, message=f"{source.speaker} {event.outcome}", severity=severity)


def _is_apart(event: events.Event) -> bool:
    """Whether no policy is judged by an event."""
    return event.scope in _SCOPES_APART if isinstance(event, events.Measured) else isinstance(event, _APART)


def _acknowledge(state: RunState, event: events.FindingAcknowledged) -> None:
    """An operator's word is none of the run's: it makes no source and no silence shorter."""
    state.acks.push(event)
    state.acks_total += 1
    entry = entry_of(event)
    if entry is not None:
        _note_line(state, entry)


def _note_line(state: RunState, entry: Entry) -> None:
    marks = state.feed_marks
    if not marks.items or state.last_at - marks.items[-1][0] >= MARK_NS:
        marks.push((state.last_at, state.feed_total))
    state.feed.push(entry)
    state.feed_total += 1
    if entry.env_id is not None and entry.kind != "log_line":
        state.facts.push(entry.env_id, entry)


def _fold(state: RunState, source: Source, record: events.Record, stamp: int) -> None:
    event = record.event
    match event:
        case events.RunStarted():
            _start(state, source, record.origin, event)
        case events.RunFinished():
            _finish(state, source, event)
        case events.Measured(scope=scope) if _is_of_service(source, scope):
            _serve(state, record, stamp)
        case events.Tallied():
            _serve(state, record, stamp)
        case events.Measured(scope=Scope.POLICY) if not _leads(state, source.rank):
            state.ranks.aside(source.rank, event.values)
            step_update(state, source, event.at)
        case events.Measured():
            _measure(state, source, record.origin, event, stamp)
        case events.EpisodeEnded():
            _end_episodes(state, source, event)
        case events.ActionTaken():
            _act(state, source, event)
        case events.SeedStageChanged():
            _move_seed(state, event)
        case events.GateEvaluated():
            _gate(state, event)
        case events.EnvCrashed():
            _crash(state, event)
        case events.EnvRolledBack():
            _roll_back(state, source, event)
        case events.EnvsRemoved():
            remove(state, event)
        case events.NonFiniteSeen():
            _non_finite(state, source, event)
        case events.PhaseBegan():
            _begin_phase(state, source, event)
        case events.PhaseEnded():
            _end_phase(state, source, event)
        case events.CurriculumChanged():
            _change_task(state, event)
        case events.EarlyStopped():
            _stop_early(state, source, event)
        case events.CheckpointSaved():
            _save(state, source, event)
        case events.TrainingRecovered() | events.RunStateChanged() | events.CommandApplied():
            _control(state, source, event, stamp)
        case events.LogLine():
            _read(state, event, stamp)
        case events.FindingAcknowledged():
            pass
        case _:
            assert_never(event)


def _control(
    state: RunState,
    source: Source,
    event: events.TrainingRecovered | events.RunStateChanged | events.CommandApplied,
    stamp: int,
) -> None:
    """What training did about broken numbers, and what those who control it did."""
    match event:
        case events.TrainingRecovered():
            state.recoveries.push(event)
            _go_on(state, source, event.at)
        case events.RunStateChanged():
            if state.control is None or event.at >= state.control.at:
                state.control = event
                if event.before == PAUSED:
                    _resume(state, event.at, stamp)
        case events.CommandApplied():
            state.command = event
        case _:
            assert_never(event)


def _resume(state: RunState, at: int, stamp: int) -> None:
    """Begin to measure anew after a pause: how long it took is no measure of anything."""
    state.resumed_at = at
    state.back_stamp = max(state.back_stamp, stamp)
    state.pace.skip()
    state.step_marks.items.clear()
    for rhythm in state.rhythms.values():
        rhythm.resume(at)
    for phases in (*state.phases.values(), *state.beside.values()):
        for phase in phases.values():
            phase.restart(at)


def _read(state: RunState, event: events.LogLine, stamp: int) -> None:
    """Lines that mean more than their words."""
    if event.subsystem == GPU_SUBSYSTEM:
        _note_gpu(state, event)
    elif event.subsystem == SUBSYSTEM:
        note_processes(state.host, event, stamp)
    elif event.subsystem == COMPILE:
        state.recompiled = event
    elif event.severity.rank >= events.Severity.WARNING.rank:
        note_failed_save(state, event)


def _measure(
    state: RunState, source: Source, origin: events.Origin, event: events.Measured, stamp: int
) -> None:
    steps = state.steps
    measure(state, _settled(state, event), stamp, source)
    if state.steps > steps and source.is_trainer and STEPS.name in event.values:
        _go_on(state, source, event.at)
    _note_lanes(state, source, event)
    _note_reader(state, origin, event)
    _note_drops(state, source, event)


def _is_of_service(source: Source, scope: Scope) -> bool:
    """Whether numbers are kept process by process; those of a policy too, of a role that learns none."""
    return scope in SERVICES or (scope is Scope.POLICY and source.role not in LEARNS)


def _serve(state: RunState, record: events.Record, stamp: int) -> None:
    """Fold what a process reports of itself."""
    event, origin = record.event, record.origin
    service = state.services.of(origin, state.overflow)
    if service is None:
        return
    if isinstance(event, events.Measured):
        state.services.measure(service, event, stamp, state.overflow)
    elif isinstance(event, events.Tallied):
        service.received(event.at, stamp)
        began = state.sources[source_key(origin)].first_at
        state.services.count(service, event, origin.epoch, began, state.overflow)


def _leads(state: RunState, rank: int) -> bool:
    """Whether policy numbers of a rank are the run's; a lower rank than all before takes over from them."""
    before = state.ranks.leader
    is_leader = state.ranks.leads(rank)
    if is_leader and before is not None and before != rank:
        hand_over(state, before)
    return is_leader


def _settled(state: RunState, event: events.Measured) -> events.Measured:
    """The measurement under the names of its units; the first that shows another unit has a line."""
    if event.scope is not Scope.POLICY:
        return event
    state.preset_by_names = state.preset_by_names or chosen_by(event.values)
    settled, lines = settle_units(state, event)
    for line in lines:
        _note_line(state, line)
    return settled


def _start(state: RunState, source: Source, origin: events.Origin, event: events.RunStarted) -> None:
    state.started = state.ranks.started(origin, event)
    begin_life(state, source, event.resumed)
    state.pace.restart()
    if source.rank in state.rhythms:
        state.rhythms[source.rank].begin()
    source.promised, source.ending = True, None
    state.finished = end_of(state.sources)
    for health in state.lane_health.values() if source.rank == 0 else ():
        health.begin()
    for slot in event.slots:
        state.slot_names.code(slot)
    for lane_id, label in event.lanes.items():
        state.call_lane(lane_id, label, event.node)
    for lane_id in event.devices:
        state.lane(lane_id)


def _finish(state: RunState, source: Source, event: events.RunFinished) -> None:
    """One producer ended; whether the run did is its holder's to decide."""
    source.promised, source.ending = True, event
    state.finished = end_of(state.sources)


def _note_lanes(state: RunState, source: Source, event: events.Measured) -> None:
    lane = event.values.get("lane")
    if event.scope is Scope.ENV and lane is not None:
        for word in lane.labels or ():
            state.lane_ranks[state.lane(word)] = source.rank


def _note_reader(state: RunState, origin: events.Origin, event: events.Measured) -> None:
    """Which source reads which machines: where one falls silent, its reader may go on with others."""
    if event.scope not in (Scope.GPU, Scope.HOST):
        return
    key = source_key(origin)
    source = state.sources[key]
    source.sampled = source.stamp
    for lane_id in event.keys["gpu_id"].labels or () if event.scope is Scope.GPU else ():
        lane = state.lane_ids.name(lane_id)
        if lane in state.lanes:
            state.lane_health.setdefault(lane, LaneHealth()).read_by = key


def _note_gpu(state: RunState, event: events.LogLine) -> None:
    """What a sampler's driver reported of a lane."""
    lane_id = event.fields.get("lane")
    if lane_id is None or (len(state.lane_health) >= LANES and lane_id not in state.lane_ids.names):
        return
    state.lane_health.setdefault(state.lane(lane_id), LaneHealth()).note(event)


def _note_drops(state: RunState, source: Source, event: events.Measured) -> None:
    if event.scope is not Scope.TOWER:
        return
    for name, column in event.values.items():
        row = BY_NAME.get(name)
        if row is not None and len(column):
            value = column.first()
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}; send a finite number")
            state.tower[row.short] = value
            if row.short == "sdk_dropped":
                source.dropped = counted(0, int(value))


def _end_episodes(state: RunState, source: Source, event: events.EpisodeEnded) -> None:
    rows, returns = state.envs.rows(ids_in(event.env_id)), event.episode_return.array().astype(np.float64)
    is_new = not is_counted(state, source, event.step)
    state.envs.finish_episodes(rows, returns, event.at, is_new=is_new)
    if event.length is not None:
        state.envs.note_lengths(rows, event.length.array().astype(np.float64))
    if event.metric is not None:
        state.envs.measure("metric", rows, event.metric.array().astype(np.float64), event.at)
    state.envs.report(rows, event.at)
    if is_new:
        state.episodes += len(event.env_id)
        _rank_episodes(state, event, rows)


_OF_EPISODE: Final = (
    "episode_return", "length", "metric", "best", "best_step", "growth_ratio", "fossils", "prunes",
)  # fmt: skip


def _rank_episodes(state: RunState, event: events.EpisodeEnded, rows: np.ndarray) -> None:
    """Remember the best episodes: one that comes late ranks as one that came in time."""
    metric = state.started.metric if state.started else None
    shown = event.best or event.metric
    sign = -1.0 if shown is not None and metric is not None and not metric.higher_is_better else 1.0
    ranks = sign * (shown or event.episode_return).array().astype(np.float64)
    known = np.isfinite(ranks)
    state.best.total += float(ranks[known].sum())
    state.best.count += int(known.sum())
    for place in np.flatnonzero(known & (ranks > state.best.least)).tolist():
        if ranks[place] > state.best.least:
            columns = {name: getattr(event, name) for name in _OF_EPISODE}
            values = {name: float(c.array()[place]) for name, c in columns.items() if c is not None}
            row = int(rows[place])
            state.best.push(Episode(
                env_id=int(state.envs.ids[row]), at=event.at, rank=float(ranks[place]),
                number=int(state.envs.episodes[row]),
                values={name: value for name, value in values.items() if math.isfinite(value)},
            ))  # fmt: skip


def _act(state: RunState, source: Source, event: events.ActionTaken) -> None:
    if event.step is not None:
        source.steps.widen(event.step, event.step)
    rows = state.envs.at(event.env_id).rows
    nothing = np.full(rows.size, -1, dtype=np.int64)
    ops = codes(event.op, state.op_names.code)
    slots = nothing if event.slot is None else codes(event.slot, state.slot_names.code)
    blueprints = nothing
    if event.blueprint is not None:
        blueprints = codes(event.blueprint, state.blueprint_names.code)
    state.envs.actions.add(rows, ops, slots, blueprints, -1 if event.step is None else event.step)
    if event.confidence is not None:
        state.envs.choose(rows, _choice(state, event))
    state.envs.touch(rows, event.at)
    counts = np.bincount(ops[ops >= 0], minlength=len(state.op_names.words)).tolist()
    state.actions.push({word: n for word, n in zip(state.op_names.words, counts, strict=True) if n})


def _choice(state: RunState, event: events.ActionTaken) -> dict[str, np.ndarray]:
    """How sure the policy was, and what else it might have done, by name."""
    shares = ("confidence", "second_confidence", "third_confidence")
    found = {name: column.array() for name in shares if (column := getattr(event, name)) is not None}
    for name, column in (("second", event.second), ("third", event.third)):
        if column is not None:
            found[name] = codes(column, state.op_names.code)
    return found


def _move_seed(state: RunState, event: events.SeedStageChanged) -> None:
    row = state.envs.row(event.env_id)
    slot = state.slot_names.code(event.slot)
    state.envs.fit_slots(len(state.slot_names.words))
    cell = Cells(np.array([row]), np.array([slot]), np.array([row]))
    state.envs.move(cell, np.array([event.after.code]), event.at)
    blueprint = event.blueprint
    state.envs.blueprint[row, slot] = -1 if blueprint is None else state.blueprint_names.code(blueprint)
    state.envs.alpha[row, slot] = math.nan if event.alpha is None else event.alpha
    state.envs.age[row, slot] = 0
    state.envs.touch_one(row, event.at)


def _gate(state: RunState, event: events.GateEvaluated) -> None:
    row = state.envs.row(event.env_id)
    state.envs.gated_at = state.envs.gated_at or event.at
    gates = state.envs.gates.setdefault(event.env_id, {})
    if event.slot in gates or len(gates) < SLOT_NAMES:
        gates[event.slot] = f"{event.gate} {_result(event)}"
    if not event.passed:
        failing = state.envs.failing.setdefault(event.env_id, {})
        requested = f"{event.seed_id} {event.gate}"
        if failing.get(event.slot) != requested:
            state.envs.gate_fails.add(np.array([row]), event.at)
        if event.slot in failing or len(failing) < SLOT_NAMES:
            failing[event.slot] = requested
        state.envs.failed_gate[event.env_id] = event.gate
        check = event.checks_failed[0] if event.checks_failed else ""
        state.envs.failed_check[event.env_id] = check.replace("_", " ")
        state.envs.failed_why[event.env_id] = begin(measured(event.message, check, score_text(event)))
    state.envs.touch_one(row, event.at)


def _result(event: events.GateEvaluated) -> str:
    """`0.71` or `passed`; `fail: gradient ratio` or `fail`."""
    if event.passed:
        return "passed" if event.score is None else f"{event.score:.2f}"
    failed = event.checks_failed
    return f"fail: {failed[0].replace('_', ' ')}" if failed else "fail"


def _roll_back(state: RunState, source: Source, event: events.EnvRolledBack) -> None:
    row = state.envs.row(event.env_id)
    state.envs.touch_one(row, event.at)
    if not is_counted(state, source, event.step):
        state.envs.rollbacks[row] += 1
        state.rollbacks += 1


def _crash(state: RunState, event: events.EnvCrashed) -> None:
    row = state.envs.row(event.env_id)
    state.envs.touch_one(row, event.at)
    state.envs.crashed_at[row] = event.at
    state.envs.crash_tally.add(np.array([row]), event.at)
    at_step = "" if event.step is None else f" at step {event.step:,}"
    why = f": {begin(event.error)}" if event.error.strip() else ""
    state.envs.crashes[event.env_id] = f"crashed{at_step}{why}"
    state.crashes += 1


def _begin_phase(state: RunState, source: Source, event: events.PhaseBegan) -> None:
    if not source.is_beside:
        state.rhythms.setdefault(source.rank, Rhythm()).enter(event.phase, event.at)


def _end_phase(state: RunState, source: Source, event: events.PhaseEnded) -> None:
    if source.is_beside:
        phase = _phase(state.beside, source.name.removesuffix(" 0"), event.phase)
    else:
        phase = _phase(state.phases, source.rank, event.phase)
    if phase is None:
        state.overflow.note("phase", event.phase)
        return
    span = (event.trace_id, event.span_id) if event.trace_id and event.span_id else None
    phase.push(event.at, event.duration_s, span)
    if not source.is_beside:
        rhythm = state.rhythms.setdefault(source.rank, Rhythm())
        rhythm.step(event.phase, event.at, is_paused=state.paused_at is not None)


def _phase(groups: dict[K, dict[str, Phase]], key: K, name: str) -> Phase | None:
    """A phase of one rank or process; `None` where there is room for no more."""
    phases = groups.get(key, {})
    if name not in phases and (len(phases) >= PHASE_NAMES or len(groups) > MAX_RANKS):
        return None
    return groups.setdefault(key, phases).setdefault(name, Phase())


def _save(state: RunState, source: Source, event: events.CheckpointSaved) -> None:
    state.checkpoint, state.failed_saves = event, FailedSaves()
    if event.duration_s is not None:
        state.save_seconds.push(event.duration_s)
    if event.duration_s is not None and event.trace_id and event.span_id:
        _sample(state, source, event, event.duration_s)
    newest = state.saves.items[-1] if state.saves.items else (0, -1)
    # Several files of one moment are one checkpoint; the best so far is kept when it is, by no schedule.
    if event.at > newest[0] and state.updates > newest[1] and not is_best(event.path):
        state.saves.push((event.at, state.updates))
    _go_on(state, source, event.at)


def _sample(state: RunState, source: Source, event: events.CheckpointSaved, took_s: float) -> None:
    """The span of a checkpoint is that of its time among the times of its process."""
    service = state.services.processes.get(f"{source.role}/{source.rank}")
    tallies = {} if service is None else service.tallies.get(CHECKPOINT_DURATION.name, {})
    place = bisect_left(CHECKPOINT_DURATION.buckets, took_s)
    for tally in tallies.values():
        tally.samples[place] = events.Sample(
            bucket=place,
            value=took_s,
            at=event.at,
            trace_id=event.trace_id or "",
            span_id=event.span_id or "",
        )


def is_best(path: str) -> bool:
    """Whether a checkpoint is, by its name, the best so far and not the next of a row."""
    return "best" in path.replace("\\", "/").rpartition("/")[2].lower()


def _go_on(state: RunState, source: Source, at: int) -> None:
    """Note that a rank's training goes on, although no step of it has ended."""
    if source.rank in state.rhythms:
        state.rhythms[source.rank].seen_at = max(state.rhythms[source.rank].seen_at, at)


def _non_finite(state: RunState, source: Source, event: events.NonFiniteSeen) -> None:
    state.non_finite = counted(state.non_finite, event.count)
    state.non_finite_at = event.at
    of_rank = f" of rank {source.rank}" if source.rank != (state.ranks.leader or 0) else ""
    state.non_finite_last = f"{event.kind} in {event.metric}{of_rank}"
    for env_id in event.env_ids:
        row = state.envs.row(env_id)
        state.envs.touch_one(row, event.at)
        state.envs.non_finite_at[row] = event.at
        state.envs.non_finite[env_id] = f"{event.kind} in {event.metric}"


def _stop_early(state: RunState, source: Source, event: events.EarlyStopped) -> None:
    _go_on(state, source, event.at)
    state.early_stop = event
    state.early_stops.push(event)
    settle_stops(state)


def _change_task(state: RunState, event: events.CurriculumChanged) -> None:
    """What was earned before is no measure of what is earned now."""
    envs = state.envs
    rows = None if event.env_id is None else envs.rows(ids_in(event.env_id))
    envs.begin_task(np.arange(envs.n) if rows is None else rows)
    if rows is not None and 2 * rows.size < envs.n:
        return
    state.task_changed_at = state.last_at
    state.pace.restart()
    state.pairs.restart()
    for row in (RETURN, VALUE_LOSS, PROXY, TRUE):
        if row.name in state.policy:
            rebase(state.policy[row.name])
