"""Facts of one shape, many at once: the same bytes but for numbers and words.

Of a fact that the general path has read, a template keeps what every byte must be and which field each number
or word is. What is which is not believed: records with all of it changed are read both ways when a template
is learned, and must come out the same.

Rules: a template says exactly what the general path would, or nothing. Must not know who sent it.
"""

from dataclasses import dataclass
from itertools import repeat
from typing import Final

import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overwatch.events import Event
from overwatch.otlp import wire
from overwatch.otlp.decode import Spoken, facts_of, fields_of_fact, spoken
from overwatch.otlp.mask import Bytes
from overwatch.otlp.record_slots import ATTRIBUTE, BODY, OBSERVED, TIME, Kind, Slot, slots_of
from overwatch.otlp.record_template import LEARNED
from overwatch.otlp.result import RejectedError
from overwatch.otlp.rows import RowShape
from overwatch.otlp.times import EARLIEST, LATEST
from overwatch.otlp.value import Value

MOST_SLOTS: Final = 32
_AT: Final = "at"
_NOTHING: Final = ""
"""What is called so tells nothing."""
_TEXTS: Final = {
    kind: {field.name for field in msgspec.structs.fields(kind) if field.type in {str, str | None}}
    for kind in wire.EVENT_TYPES
}
"""Fields that may be any text."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FactTemplate:
    """What facts of one shape say."""

    shape: RowShape
    kind: type[Event]
    names: tuple[str, ...]
    """By slot the field that lies in it; `SEQ` of the record's number, `_NOTHING` of none."""
    same: dict[str, Value]
    """The other fields, which all of them have alike."""
    run_id: str | None
    """Their own attribute, which goes before their resource's."""

    @property
    def length(self) -> int:
        """Bytes of a record."""
        return self.shape.length

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""
        return self.shape.cost + 4096

    def read(self, rows: Bytes) -> list[Spoken | None]:
        """What records say, one a row; `None` where one is not certainly of this shape."""
        fits, columns = self.shape.read(rows)
        for name, column in zip(self.names, columns, strict=True):
            if name == _AT:
                fits &= (column >= EARLIEST) & (column <= LATEST)
        kept = np.flatnonzero(fits)
        said: list[Spoken | None] = [None] * len(rows)
        if kept.size:
            told = {name: _told(column[kept]) for name, column in zip(self.names, columns, strict=True)}
            for place, one in zip(kept.tolist(), self._spoken(told, kept.size), strict=True):
                said[place] = one
        return said

    def _spoken(self, told: dict[str, list[Value]], count: int) -> list[Spoken | None]:
        """What records say, of the values of their fields."""
        told.pop(_NOTHING, None)
        seqs = told.pop(wire.SEQ, None) or [None] * count
        names = (*told, *self.same)
        values = zip(*told.values(), *map(repeat, self.same.values()))  # noqa: B905 what is the same has no end
        try:
            events = facts_of(self.kind, [dict(zip(names, these, strict=True)) for these in values])
        except msgspec.ValidationError:
            return [None] * count
        return list(map(Spoken._make, zip(repeat(self.run_id), events, seqs)))


def _told(column: np.ndarray) -> list[Value]:
    values: list[Value] = (column.astype("U") if column.dtype.kind == "S" else column).tolist()
    return values


def learn_fact(record: bytes) -> FactTemplate | None:
    """The template of a log record; `None` where it cannot be told so, or is no fact of ours."""
    try:
        log = LogRecord.FromString(record)
        found = fields_of_fact(log)
        slots = slots_of(record)
    except (DecodeError, RejectedError):
        return None
    if found is None or slots is None or found[0] in LEARNED:
        return None
    kind, fields = found
    named = {slot: name for slot in slots if (name := _name_of(slot, kind, fields)) is not None}
    if len(named) > MOST_SLOTS or _AT not in named.values():
        return None
    template = FactTemplate(
        shape=RowShape.of(record, tuple(named)),
        kind=kind,
        names=tuple(named.values()),
        same={name: value for name, value in fields.items() if name not in named.values()},
        run_id=_own_run(log),
    )
    records = [record, *(template.shape.altered(record, turn) for turn in range(2))]
    rows = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), len(record))
    general = [spoken(LogRecord.FromString(one)) for one in records]
    return template if None not in general and template.read(rows) == general else None


def _own_run(log: LogRecord) -> str | None:
    said = spoken(log)
    return None if said is None else said.run_id


def _name_of(slot: Slot, kind: type[Event], fields: dict[str, Value]) -> str | None:
    """What lies in a slot; `None` where its bytes have to stay the same."""
    if slot.path in (TIME, OBSERVED):
        return _AT if slot.path == TIME else _NOTHING
    where, *path = slot.path
    name = "message" if where == BODY and not path else None
    if where == ATTRIBUTE and len(path) == 1:
        name = wire.SEQ if path[0] == wire.SEQ else wire.BY_ATTRIBUTE[kind].get(path[0])
    if name == wire.SEQ or slot.kind in {Kind.WHOLE, Kind.DOUBLE}:
        return name if slot.kind is not Kind.TEXT and (name == wire.SEQ or name in fields) else None
    return name if slot.kind is Kind.TEXT and name in _TEXTS[kind] and name in fields else None
