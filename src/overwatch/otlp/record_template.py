"""A log record read by its likeness to an earlier one: same bytes but for its numbers and columns.

Of a measurement, or a fact with packed columns, that the general path has read, a template keeps what every
byte must be and where each number goes. What a number means is not believed: a record with all of them
changed is read both ways when a template is learned, and must come out the same.

Rules: a template says exactly what the general path would, or nothing: another byte, a number of another
width, a time that is none, a column that cannot be, are left to the general path. Must not know who sent it.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import numpy as np
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overwatch.events import Column, Conflated, Event, Measured
from overwatch.otlp import wire
from overwatch.otlp.decode import Spoken, spoken
from overwatch.otlp.mask import Mask
from overwatch.otlp.record_slots import (
    ATTRIBUTE,
    BODY,
    OBSERVED,
    TIME,
    Kind,
    Path,
    Slot,
    bits_of,
    other,
    slots_of,
)
from overwatch.otlp.times import can_be

LEARNED: Final = frozenset({Measured, *wire.COLUMNAR})
"""Events of whose records there are templates."""
MAX_SLOTS: Final = 4096
_NUMBER: Final = struct.Struct("<Q")

_Columns: TypeAlias = dict[str, Column]
_Span: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class _Packed:
    """A column whose bytes lie in the record."""

    name: str
    start: int
    stop: int
    known: Column
    """As its template was learned, and words as they were read last: these and ids stay the same for long."""

    def read(self, record: bytes) -> Column:
        """The column of a record; raises `ValueError` where it cannot be."""
        data, known = record[self.start : self.stop], self.known
        if data == known.data:
            return known
        column = Column(dtype=known.dtype, data=data, labels=known.labels)
        if column.labels is not None:
            self.known = column
        return column


@dataclass(slots=True)
class _Holes:
    """Where the numbers of an event lie, by where they go."""

    columns: list[_Packed] = field(default_factory=list)
    """Columns that are fields of their own."""
    values: list[_Packed] = field(default_factory=list)
    keys: list[_Packed] = field(default_factory=list)
    low: list[_Packed] = field(default_factory=list)
    high: list[_Packed] = field(default_factory=list)
    doubles: list[_Packed] = field(default_factory=list)
    """Values that are attributes."""
    wholes: list[tuple[str, _Span]] = field(default_factory=list)
    counts: list[tuple[str, _Span]] = field(default_factory=list)
    """Fields of `Conflated`."""
    warnings: list[tuple[str, _Span]] = field(default_factory=list)
    criticals: list[tuple[str, _Span]] = field(default_factory=list)
    seq: _Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordTemplate:
    """What records of one shape say."""

    length: int
    mask: Mask
    time: _Span
    holes: _Holes
    said: Spoken
    """What the record that it was learned from says."""

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""
        return 4 * self.length + 2048

    def fits(self, record: bytes) -> bool:
        """Whether a record is of this shape."""
        return self.mask.fits(np.frombuffer(record, np.uint8))

    def read(self, record: bytes) -> Spoken | None:
        """What a record says; `None` where it is not certainly of this shape."""
        if not self.fits(record):
            return None
        (at,) = _NUMBER.unpack_from(record, self.time[0])
        if not can_be(at):
            return None
        try:
            event = self._event(record, at)
        except ValueError:
            return None
        seq = None if self.holes.seq is None else _whole(record, self.holes.seq)
        return None if event is None else Spoken(self.said.run_id, event, seq)

    def _event(self, record: bytes, at: int) -> Event | None:
        event, holes = self.said.event, self.holes
        wholes = {name: _whole(record, span) for name, span in holes.wholes}
        if not isinstance(event, Measured):
            columns = {one.name: one.read(record) for one in holes.columns}
            numbers: dict[str, int | Column] = {"at": at, **wholes, **columns}
            changed: Event = msgspec.structs.replace(event, **numbers)
            return changed
        values = event.values
        if holes.values:
            values = values | {one.name: one.read(record) for one in holes.values}
        if holes.doubles:
            values = values | {one.name: one.read(record) for one in holes.doubles}
            if not all(math.isfinite(values[one.name].first()) for one in holes.doubles):
                return None
        keys = event.keys | {one.name: one.read(record) for one in holes.keys} if holes.keys else event.keys
        return Measured(
            at=at,
            scope=event.scope,
            values=values,
            keys=keys,
            index=wholes.get("index", event.index),
            conflated=None if event.conflated is None else self._conflated(event.conflated, record),
        )

    def _conflated(self, known: Conflated, record: bytes) -> Conflated:
        holes = self.holes
        counts = {name: _whole(record, span) for name, span in holes.counts}
        return Conflated(
            n=counts.get("n", known.n),
            first=counts.get("first", known.first),
            updates=counts.get("updates", known.updates),
            low=known.low | {one.name: one.read(record) for one in holes.low},
            high=known.high | {one.name: one.read(record) for one in holes.high},
            warnings=known.warnings | {name: _whole(record, span) for name, span in holes.warnings},
            criticals=known.criticals | {name: _whole(record, span) for name, span in holes.criticals},
        )


def learn_record(record: bytes) -> RecordTemplate | None:
    """The template of a log record; `None` where it cannot be told so, or is no measurement."""
    slots = slots_of(record)
    said = None if slots is None or len(slots) > MAX_SLOTS else _said(record)
    if slots is None or said is None or type(said.event) not in LEARNED:
        return None
    holes = _Holes()
    kept = [slot for slot in slots if _place(slot, said, holes)]
    (time,) = ((slot.start, slot.stop) for slot in slots if slot.path == TIME)
    template = RecordTemplate(
        length=len(record),
        mask=Mask.of(record, bits_of(len(record), kept)),
        time=time,
        holes=holes,
        said=said,
    )
    others = [_altered(record, kept, said, turn) for turn in range(2)]
    alike = all(template.read(one) == _said(one) for one in (record, *others))
    return template if alike and all(template.fits(one) for one in others) else None


def _said(record: bytes) -> Spoken | None:
    """As the general path reads a record; `None` where it makes no event of it."""
    return spoken(LogRecord.FromString(record))


def _place(slot: Slot, said: Spoken, holes: _Holes) -> bool:
    """Note where a slot goes; `False` where its bytes have to stay the same."""
    event, span = said.event, (slot.start, slot.stop)
    if slot.path in (TIME, OBSERVED):
        return True
    where, *path = slot.path
    if where == ATTRIBUTE and slot.kind is Kind.WHOLE and path == [wire.SEQ]:
        holes.seq = span
        return True
    if where == ATTRIBUTE and slot.kind is Kind.WHOLE:
        name = wire.BY_ATTRIBUTE[type(event)].get(path[0])
        if name is None or getattr(event, name) is None:
            return False
        holes.wholes.append((name, span))
        return True
    if where == ATTRIBUTE:
        return isinstance(event, Measured) and _place_column(slot, path[0], event.values, holes.doubles)
    return where == BODY and _place_part(slot, tuple(path), event, holes)


def _place_part(slot: Slot, path: Path, event: Event, holes: _Holes) -> bool:
    """The same of a part of the body."""
    if not isinstance(event, Measured):
        return _is_data(path, 2) and _place_column(slot, path[0], _columns(event), holes.columns)
    if _is_data(path, 3) and path[0] in ("values", "keys"):
        columns, found = (event.values, holes.values) if path[0] == "values" else (event.keys, holes.keys)
        return _place_column(slot, path[1], columns, found)
    known = event.conflated
    if known is None or path[:1] != ("conflated",):
        return False
    if _is_data(path, 4) and path[1] in ("low", "high"):
        columns, found = (known.low, holes.low) if path[1] == "low" else (known.high, holes.high)
        return _place_column(slot, path[2], columns, found)
    if slot.kind is not Kind.WHOLE:
        return False
    span = (slot.start, slot.stop)
    if path[1:] in (("n",), ("first",), ("updates",)):
        holes.counts.append((path[1], span))
    elif len(path) == 3 and path[1] in ("warnings", "criticals"):
        (holes.warnings if path[1] == "warnings" else holes.criticals).append((path[2], span))
    else:
        return False
    return True


def _place_column(slot: Slot, name: str, columns: _Columns, found: list[_Packed]) -> bool:
    known = columns.get(name)
    is_packed = slot.kind in {Kind.DOUBLE, Kind.PACKED}
    if known is None or not is_packed or len(known.data) != slot.stop - slot.start:
        return False
    found.append(_Packed(name, slot.start, slot.stop, known))
    return True


def _is_data(path: Path, length: int) -> bool:
    return len(path) == length and path[-1] == "data"


def _columns(event: Event) -> _Columns:
    told = ((name, getattr(event, name)) for name in wire.FIELDS[type(event)])
    return {name: value for name, value in told if isinstance(value, Column)}


def _altered(record: bytes, slots: Sequence[Slot], said: Spoken, turn: int) -> bytes:
    """A record of the same shape whose numbers are all others, no two of them alike."""
    made = bytearray(record)
    labelled = {(one.start, one.stop) for one in _labelled(said.event, record, slots)}
    for number, slot in enumerate(slots, 1 + turn):
        here = slice(slot.start, slot.stop)
        if (slot.start, slot.stop) in labelled:
            # Of words the one that is missing: other numbers may stand for none.
            made[here] = (b"\xff" if turn else b"\x00") * (slot.stop - slot.start)
        else:
            made[here] = other(record[here], slot.kind, number, turn)
    return bytes(made)


def _labelled(event: Event, record: bytes, slots: Sequence[Slot]) -> list[Slot]:
    """Slots of columns of words."""
    columns: list[Column] = []
    if isinstance(event, Measured):
        columns += [*event.values.values(), *event.keys.values()]
        if event.conflated is not None:
            columns += [*event.conflated.low.values(), *event.conflated.high.values()]
    else:
        columns += _columns(event).values()
    words = {column.data for column in columns if column.labels is not None}
    return [slot for slot in slots if record[slot.start : slot.stop] in words]


def _whole(record: bytes, span: _Span) -> int:
    """A varint of at most nine bytes."""
    start, stop = span
    if stop - start == 1:
        return record[start]
    value = 0
    for place in range(stop - start):
        value |= (record[start + place] & 0x7F) << 7 * place
    return value
