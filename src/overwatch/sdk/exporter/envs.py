"""A rank's own env numbers as env ids of the whole run: every rank counts its envs from 0.

Pure; must not know how events are sent.
"""

from typing import Final, assert_never

import msgspec

from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    Column,
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
)

_ENV: Final = "env_id"


def global_envs(event: Event, offset: int) -> Event:
    """The event with `offset` added to every env number in it."""
    if not offset:
        return event
    match event:
        case Measured():
            column = event.keys.get(_ENV)
            if column is None:
                return event
            return msgspec.structs.replace(event, keys={**event.keys, _ENV: _moved(column, offset)})
        case EpisodeEnded() | ActionTaken() | EnvsRemoved():
            return msgspec.structs.replace(event, env_id=_moved(event.env_id, offset))
        case CurriculumChanged():
            column = event.env_id
            return event if column is None else msgspec.structs.replace(event, env_id=_moved(column, offset))
        case NonFiniteSeen():
            return msgspec.structs.replace(event, env_ids=tuple(env + offset for env in event.env_ids))
        case SeedStageChanged() | GateEvaluated() | EnvCrashed():
            return msgspec.structs.replace(event, env_id=event.env_id + offset)
        case LogLine():
            return (
                event
                if event.env_id is None
                else msgspec.structs.replace(event, env_id=event.env_id + offset)
            )
        case RunStarted() | RunFinished() | EarlyStopped() | CheckpointSaved() | PhaseBegan() | PhaseEnded():
            return event
        case TrainingRecovered() | RunStateChanged() | CommandApplied():
            return event
        case FindingAcknowledged() | Tallied():
            return event
        case _:
            assert_never(event)


def _moved(column: Column, offset: int) -> Column:
    return Column.of(column.array().astype("<i8") + offset)
