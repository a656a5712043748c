"""WHAT can happen: frozen facts and the closed union `Event`.

Owns every kind of thing a producer can say. Numbers are `Measured`, counters and histograms with labels
`Tallied`; everything else is a fact in the past tense. A new fact breaks the type check until every `match`
handles it.

Rules: `at` is the producer's time in Unix nanoseconds. Absent is `None`, never 0. Validation happens on
construction, so an event that exists is well formed. Must not know OTLP, state or views; loads NumPy only
when a column is made or read as an array.
"""

from typing import Annotated, TypeAlias

import msgspec

from overwatch.events.column import MAX_ROWS, Column, scalars
from overwatch.events.fact import Severity
from overwatch.events.facts import (
    ActionTaken,
    CheckpointSaved,
    CommandApplied,
    CurriculumChanged,
    EarlyStopped,
    EnvCrashed,
    EnvsRemoved,
    EpisodeEnded,
    FindingAcknowledged,
    GateEvaluated,
    LogLine,
    NonFiniteSeen,
    PhaseBegan,
    PhaseEnded,
    RunStateChanged,
    SeedStageChanged,
    TrainingRecovered,
)
from overwatch.events.lifetime import MetricInfo, RunFinished, RunStarted
from overwatch.events.measured import Conflated, Measured
from overwatch.events.origin import PENDING, Origin
from overwatch.events.tallied import Buckets, Sample, Tallied, TallySeries

__all__ = [
    "MAX_ROWS",
    "PENDING",
    "ActionTaken",
    "Buckets",
    "CheckpointSaved",
    "Column",
    "CommandApplied",
    "Conflated",
    "CurriculumChanged",
    "EarlyStopped",
    "EnvCrashed",
    "EnvsRemoved",
    "EpisodeEnded",
    "Event",
    "FindingAcknowledged",
    "GateEvaluated",
    "LogLine",
    "Measured",
    "MetricInfo",
    "NonFiniteSeen",
    "Origin",
    "PhaseBegan",
    "PhaseEnded",
    "Record",
    "RunFinished",
    "RunStarted",
    "RunStateChanged",
    "Sample",
    "SeedStageChanged",
    "Severity",
    "Tallied",
    "TallySeries",
    "TrainingRecovered",
    "scalars",
]

Event: TypeAlias = (
    RunStarted | RunFinished | Measured | Tallied | EpisodeEnded | ActionTaken | SeedStageChanged
    | GateEvaluated | EnvCrashed | EnvsRemoved | NonFiniteSeen | EarlyStopped | CurriculumChanged
    | CheckpointSaved | TrainingRecovered | RunStateChanged | CommandApplied | FindingAcknowledged
    | PhaseBegan | PhaseEnded | LogLine
)  # fmt: skip


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its origin and its number within the origin's epoch; foreign records have none."""

    origin: Origin
    event: Event
    seq: Annotated[int, msgspec.Meta(ge=0)] | None = None
