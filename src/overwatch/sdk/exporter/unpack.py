"""A record of the trainer's rings as events. Pure; must not know how records are read or sent."""

from typing import Final

from overwatch.catalog import Scope
from overwatch.events import Event, Measured, scalars
from overwatch.sdk.conflate import Folded
from overwatch.sdk.frames import Rolled, SpanEnded, Update
from overwatch.sdk.rings.records import Content
from overwatch.sdk.rollouts.columns import WordTables

FACT_BYTES: Final = 512
"""What a fact comes to on its way, about."""


def unpacked(record: Content, words: WordTables | None) -> list[Event]:
    """What a record holds, as events; `words` are those of the run."""
    match record:
        case Folded():
            return list(record.events())
        case Update():
            values = scalars(record.values)
            return [Measured(at=record.at, scope=Scope.POLICY, values=values, index=record.index)]
        case Rolled():
            from overwatch.sdk.rollouts.events import events_of

            return list(events_of(record, words))
        case SpanEnded():
            return []
        case _:
            return [record]


def weight(event: Event) -> int:
    """Bytes that an event comes to on its way, about: of a rollout more than in its record."""
    if not isinstance(event, Measured):
        return FACT_BYTES
    return FACT_BYTES + sum(
        len(column.data) for part in (event.keys, event.values) for column in part.values()
    )
