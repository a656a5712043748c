"""Records that follow one another, taken as one: updates of the same names, columns of the same envs.

A trainer that steps a thousand times a second would otherwise have each of its records encoded, judged and
drawn, of which a tenth of a second later only the fold is sent.

Rules: a batch holds what its records hold one by one, folded. So a value that needs a fact of its own,
for it is not finite, stands alone; no batch goes over a fact; and of columns no more are put together than
their newest can stand for. Pure. Must not know rings.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from overwatch.catalog import BY_NAME, NonFinite, Scope
from overwatch.events import Conflated, Measured, scalars
from overwatch.sdk.conflate import Rows
from overwatch.sdk.exporter.nonfinite import non_finite
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.source import Item


@dataclass(slots=True)
class Updates:
    """Updates of the same names."""

    rows: Rows
    size: int = 0
    """Bytes of their records."""

    @property
    def n(self) -> int:
        """How many."""
        return len(self.rows)

    @property
    def newest(self) -> Measured:
        """The last of them, with how many it stands for."""
        rows = self.rows
        return Measured(
            at=rows.at,
            scope=Scope.POLICY,
            values=scalars(dict(zip(rows.names, rows.values[-1], strict=True))),
            index=rows.indices[-1],
            conflated=Conflated(n=self.n) if self.n > 1 else None,
        )


@dataclass(slots=True)
class Columns:
    """Columns of the same names and envs."""

    last: Measured
    first: int | None
    """Number of the first."""
    n: int = 0
    size: int = 0
    """Bytes of their records."""

    @property
    def newest(self) -> Measured:
        """The last of them, with how many it stands for."""
        if self.n == 1:
            return self.last
        return msgspec.structs.replace(self.last, conflated=Conflated(n=self.n, first=self.first))

    def continues(self, event: Measured) -> bool:
        """Whether the newest can stand for this one too, which comes next."""
        last = self.last
        in_order = (
            event.index is None
            if last.index is None
            else event.index is not None and event.index >= last.index
        )
        return in_order and event.keys == last.keys and event.values.keys() == last.values.keys()


Part: TypeAlias = Updates | Columns


@dataclass(frozen=True, slots=True)
class Batch:
    """Many records of the ring of numbers."""

    parts: tuple[Part, ...]
    last: Item
    """The last of the records."""


def batched(items: Iterable[Item], known: int) -> Iterator[Item | Batch]:
    """The items in their order, numbers of a kind in batches; `known` is a number that no batch goes over."""
    batch = _Open()
    last: Item | None = None
    for item in items:
        is_number = _is_number(item)
        if last is not None and (not is_number or last.sequence == known):
            yield Batch(tuple(batch.parts), last)
            batch, last = _Open(), None
        if is_number:
            batch.add(item)
            last = item
        else:
            yield item
    if last is not None:
        yield Batch(tuple(batch.parts), last)


class _Open:
    """The parts of a batch that is added to."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._updates: Updates | None = None
        self._columns: Columns | None = None

    def add(self, item: Item) -> None:
        """Take the next record."""
        if isinstance(item.content, Update):
            self._add_update(item.content, item.size)
        elif isinstance(item.content, Measured):
            self._add_columns(item.content, item.size)

    def _add_update(self, update: Update, size: int) -> None:
        names = tuple(update.values)
        # Of names that two sets have the last value counts, so those that came between begin another part.
        if self._updates is None or self._updates.rows.names != names:
            self._updates = Updates(Rows(names))
            self.parts.append(self._updates)
        self._updates.rows.add(tuple(update.values.values()), update.at, update.index)
        self._updates.size += size

    def _add_columns(self, event: Measured, size: int) -> None:
        if self._columns is None or not self._columns.continues(event):
            self._columns = Columns(event, event.index)
            self.parts.append(self._columns)
        self._columns.last = event
        self._columns.n += 1
        self._columns.size += size


def _is_number(item: Item) -> bool:
    """Whether a record is one of a batch."""
    content = item.content
    if isinstance(content, Update):
        return _is_sound(content)
    if not isinstance(content, Measured) or content.scope is not Scope.ENV or content.conflated is not None:
        return False
    return not non_finite(content)


def _is_sound(update: Update) -> bool:
    """Whether no value that has to be finite is not."""
    if math.isfinite(sum(update.values.values())):
        return True
    return all(math.isfinite(value) or not _is_critical(name) for name, value in update.values.items())


def _is_critical(name: str) -> bool:
    """Whether a value of this name is a fact of its own where it is not finite."""
    row = BY_NAME.get(name)
    return row is not None and row.non_finite is NonFinite.CRITICAL
