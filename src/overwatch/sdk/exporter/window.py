"""A tenth of a second of events: columns of one subject become one record, facts stay as they are.

Rules: each update is a record, up to `RATE` a second beside a burst of `BURST`; those beyond are folded by
`overwatch.sdk.conflate`, which counts them. Of columns the newest of each is emitted, with how many
there were, but never so that a change of a slot's stage is hidden, and of a rollout of each tenth of a second
in which its steps were taken. Numbers leave before facts, both in the
order they came. Pure; must not know records, requests or time.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from overwatch.catalog import Scope
from overwatch.events import Column, Conflated, Event, Measured, Tallied
from overwatch.sdk.conflate import Conflator
from overwatch.sdk.exporter.record_events import measured
from overwatch.sdk.frames import Update

BURST: Final = 1024
"""Updates that leave as records of their own however fast they come."""
RATE: Final = 100
"""How many more of them each second of the trainer allows."""
SECOND_NS: Final = 1_000_000_000
SPAN_NS: Final = 100_000_000
"""Of the trainer's clock, what one record of a rollout's columns covers at most."""
_STAGE: Final = "overwatch.slot.stage"
_Subject: TypeAlias = tuple[Scope, tuple[tuple[str, Column], ...]]


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """What came through a window."""

    numbers: tuple[Measured | Tallied, ...]
    facts: tuple[Event, ...]
    counted_numbers: int
    """Records of the trainer that the numbers stand for."""
    counted_facts: int


class _Columns:
    """The columns of one subject so far."""

    def __init__(self, first: Measured) -> None:
        self.newest = first
        self._began = first.at
        self.first = first.index if first.conflated is None else first.conflated.first
        self.values: dict[str, Column] = {}
        self.n = 0

    def add(self, event: Measured) -> None:
        self.n += 1 if event.conflated is None else event.conflated.n
        self.newest = event
        self.values.update(event.values)

    def is_over(self, event: Measured) -> bool:
        """Whether an event was so much later that a record of its own would have been made of it."""
        return event.at - self._began >= SPAN_NS

    def hides_stage(self, event: Measured) -> bool:
        """Whether adding would hide that a slot changed its stage."""
        return event.scope is Scope.SLOT and self.values.get(_STAGE) != event.values.get(_STAGE)

    def event(self) -> Measured:
        if self.n == 1:
            return self.newest
        reported = Conflated(n=self.n, first=self.first)
        return msgspec.structs.replace(self.newest, values=self.values, conflated=reported)


class Window:
    """Gathers events of a run of this preset and configuration until they are taken."""

    def __init__(self, preset: str | None = "ppo", config: Mapping[str, str] | None = None) -> None:
        self._updates = Conflator(preset, config)
        self._room, self._at = float(BURST), 0
        """Updates that leave unfolded, and the trainer's time at which they were as many."""
        self._folded: list[Measured] = []
        self._newest: int | None = None
        """Number of the newest update that was held."""
        self._open: dict[_Subject, _Columns] = {}
        self._columns: list[_Columns] = []
        self._tallied: list[Tallied] = []
        self._facts: list[Event] = []
        self._counted_numbers = 0
        self._counted_facts = 0
        self.size_bytes = 0
        """Roughly what was added."""

    def add(self, event: Event, *, size: int = 0, counted: int = 1, is_rolled: bool = False) -> None:
        """Take one event of `size` bytes, which stands for so many records of the trainer.

        One that is rolled is a step of a rollout: its steps come at once, and took their time.
        """
        self.size_bytes += size
        if isinstance(event, Tallied):
            self._tallied.append(event)
            self._counted_numbers += counted
            return
        if not isinstance(event, Measured):
            self._facts.append(event)
            self._counted_facts += counted
            return
        self._counted_numbers += counted
        if event.scope is not Scope.POLICY:
            self._add_columns(event, is_rolled=is_rolled)
        elif event.conflated is not None:
            self._close_updates()
            self._hold(event)
        elif self._has_room(event.at):
            self._hold(event)
        else:
            values = {name: column.first() for name, column in event.values.items() if len(column)}
            self._updates.add(event.at, values, event.index)

    def add_update(self, update: Update, *, size: int) -> None:
        """Take one record of the trainer that is an update."""
        self.size_bytes += size
        self._counted_numbers += 1
        if self._has_room(update.at):
            self._hold(measured(update))
        else:
            self._updates.add(update.at, update.values, update.index)

    def _has_room(self, at: int) -> bool:
        """Whether one more update is a record of its own; behind one that was folded none is."""
        self._room = min(self._room + max(at - self._at, 0) / SECOND_NS * RATE, BURST)
        self._at = at
        if self._room < 1 or self._updates.n:
            return False
        self._room -= 1
        return True

    def _add_columns(self, event: Measured, *, is_rolled: bool) -> None:
        subject = (event.scope, tuple(event.keys.items()))
        columns = self._open.get(subject)
        if columns is None or columns.hides_stage(event) or (is_rolled and columns.is_over(event)):
            columns = self._open[subject] = _Columns(event)
            self._columns.append(columns)
        columns.add(event)

    def _close_updates(self) -> None:
        folded = self._updates.flush()
        if folded is not None:
            for event in folded.events():
                if isinstance(event, Measured):
                    self._hold(event)

    def _hold(self, event: Measured) -> None:
        """Keep an update to be taken; one whose number was the newest before is not counted again."""
        count, more = event.updates(None), event.updates(self._newest)
        if more < count:
            many = event.conflated or Conflated(n=1, updates=1)
            event = msgspec.structs.replace(
                event, conflated=msgspec.structs.replace(many, first=None, updates=more)
            )
        self._newest = event.index
        self._folded.append(event)

    def take(self) -> Passed:
        """Everything gathered; the window is empty afterwards."""
        self._close_updates()
        passed = Passed(
            numbers=(*self._folded, *(columns.event() for columns in self._columns), *self._tallied),
            facts=tuple(self._facts),
            counted_numbers=self._counted_numbers,
            counted_facts=self._counted_facts,
        )
        self._folded, self._open, self._columns, self._facts, self._tallied = [], {}, [], [], []
        self._counted_numbers = self._counted_facts = self.size_bytes = 0
        return passed
