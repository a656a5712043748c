"""What is in a record: frames in, frames out, and the forms that name raw numbers.

Owns the meaning of payloads: msgpack, but for columns, which lie in a record as they lay in memory. Pure.
Must not know rings or files.
"""

import functools
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from overwatch.catalog import Scope
from overwatch.events import Column, Measured, Tallied
from overwatch.sdk.conflate import Folded
from overwatch.sdk.frames import Frame, Rolled, SpanEnded, Update
from overwatch.sdk.rings.file import Kind, tag, untagged
from overwatch.sdk.rings.writer import Entry


class Form(msgspec.Struct, frozen=True, array_like=True):
    """The names of raw numbers that come often; written once, then known by a number."""

    names: tuple[str, ...]
    """Full names, `env_id` first where ids are given."""
    dtypes: tuple[str, ...] = ()
    """One a name, as in `Column`; empty where the numbers are one update's."""
    has_ids: bool = False
    """Whether the first column has the envs; else they are 0, 1, 2, ..."""


class FoldedUpto(msgspec.Struct, frozen=True, array_like=True):
    """Folded updates, and how many have been folded up to them since the ring is there."""

    upto: int
    folded: Folded


Content: TypeAlias = Frame | Folded
"""What a record holds."""
Forms: TypeAlias = Callable[[int], Form]
Row: TypeAlias = tuple[list[float], int, int | None]
"""Numbers of an update, moment and index."""

encode: Final = msgspec.msgpack.Encoder().encode
_frame: Final = msgspec.msgpack.Decoder(Frame).decode
_folded: Final = msgspec.msgpack.Decoder(FoldedUpto).decode
_form: Final = msgspec.msgpack.Decoder(Form).decode
STAMP: Final = struct.Struct("<qq?")
"""Before columns: moment, index, and whether there is an index."""
row_of: Final = msgspec.msgpack.Decoder(Row).decode
"""An update as it lies in a record; raises `msgspec.MsgspecError`."""


class RecordError(ValueError):
    """A payload that is not of its kind."""


def is_fact(frame: Frame) -> bool:
    """Whether a frame may not be dropped for numbers."""
    if isinstance(frame, Rolled):
        return frame.is_fact
    return not isinstance(frame, Update | SpanEnded | Measured | Tallied)


def entry(frame: Frame) -> Entry:
    """A frame as a record."""
    return Entry(tag(Kind.FRAME), encode(frame))


def folded_entry(folded: Folded, upto: int) -> Entry:
    """Folded updates as a record; `upto` counts all that were ever folded."""
    return Entry(tag(Kind.FOLDED), encode(FoldedUpto(upto, folded)))


def decode_form(data: bytes) -> Form:
    """A form; raises `RecordError`."""
    try:
        return _form(data)
    except msgspec.MsgspecError as error:
        raise RecordError(f"a form that is none: {error}") from None


def content_of(entry: Entry, forms: Forms) -> tuple[Content, int]:
    """What a record holds, and up to how many updates it has folded ones, else 0; raises `RecordError`."""
    kind, form = untagged(entry.tag)
    try:
        match kind:
            case Kind.UPDATE:
                numbers, at, index = row_of(entry.payload)
                values = dict(zip(forms(form).names, numbers, strict=True))
                # Of a number of an update that 64 bits hold only without a sign, the other numbers are kept.
                known = index if index is None or index < 1 << 63 else None
                return Update(at=at, values=values, index=known), 0
            case Kind.COLUMNS:
                return _measured(forms(form), entry.payload), 0
            case Kind.FRAME:
                frame: Frame = _frame(entry.payload)
                return frame, 0
            case Kind.FOLDED:
                found = _folded(entry.payload)
                return found.folded, found.upto
            case _:
                raise RecordError(f"a record of kind {kind}")
    except (ValueError, LookupError, ArithmeticError, struct.error) as error:
        raise RecordError(f"a record of kind {kind} cannot be read: {error}") from None


def _measured(form: Form, payload: bytes) -> Measured:
    at, index, has_index = STAMP.unpack_from(payload)
    widths = [int(dtype[2:]) for dtype in form.dtypes]
    rows, rest = divmod(len(payload) - STAMP.size, sum(widths))
    if rest:
        raise RecordError(f"{len(payload)} bytes are no rows of {form.dtypes}")
    columns: dict[str, Column] = {}
    start = STAMP.size
    for name, dtype, width in zip(form.names, form.dtypes, widths, strict=True):
        end = start + width * rows
        columns[name] = Column(dtype=dtype, data=payload[start:end])
        start = end
    keys = {"env_id": columns.pop("env_id") if form.has_ids else first_ids(rows)}
    return Measured(at=at, scope=Scope.ENV, keys=keys, values=columns, index=index if has_index else None)


@functools.lru_cache(maxsize=8)
def first_ids(rows: int) -> Column:
    """Ids 0, 1, 2, ... of so many envs."""
    return Column(dtype="<i4", data=struct.pack(f"<{rows}i", *range(rows)))
