"""What a stretch of records says, all of a tag at once: updates name by name, of columns the newest.

Rules: what it says is what its records say one by one, folded; where that cannot be had this way, as where a
value is to be told by itself because it is not finite, there is nothing. Pure. Must not know rings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from overwatch.catalog import BY_NAME, NonFinite, Scope
from overwatch.events import Conflated, Measured, scalars
from overwatch.sdk.conflate import NO_UPDATES, Count, Span
from overwatch.sdk.rings.layout import INDEXED, Kind, untagged
from overwatch.sdk.rings.records import Form, Forms, RecordError, measured, spans_of, table
from overwatch.sdk.rings.stamped import (
    MOMENT,
    NO_INDEX,
    NUMBER,
    first_number,
    header,
    index_bytes,
    index_in,
    place_of_index,
    stamp,
)
from overwatch.sdk.rings.stretch import Group, Stretch
from overwatch.sdk.rings.writer import Entry

if TYPE_CHECKING:
    import numpy as np

_FLOAT: Final = 0xCB


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates of the same names."""

    n: int
    names: Sequence[str]
    spans: Sequence[Span]
    """One a name."""
    at: int
    """Of the last update in the stretch."""
    count: Count
    """All updates of the stretch where these are its first; else none, and the number of the last."""
    size: int
    """Bytes of the numbers."""

    @property
    def newest(self) -> Measured:
        """The last of them; says for how many it stands."""
        values = scalars({name: span.last for name, span in zip(self.names, self.spans, strict=True)})
        told = Conflated(n=self.n) if self.n > 1 else None
        return Measured(at=self.at, scope=Scope.POLICY, values=values, index=self.count.last, conflated=told)


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of the same envs."""

    n: int
    newest: Measured
    """Says for how many it stands."""
    size: int


Gathered: TypeAlias = tuple[Updates | Columns, ...]


def gathered(found: Stretch, view: memoryview, forms: Forms) -> Gathered | None:
    """What the records say, in an order that comes to the same as theirs; `None` where they must be read."""
    updates = [group for group in found.groups if untagged(group.which)[0] & ~INDEXED != Kind.COLUMNS]
    told: list[Updates | Columns] = []
    try:
        at = _moment(updates[-1], view) if updates else 0
        count = _count(updates, view) if updates else NO_UPDATES
        for group in found.groups:
            form = forms(untagged(group.which)[1])
            if group in updates:
                told.append(_updates(group, form, view, at, count))
                count = Count(0, None, count.last)
            else:
                told.append(_columns(group, form, view))
    except (ValueError, LookupError):
        return None
    return tuple(told)


def _moment(last: Group, view: memoryview) -> int:
    """Of a group's last update."""
    kind, _, rows = untagged(last.which)
    return stamp(last.last(view), rows)[0] if kind == Kind.STAMPED else last.at


def _count(groups: Sequence[Group], view: memoryview) -> Count:
    """The updates of these groups, in the order in which they came."""
    import numpy as np

    order = np.argsort(np.concatenate([group.places for group in groups]))
    indices = np.concatenate([_indices(group, view) for group in groups])[order]
    again = (indices[1:] == indices[:-1]).all(axis=1) & (indices[1:, 0] != NO_INDEX)
    first, last = (index_in(indices[place].tobytes()) for place in (0, -1))
    return Count(len(indices) - int(np.count_nonzero(again)), first, last)


def _indices(group: Group, view: memoryview) -> "np.ndarray":
    """The index of each record, a row of bytes as `stamped` has it."""
    import numpy as np

    kind, _, rows = untagged(group.which)
    if kind == Kind.STAMPED:
        start = place_of_index(rows)
        return group.payloads(view)[:, start : start + NUMBER]
    indices = group.indices if kind & INDEXED else [None] * len(group.places)
    return np.frombuffer(b"".join(map(index_bytes, indices)), "u1").reshape(-1, NUMBER)


def _updates(group: Group, form: Form, view: memoryview, at: int, count: Count) -> Updates:
    payloads, names = group.payloads(view), len(form.names)
    kind, _, rows = untagged(group.which)
    if kind == Kind.STAMPED:
        first = first_number(names + 2)
        is_sound = rows == names and bool((payloads[:, place_of_index(names) - NUMBER] == MOMENT).all())
    else:
        start = header(names)
        first = len(start)
        is_sound = payloads.shape[1] == first + NUMBER * names and all(
            bool((payloads[:, place] == byte).all()) for place, byte in enumerate(start)
        )
    if not is_sound or not (payloads[:, first : first + NUMBER * names : NUMBER] == _FLOAT).all():
        raise RecordError("these are no updates of so many numbers")
    spans = spans_of(table(payloads, first, names))
    for name, span in zip(form.names, spans, strict=True):
        if (span.nan or span.inf) and _is_critical(name):
            raise RecordError(f"{name} is not finite")
    n = len(payloads)
    return Updates(n, form.names, spans, at, count, size=n * (len(header(names)) + NUMBER * names))


def _columns(group: Group, form: Form, view: memoryview) -> Columns:
    kind, number, rows = untagged(group.which)
    payloads, indices = group.payloads(view), group.indices
    if form.scope is not Scope.ENV or (kind & INDEXED and indices != sorted(indices)):
        raise RecordError("columns that say more than the newest of them")
    index = indices[-1] if kind & INDEXED else None
    entry = Entry(kind, group.at, group.last(view), indices[-1], number, rows)
    newest = measured(entry, form, index)
    start = 0
    for place, (name, dtype) in enumerate(zip(form.names, form.dtypes, strict=True)):
        end = start + rows * int(dtype[2:])
        column = payloads[:, start:end]
        if place < form.keys and not (column == column[0]).all():
            raise RecordError("columns of different envs")
        if dtype[1] == "f" and _is_critical(name) and not _is_finite(column.view(dtype)):
            raise RecordError(f"{name} is not finite")
        start = end
    n = len(payloads)
    if n > 1:
        told = Conflated(n=n, first=indices[0] if kind & INDEXED else None)
        newest = msgspec.structs.replace(newest, conflated=told)
    return Columns(n, newest, payloads.size)


def _is_finite(column: "np.ndarray") -> bool:
    import numpy as np

    return bool(np.isfinite(column).all())


def _is_critical(name: str) -> bool:
    """Whether a value of this name is told by itself where it is not finite."""
    row = BY_NAME.get(name)
    return row is not None and row.non_finite is NonFinite.CRITICAL
