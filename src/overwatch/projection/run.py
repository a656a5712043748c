"""The parts of a snapshot that are about the run as a whole: identity, progress, link, feed, phases.

And the list of runs, from the snapshots of one moment. Pure.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from overwatch.catalog.chips import LABEL, code_of, labelled
from overwatch.catalog.durations import duration
from overwatch.catalog.phases import DURATION_ENDS_S
from overwatch.catalog.stages import parse_stage
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.liveness import OVER, QUIET, LinkJudgement, ahead_s
from overwatch.events import MetricInfo, RunStarted
from overwatch.events.adding import added
from overwatch.projection.text import safe, safe_all, safe_fields, safe_or_none
from overwatch.snapshot import (
    SCHEMA_VERSION,
    Exemplar,
    FeedLine,
    Link,
    Metric,
    Modes,
    PhaseTimes,
    Run,
    RunLine,
    RunList,
    Snapshot,
    Source,
    Throughput,
    View,
)
from overwatch.state.rhythm import Phase
from overwatch.state.run import Entry, RunState

RATE_NS: Final = 10_000_000_000
MOST_PHASES: Final = 8
"""Phases that are shown, so that their number is bounded whatever a trainer names."""
FEED_LINES: Final = 100


def run_view(state: RunState, judged: Judged) -> Run:
    """What the run is, what emits it and how far it has come."""
    finished, origin = state.finished, state.origin
    started = state.started or RunStarted(at=state.first_at)
    elapsed_s = max(0.0, (state.last_at - started.at) / 1e9)
    return Run(
        run_id=safe(origin.run_id),
        task=safe_or_none(started.task or origin.task),
        algo=safe_or_none(started.algo or origin.algo),
        reward_mode=safe_or_none(started.reward_mode),
        group=safe_or_none(started.group),
        attempt=started.attempt,
        node=safe_or_none(started.node),
        devices=safe_all(state.lane_names.words),
        ranks=_ranks(state),
        # As many as the run reported; once it removed some, as many as there are.
        n_envs=state.envs.n if state.envs.removed_at else started.n_envs or state.envs.n or None,
        slots_enabled=bool(state.slot_names.words),
        git_sha=safe_or_none(started.git_sha),
        dirty=started.dirty,
        modes=Modes(amp=started.amp, compile=started.compile, ddp=started.ddp),
        preset=safe(state.preset),
        metric=_metric(started.metric),
        blueprints=_blueprints(state, started.blueprints),
        slots=safe_all(state.slot_names.words),
        embargo=started.embargo,
        episode=state.episodes or None,
        # An update learns from one batch.
        batch=None if started.batches is None else state.updates,
        batches=started.batches,
        update=state.update,
        updates=started.updates,
        started=started.at / 1e9,
        elapsed_s=elapsed_s,
        eta_s=_eta_s(state, started.updates, elapsed_s),
        checkpoint_age_s=_checkpoint_age_s(state, judged.link),
        checkpoint_path=safe_or_none(state.checkpoint.path) if state.checkpoint else None,
        steps=state.steps or None,
        steps_per_s=_steps_per_s(state),
        throughput=_throughput(judged),
        outcome=finished.outcome if finished else None,
        reason=safe_or_none(finished.reason) if finished else None,
        control=None if state.control is None else safe(state.control.after),
        command=None if state.command is None else safe(f"{state.command.kind} {state.command.outcome}"),
        service=safe_or_none(origin.service),
        instance=safe_or_none(_instance(state)),
    )


def _instance(state: RunState) -> str | None:
    """The epoch of the newest life that leads the run."""
    lives = [key for key, one in state.sources.items() if one.is_trainer and not one.rank]
    lives = lives or list(state.sources)
    newest = max(lives, key=lambda key: state.sources[key].stamp, default="")
    return newest.split("/", 2)[-1] or None


def _ranks(state: RunState) -> int:
    """Those of the trainer, where there is one: servers and handlers count their processes apart."""
    sources = state.sources.values()
    return len({one.rank for one in sources if one.is_trainer} or {one.rank for one in sources})


def _metric(info: MetricInfo | None) -> Metric | None:
    if info is None:
        return None
    return Metric(name=safe(info.name), unit=safe(info.unit), higher_is_better=info.higher_is_better)


def _blueprints(state: RunState, named: Mapping[str, str]) -> dict[str, str]:
    """Two-letter codes, as the run gave them; made up, without clashes, for blueprints it did not name."""
    given = dict(named)
    taken = set(given.values())
    for name in state.blueprint_names.words:
        if name not in given:
            given[name] = _code(name, taken)
            taken.add(given[name])
    return safe_fields(given)


def _code(name: str, taken: set[str]) -> str:
    parts = [part for part in name.replace("-", "_").split("_") if part]
    code = (parts[0][0] + parts[1][0] if len(parts) > 1 else name[:2].ljust(2, "_")).lower()
    candidates = [code, *(code[0] + digit for digit in "0123456789")]
    return next((candidate for candidate in candidates if candidate not in taken), code)


def _eta_s(state: RunState, planned: int | None, elapsed_s: float) -> float | None:
    if planned is None or not state.update or state.finished is not None:
        return None
    return max(0.0, elapsed_s / state.update * (planned - state.update))


def _checkpoint_age_s(state: RunState, link: LinkJudgement) -> float | None:
    """Seconds since the newest checkpoint; those since its newest record count."""
    saved = state.checkpoint
    if saved is None:
        return None
    return max(0.0, (state.last_at - saved.at) / 1e9) + link.data_age_s


def _steps_per_s(state: RunState) -> float | None:
    """Env steps a second over the newest ten seconds of producer time."""
    marks = [mark for mark in state.step_marks.items if state.last_at - mark[0] <= RATE_NS]
    if len(marks) < 2 or marks[-1][0] == marks[0][0]:
        return None
    (first_at, first_steps), (last_at, last_steps) = marks[0], marks[-1]
    return (last_steps - first_steps) / ((last_at - first_at) / 1e9)


def _throughput(judged: Judged) -> Throughput | None:
    known, baseline = judged.assessment.watched.slow.throughput, judged.baseline
    if known is None:
        return None
    return Throughput(
        unit=known.now.unit,
        now=known.now.rate,
        best=known.best,
        baseline=baseline if baseline is not None and baseline.unit == known.now.unit else None,
    )


def link_view(state: RunState, every: Judged, tick: int) -> Link:
    """Freshness of the run and of each of its producers."""
    judged = every.link
    drops = [source.dropped for source in state.sources.values() if source.dropped is not None]
    return Link(
        state=judged.state,
        halted=_halted(state, every),
        data_age_s=judged.data_age_s,
        lag_s=judged.lag_s,
        last_at=state.last_at / 1e9 if state.last_at else None,
        last_from=safe_or_none(judged.last_from),
        away_s=judged.away_s,
        speed=judged.speed,
        dropped=sum(drops) if drops else None,
        sources=tuple(
            Source(
                name=safe(source.name),
                age_s=max(0.0, (tick - source.stamp) / 1e9),
                interval_s=source.interval_s(),
                dropped=source.dropped,
                overlapping=key in judged.overlapping,
                clock_ahead_s=ahead_s(source) if key in judged.ahead else None,
            )
            for key, source in state.sources.items()
        ),
    )


def _halted(state: RunState, judged: Judged) -> str | None:
    if judged.link.state in QUIET:
        return None
    if state.paused_at is not None:
        return "paused"
    return "stalled" if judged.assessment.stalled_since else None


def phase_times(phases: Iterable[Mapping[str, Phase]]) -> tuple[PhaseTimes, ...]:
    """Those phases of all ranks and services that took most of the time, by name."""
    by_name: dict[str, list[Phase]] = {}
    for of_rank in phases:
        for name, phase in of_rank.items():
            by_name.setdefault(name, []).append(phase)
    known = [_times(name, ranks) for name, ranks in by_name.items()]
    longest = sorted(known, key=lambda one: (-one.total_s, one.name))[:MOST_PHASES]
    return tuple(sorted(longest, key=lambda one: one.name))


def _times(name: str, ranks: list[Phase]) -> PhaseTimes:
    return PhaseTimes(
        name=safe(name),
        counts=tuple(map(sum, zip(*(phase.counts for phase in ranks), strict=True))),
        total_s=added(phase.total_s for phase in ranks),
        exemplars=tuple(_exemplars(ranks)),
    )


def _exemplars(ranks: list[Phase]) -> list[Exemplar]:
    """Of each place the newest that a trace shows, whichever rank emitted it."""
    found = []
    for place in range(len(DURATION_ENDS_S) + 1):
        traced = [phase.traced[place] for phase in ranks if place in phase.traced]
        if traced:
            newest = max(traced, key=lambda one: (one.at, one.span_id))
            found.append(
                Exemplar(
                    bucket=place,
                    duration_s=newest.duration_s,
                    at=newest.at / 1e9,
                    trace_id=safe(newest.trace_id),
                    span_id=safe(newest.span_id),
                )
            )
    return found


def feed_rate(state: RunState) -> float | None:
    """Lines a second over the newest ten seconds of producer time; `None` before the first line."""
    marks = state.feed_marks.items
    if not marks:
        return None
    young = [mark for mark in marks if state.last_at - mark[0] < RATE_NS]
    before = young[0][1] if young else state.feed_total
    span_s = min(RATE_NS, state.last_at - state.first_at) / 1e9
    return (state.feed_total - before) / max(1.0, span_s)


def feed_view(state: RunState) -> tuple[FeedLine, ...]:
    """The newest lines of the feed, oldest first."""
    newest = state.feed.items[-FEED_LINES:]
    codes = state.started.blueprints if state.started else {}
    return tuple(feed_line(entry, codes, _lane_of(state, entry.env_id)) for entry in newest)


def feed_line(entry: Entry, codes: Mapping[str, str], gpu_id: str | None = None) -> FeedLine:
    """One line as a view may show it, of an env on a lane; `codes` are the two letters of each blueprint."""
    return FeedLine(
        time=entry.at / 1e9,
        severity=entry.severity,
        subsystem=safe(entry.subsystem),
        message=safe(entry.message),
        env_id=entry.env_id,
        gpu_id=gpu_id,
        slot=safe_or_none(entry.slot),
        seed_id=safe_or_none(entry.seed_id),
        kind=entry.kind,
        fields=safe_fields(entry.fields),
        chip=_chip(entry, codes),
    )


def _chip(entry: Entry, codes: Mapping[str, str]) -> str | None:
    """The slot after its move; none of a line about anything else."""
    if entry.stage is None or entry.slot is None:
        return None
    code = code_of(entry.fields.get("blueprint"), codes)
    return safe(labelled(entry.slot[:LABEL], parse_stage(entry.stage), code, entry.alpha))


def _lane_of(state: RunState, env_id: int | None) -> str | None:
    if env_id is None:
        return None
    row = state.envs.find(env_id)
    lane = -1 if row is None else int(state.envs.lane[row])
    return None if lane < 0 else safe(state.lane_names.words[lane])


def run_list(
    snapshots: Mapping[tuple[str, View], Snapshot], newest: str | None, archived: Iterable[RunLine] = ()
) -> RunList:
    """One line a run, by id, of each run's default view; `archived` are those that are there no more."""
    lines = [
        run_line(run_id, snapshot, newest=run_id == newest)
        for (run_id, view), snapshot in snapshots.items()
        if view == View()
    ]
    known = {line.run_id for line in lines}
    lines += [line for line in archived if line.run_id not in known]
    ordered = tuple(sorted(lines, key=lambda line: line.run_id))
    return RunList(newest=newest, runs=ordered, schema_version=SCHEMA_VERSION)


def aged(line: RunLine, tick: int) -> RunLine:
    """The line of an archived run at a tick: only the age of its data goes on."""
    if line.data_age_s is None:
        return line
    return msgspec.structs.replace(line, data_age_s=max(0.0, line.data_age_s + tick / 1e9 - line.time))


def aged_snapshot(snapshot: Snapshot, tick: int) -> Snapshot:
    """What an archived run shows at a tick: the same, as `aged` has it."""
    age_s = snapshot.link.data_age_s
    if age_s is None:
        return snapshot
    age_s = max(0.0, age_s + tick / 1e9 - snapshot.time)
    return msgspec.structs.replace(snapshot, link=msgspec.structs.replace(snapshot.link, data_age_s=age_s))


LATE_S: Final = 5.0
"""A frame that is shown later than this after its tick is old, whatever was known at its tick."""
STALE_S: Final = 15.0


def late(snapshot: Snapshot, behind_s: float) -> Snapshot:
    """What a snapshot shows so long after its tick: the same as long as that is short; else that it is old.

    The fold takes each tick in order, however late; so only who shows a frame knows how late it is. A run
    that is over rests, and stays what it was.
    """
    link = snapshot.link
    if behind_s < LATE_S or link.state in OVER:
        return snapshot
    age_s = None if link.data_age_s is None else link.data_age_s + behind_s
    state = link.state if link.state not in ("live", "slow") else "stale" if behind_s >= STALE_S else "slow"
    at = f"{datetime.fromtimestamp(int(snapshot.time), UTC):%Y-%m-%dT%H:%M:%SZ}"
    severity = snapshot.verdict.severity
    verdict = msgspec.structs.replace(
        snapshot.verdict,
        severity=severity if severity == "critical" else "warning",
        text=f"the collector is {duration(behind_s)} behind; showing {at} · {snapshot.verdict.text}",
        note=f"everything below is {duration(behind_s)} old",
    )
    halted = None if state == "stale" else link.halted
    link = msgspec.structs.replace(link, state=state, halted=halted, data_age_s=age_s)
    return msgspec.structs.replace(snapshot, link=link, verdict=verdict)


def run_line(run_id: str, snapshot: Snapshot, *, newest: bool) -> RunLine:
    """One run of the list."""
    run = snapshot.run
    return RunLine(
        run_id=run_id,
        newest=newest,
        task=run.task,
        algo=run.algo,
        state=snapshot.link.word,
        outcome=run.outcome,
        update=run.update,
        n_envs=run.n_envs,
        severity=snapshot.verdict.severity,
        text=snapshot.verdict.text,
        data_age_s=snapshot.link.data_age_s,
        time=snapshot.time,
        criticals=snapshot.verdict.counts.get("critical", 0),
        warnings=snapshot.verdict.counts.get("warning", 0),
    )
