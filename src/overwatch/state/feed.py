"""Which events become a line of the feed, and what the line says. Structured first, pretty second."""

from collections.abc import Mapping
from typing import Final, assert_never

import msgspec

from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.catalog.processes import SUBSYSTEM
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    CommandApplied,
    CurriculumChanged,
    EarlyStopped,
    EnvCrashed,
    EnvsRemoved,
    EpisodeEnded,
    Event,
    FindingAcknowledged,
    GateEvaluated,
    LogLine,
    Measured,
    NonFiniteSeen,
    PhaseBegan,
    PhaseEnded,
    RunFinished,
    RunStarted,
    RunStateChanged,
    SeedStageChanged,
    Tallied,
    TrainingRecovered,
)  # fmt: skip
from overwatch.state.run import Entry

LONGEST: Final = 4096
"""Characters of a line's message that are kept..."""
LONGEST_FIELD: Final = 1024
"""...and of each of its fields..."""
MOST_FIELDS: Final = 32
"""...of which there are so many: a line is read, and one of megabytes would be remembered 200 times over."""
NAMED: Final = 16
"""Envs that a line names one by one."""

MOVE: Final = "seed_stage_changed"
GATE: Final = "gate_evaluated"
CRASH: Final = "env_crashed"
"""Kinds of lines that tell what became of a seed."""


def entry_of(event: Event) -> Entry | None:
    """The feed's line of an event, bounded; numbers, actions, episodes and phases have none."""
    entry = _entry_of(event)
    return entry if entry is None or _is_short(entry) else _cut(entry)


def _is_short(entry: Entry) -> bool:
    fields = entry.fields
    return (
        len(entry.message) <= LONGEST
        and len(fields) <= MOST_FIELDS
        and (
            sum(map(len, fields.values())) + sum(map(len, fields)) <= LONGEST_FIELD
            or all(len(text) <= LONGEST_FIELD for pair in fields.items() for text in pair)
        )
    )


def _cut(entry: Entry) -> Entry:
    """The line as it is kept: the recording has all of it."""
    few = list(entry.fields.items())[:MOST_FIELDS]
    fields = {begin(name, LONGEST_FIELD): begin(text, LONGEST_FIELD) for name, text in few}
    if len(entry.fields) > MOST_FIELDS:
        fields["cut"] = f"{len(entry.fields) - MOST_FIELDS:,} more fields"
    return msgspec.structs.replace(entry, message=begin(entry.message, LONGEST), fields=fields)


def begin(text: str, most: int = LONGEST_FIELD) -> str:
    """A text as it is kept, of one that is too long its beginning."""
    return text if len(text) <= most else f"{text[:most]}… (cut, of {len(text):,} characters)"


def _entry_of(event: Event) -> Entry | None:
    match event:
        case Measured() | Tallied() | ActionTaken() | EpisodeEnded() | PhaseBegan() | PhaseEnded():
            return None
        case RunStarted():
            return _run_started(event)
        case RunFinished():
            return _run_finished(event)
        case SeedStageChanged():
            return _seed(event)
        case GateEvaluated():
            return _gate(event)
        case EnvCrashed():
            return _crash(event)
        case EnvsRemoved():
            return _removed(event)
        case NonFiniteSeen():
            return _non_finite(event)
        case EarlyStopped():
            return _early_stop(event)
        case CurriculumChanged():
            return _curriculum(event)
        case CheckpointSaved():
            return _checkpoint(event)
        case TrainingRecovered():
            return _recovered(event)
        case RunStateChanged():
            return _state(event)
        case CommandApplied():
            return _command(event)
        case FindingAcknowledged():
            return _acknowledged(event)
        case LogLine() if event.subsystem == SUBSYSTEM:
            return None
        case LogLine():
            return Entry(
                at=event.at, severity=event.severity.value, subsystem=event.subsystem, kind="log_line",
                message=event.message, env_id=event.env_id, slot=event.slot, seed_id=event.seed_id,
                fields=event.fields,
            )  # fmt: skip
        case _:
            assert_never(event)


def _run_started(event: RunStarted) -> Entry:
    fields = {"task": event.task, "algo": event.algo, "envs": event.n_envs, "node": event.node}
    return Entry(
        at=event.at, severity="info", subsystem="simic", kind="run_started", message="run started",
        fields=_present(fields),
    )  # fmt: skip


def _run_finished(event: RunFinished) -> Entry:
    severity = "critical" if event.outcome in ("failed", "lost") else "info"
    return Entry(
        at=event.at, severity=severity, subsystem="simic", kind="run_finished",
        message=f"run {event.outcome}", fields=_present({"reason": event.reason}),
    )  # fmt: skip


def _seed(event: SeedStageChanged) -> Entry:
    fields = {"reason": event.reason, "age": event.age, "blueprint": event.blueprint, **event.fields}
    return Entry(
        at=event.at, severity="info", subsystem="kasmina", kind=MOVE,
        message=f"{event.before.label}>{event.after.label}", env_id=event.env_id, slot=event.slot,
        seed_id=event.seed_id, fields=_present(fields),
    )  # fmt: skip


def _gate(event: GateEvaluated) -> Entry:
    fields = {
        "passed": "yes" if event.passed else "no",
        "score": score_text(event),
        "failed": ",".join(event.checks_failed) or None,
        "why": event.message,
    }
    return Entry(
        at=event.at, severity="info" if event.passed else "warning", subsystem="kasmina",
        kind=GATE, message=f"gate={event.gate}", env_id=event.env_id, slot=event.slot,
        seed_id=event.seed_id, fields=_present(fields),
    )  # fmt: skip


def score_text(event: GateEvaluated) -> str | None:
    """The score as shown, where the gate measures one."""
    return None if event.score is None else f"{event.score:.3g}"


def measured(message: str | None, check: str | None, score: str | None) -> str:
    """What a gate measured, in its own words or from its numbers: `gradient ratio 0.04`; empty if unsaid."""
    if message:
        return message
    return " ".join(word for word in ((check or "").replace("_", " "), score or "") if word)


def _crash(event: EnvCrashed) -> Entry:
    return Entry(
        at=event.at, severity="critical", subsystem="tolaria", kind=CRASH, message="crashed",
        env_id=event.env_id, fields=_present({"step": event.step, "error": event.error}),
    )  # fmt: skip


def _removed(event: EnvsRemoved) -> Entry | None:
    """Values that ended are no news; envs are."""
    ids = event.env_id.array().tolist()
    if event.metrics or not ids:
        return None
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    return Entry(
        at=event.at, severity="info", subsystem="tolaria", kind="envs_removed",
        message="env removed" if len(ids) == 1 else f"{len(ids):,} envs removed",
        env_id=int(ids[0]) if len(ids) == 1 else None,
        fields=_present({"envs": ",".join(map(str, ids[:NAMED])) + more if len(ids) > 1 else None}),
    )  # fmt: skip


def _acknowledged(event: FindingAcknowledged) -> Entry:
    return Entry(
        at=event.at, severity="info", subsystem="overwatch", kind="finding_acknowledged",
        message="finding acknowledged", fields=_present({"finding": event.finding, "by": event.by}),
    )  # fmt: skip


def _non_finite(event: NonFiniteSeen) -> Entry:
    fields = {"metric": event.metric, "count": event.count, "envs": ",".join(map(str, event.env_ids)) or None}
    return Entry(
        at=event.at, severity="critical", subsystem="simic", kind="non_finite_seen",
        message=f"non-finite {event.kind}", env_id=event.env_ids[0] if len(event.env_ids) == 1 else None,
        fields=_present(fields),
    )  # fmt: skip


def _early_stop(event: EarlyStopped) -> Entry:
    worked = event.kl_divergence <= STOPPED_WITHIN * event.target
    fields = {
        "update": event.update, "epoch": event.epoch, "kl": f"{event.kl_divergence:.4f}",
        "target": f"{event.target:.4f}", "skipped": event.minibatches_skipped,
    }  # fmt: skip
    return Entry(
        at=event.at, severity="info" if worked else "warning", subsystem="simic", kind="early_stopped",
        message="early stop worked" if worked else "early stop came too late",
        fields=_present(fields),
    )  # fmt: skip


def _curriculum(event: CurriculumChanged) -> Entry:
    fields = {
        "before": event.before, "after": event.after,
        "envs": None if event.env_id is None else len(event.env_id),
    }  # fmt: skip
    return Entry(
        at=event.at, severity="info", subsystem="simic", kind="curriculum_changed",
        message=f"curriculum {event.name}", fields=_present(fields),
    )  # fmt: skip


def _checkpoint(event: CheckpointSaved) -> Entry:
    fields = {
        "path": event.path, "update": event.update, "bytes": event.size_bytes,
        "took": None if event.duration_s is None else f"{event.duration_s:.3g}s",
    }  # fmt: skip
    return Entry(
        at=event.at, severity="info", subsystem="simic", kind="checkpoint_saved",
        message="checkpoint saved", fields=_present(fields),
    )  # fmt: skip


def _recovered(event: TrainingRecovered) -> Entry:
    fields = {
        "update": event.update, "cause": event.cause, "reason": event.reason,
        "before": None if event.before is None else f"{event.before:g}",
        "after": None if event.after is None else f"{event.after:g}",
    }  # fmt: skip
    return Entry(
        at=event.at, severity="warning", subsystem="simic", kind="training_recovered",
        message=event.action.replace("_", " "), fields=_present(fields),
    )  # fmt: skip


def _state(event: RunStateChanged) -> Entry:
    fields = {"reason": event.reason, "command": event.command, "by": event.by}
    return Entry(
        at=event.at, severity="info", subsystem="control", kind="run_state_changed",
        message=f"{event.before}>{event.after}", fields=_present(fields),
    )  # fmt: skip


def _command(event: CommandApplied) -> Entry:
    fields = {
        "detail": event.detail, "command": event.command, "by": event.by, "update": event.update,
        **event.changes,
    }  # fmt: skip
    return Entry(
        at=event.at, severity="info" if event.outcome == "done" else "warning", subsystem="control",
        kind="command_applied", message=f"{event.kind} {event.outcome}", fields=_present(fields),
    )  # fmt: skip


def _present(fields: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items() if value is not None}
