"""Which events become a line of the feed, and what the line holds. Structured first, pretty second."""

from collections.abc import Mapping
from typing import Final, assert_never

import msgspec

from overwatch import events
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.catalog.processes import SUBSYSTEM
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
"""Kinds of lines that show what became of a seed."""


def entry_of(event: events.Event) -> Entry | None:
    """The feed's line of an event, bounded; numbers, actions, episodes and phases have none."""
    entry = _entry_of(event)
    return None if entry is None else _cut(entry)


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


def _entry_of(event: events.Event) -> Entry | None:
    match event:
        case events.Measured() | events.Tallied() | events.ActionTaken() | events.EpisodeEnded():
            return None
        case events.PhaseBegan() | events.PhaseEnded():
            return None
        case events.RunStarted():
            known = {"task": event.task, "algo": event.algo, "envs": event.n_envs, "node": event.node}
            return _line(event, "simic", "run started", known)
        case events.RunFinished():
            severity = "critical" if event.outcome in ("failed", "lost") else "info"
            return _line(event, "simic", f"run {event.outcome}", {"reason": event.reason}, severity)
        case events.SeedStageChanged() | events.GateEvaluated() | events.EnvCrashed():
            return _of_env(event)
        case events.EnvRolledBack():
            known = {"step": event.step}
            line = _line(event, "tolaria", f"rolled back: {event.reason}", known, "warning")
            return msgspec.structs.replace(line, env_id=event.env_id)
        case events.EnvsRemoved():
            return _removed(event)
        case events.FindingAcknowledged():
            known = {"finding": event.finding, "by": event.by}
            return _line(event, "overwatch", "finding acknowledged", known)
        case events.RunStateChanged():
            known = {"reason": event.reason, "command": event.command, "by": event.by}
            return _line(event, "control", f"{event.before}>{event.after}", known)
        case events.CommandApplied():
            known = {"detail": event.detail, "command": event.command, "by": event.by, "update": event.update}
            severity = "info" if event.outcome == "done" else "warning"
            message = f"{event.kind} {event.outcome}"
            return _line(event, "control", message, {**known, **event.changes}, severity)
        case events.LogLine():
            if event.subsystem == SUBSYSTEM:
                return None
            line = _line(event, event.subsystem, event.message, event.fields, event.severity.value)
            return msgspec.structs.replace(line, env_id=event.env_id, slot=event.slot, seed_id=event.seed_id)
        case _:
            return _of_training(event)


def _line(
    event: events.Event, subsystem: str, message: str, fields: Mapping[str, object], severity: str = "info"
) -> Entry:
    """A line of an event, with those of the fields that are known."""
    known = {name: str(value) for name, value in fields.items() if value is not None}
    kind = str(event.__struct_config__.tag)
    return Entry(
        at=event.at, severity=severity, subsystem=subsystem, kind=kind, message=message, fields=known
    )


def _of_env(event: events.SeedStageChanged | events.GateEvaluated | events.EnvCrashed) -> Entry:
    """What became of a seed, or of its env."""
    if isinstance(event, events.EnvCrashed):
        line = _line(event, "tolaria", "crashed", {"step": event.step, "error": event.error}, "critical")
        return msgspec.structs.replace(line, env_id=event.env_id)
    if isinstance(event, events.SeedStageChanged):
        known = {"reason": event.reason, "age": event.age, "blueprint": event.blueprint, **event.fields}
        line = _line(event, "kasmina", f"{event.before.label}>{event.after.label}", known)
        line = msgspec.structs.replace(line, stage=event.after.value, alpha=event.alpha)
    else:
        known = {
            "passed": "yes" if event.passed else "no",
            "score": score_text(event),
            "failed": ",".join(event.checks_failed) or None,
            "why": event.message,
        }
        line = _line(event, "kasmina", f"gate={event.gate}", known, "info" if event.passed else "warning")
    return msgspec.structs.replace(line, env_id=event.env_id, slot=event.slot, seed_id=event.seed_id)


def score_text(event: events.GateEvaluated) -> str | None:
    """The score as shown, where the gate measures one."""
    return None if event.score is None else f"{event.score:.3g}"


def measured(message: str | None, check: str | None, score: str | None) -> str:
    """What a gate measured, in its own words or from its numbers: `gradient ratio 0.04`; empty if unknown."""
    if message:
        return message
    return " ".join(word for word in ((check or "").replace("_", " "), score or "") if word)


def _removed(event: events.EnvsRemoved) -> Entry | None:
    """Values that ended are no news; envs are."""
    ids = event.env_id.array().tolist()
    if event.metrics or not ids:
        return None
    if len(ids) == 1:
        return msgspec.structs.replace(_line(event, "tolaria", "env removed", {}), env_id=int(ids[0]))
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    named = {"envs": ",".join(map(str, ids[:NAMED])) + more}
    return _line(event, "tolaria", f"{len(ids):,} envs removed", named)


def _of_training(
    event: events.NonFiniteSeen
    | events.EarlyStopped
    | events.CurriculumChanged
    | events.CheckpointSaved
    | events.TrainingRecovered,
) -> Entry:
    """What the trainer did, and what it met."""
    severity, known = "info", dict[str, object]()
    match event:
        case events.NonFiniteSeen():
            envs = ",".join(map(str, event.env_ids)) or None
            known = {"metric": event.metric, "count": event.count, "envs": envs}
            line = _line(event, "simic", f"non-finite {event.kind}", known, "critical")
            return msgspec.structs.replace(line, env_id=event.env_ids[0] if len(event.env_ids) == 1 else None)
        case events.EarlyStopped():
            worked = event.kl_divergence <= STOPPED_WITHIN * event.target
            message, severity = "early stop worked", "info"
            if not worked:
                message, severity = "early stop came too late", "warning"
            known = {"update": event.update, "epoch": event.epoch, "kl": f"{event.kl_divergence:.4f}"}
            known |= {"target": f"{event.target:.4f}", "skipped": event.minibatches_skipped}
        case events.CurriculumChanged():
            message = f"curriculum {event.name}"
            many = None if event.env_id is None else len(event.env_id)
            known = {"before": event.before, "after": event.after, "envs": many}
        case events.CheckpointSaved():
            message = "checkpoint saved"
            took = None if event.duration_s is None else f"{event.duration_s:.3g}s"
            known = {"path": event.path, "update": event.update, "bytes": event.size_bytes, "took": took}
        case events.TrainingRecovered():
            message, severity = event.action.replace("_", " "), "warning"
            ends = (None if value is None else f"{value:g}" for value in (event.before, event.after))
            known = {"update": event.update, "cause": event.cause, "reason": event.reason}
            known |= dict(zip(("before", "after"), ends, strict=True))
        case _:
            assert_never(event)
    return _line(event, "simic", message, known, severity)
