"""A record of the trainer's rings as events of the whole run, and the facts that follow from its numbers.

Pure; must not know how records are read or sent.
"""

import math
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, NonFinite, Scope
from overwatch.events import Column, Event, Measured, NonFiniteSeen, scalars
from overwatch.sdk.conflate import Folded
from overwatch.sdk.frames import Rolled, SpanEnded, Update
from overwatch.sdk.rings.records import Content
from overwatch.sdk.rollouts.columns import WordTables

FACT_BYTES: Final = 512
"""What a fact comes to on its way, about."""
MAX_OFFENDERS: Final = 16
_ENV: Final = "env_id"


def unpacked(record: Content, words: WordTables | None) -> list[Event]:
    """What a record holds, as events; `words` are those of the run."""
    match record:
        case Folded():
            return list(record.events())
        case Update():
            return [measured(record)]
        case Rolled():
            from overwatch.sdk.rollouts.events import events_of

            return list(events_of(record, words))
        case SpanEnded():
            return []
        case _:
            return [record]


def measured(update: Update) -> Measured:
    """An update in its long form."""
    values = scalars(update.values)
    return Measured(at=update.at, scope=Scope.POLICY, values=values, index=update.index)


def weight(event: Event) -> int:
    """Bytes that an event comes to on its way, about: of a rollout more than in its record."""
    if not isinstance(event, Measured):
        return FACT_BYTES
    return FACT_BYTES + sum(
        len(column.data) for part in (event.keys, event.values) for column in part.values()
    )


def global_envs(event: Event, offset: int) -> Event:
    """The event with `offset` added to every env number in it: every rank counts its envs from 0."""
    if not offset:
        return event
    if isinstance(event, Measured):
        keys = {name: _moved(column, offset) for name, column in event.keys.items() if name == _ENV}
        return msgspec.structs.replace(event, keys={**event.keys, **keys}) if keys else event
    if isinstance(event, NonFiniteSeen):
        return msgspec.structs.replace(event, env_ids=tuple(env + offset for env in event.env_ids))
    own: Column | int | None = getattr(event, _ENV, None)
    if own is None:
        return event
    moved = _moved(own, offset) if isinstance(own, Column) else own + offset
    return msgspec.structs.replace(event, env_id=moved)


def _moved(column: Column, offset: int) -> Column:
    return Column.of(column.array().astype("<i8") + offset)


def is_plain(update: Update) -> bool:
    """Whether no value of an update is a fact of its own, for it must be finite and is not."""
    if math.isfinite(sum(update.values.values())):
        return True
    return all(math.isfinite(value) or not _must_be_finite(name) for name, value in update.values.items())


def non_finite(event: Measured) -> list[NonFiniteSeen]:
    """One fact for each critical metric of the measurement that holds a NaN or an infinity."""
    found = []
    for name, column in event.values.items():
        if _must_be_finite(name) and column.dtype.endswith(("f4", "f8")):
            seen = _single(event, name, column) if len(column) == 1 else _many(event, name, column)
            if seen is not None:
                found.append(seen)
    return found


def _must_be_finite(name: str) -> bool:
    row = BY_NAME.get(name)
    return row is not None and row.non_finite is NonFinite.CRITICAL


def _single(event: Measured, name: str, column: Column) -> NonFiniteSeen | None:
    value = column.first()
    if math.isfinite(value):
        return None
    env_id = event.keys.get(_ENV)
    env_ids = () if env_id is None else (int(env_id.first()),)
    kind = "nan" if math.isnan(value) else "inf"
    return NonFiniteSeen(at=event.at, scope=event.scope, metric=name, kind=kind, env_ids=env_ids)


def _many(event: Measured, name: str, column: Column) -> NonFiniteSeen | None:
    import numpy as np

    values = column.array()
    finite = np.isfinite(values)
    if finite.all():
        return None
    bad = np.flatnonzero(~finite)
    env_id = event.keys.get(_ENV)
    envs = [] if env_id is None else env_id.array()[bad].tolist()
    return NonFiniteSeen(
        at=event.at,
        scope=event.scope,
        metric=name,
        kind="nan" if bool(np.isnan(values[bad]).any()) else "inf",
        count=int(bad.size),
        env_ids=tuple(int(env) for env in dict.fromkeys(envs))[:MAX_OFFENDERS],
    )
