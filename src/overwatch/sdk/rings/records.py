"""What is in a record: frames in, frames out, and the forms that name raw numbers.

Owns the meaning of payloads. Pure. Must not know rings or files.
"""

import functools
import math
import struct
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from overwatch.catalog import Scope
from overwatch.events import Column, Measured, Tallied
from overwatch.sdk.conflate import Folded, Span
from overwatch.sdk.frames import Close, Dropped, Frame, Hello, Rolled, SpanEnded, Update
from overwatch.sdk.rings.layout import INDEXED, Kind
from overwatch.sdk.rings.stamped import NUMBER, first_number
from overwatch.sdk.rings.writer import Entry

if TYPE_CHECKING:
    import numpy as np


class Form(msgspec.Struct, frozen=True, array_like=True):
    """The names of raw numbers that come often; written once, then known by a number."""

    names: tuple[str, ...]
    """Full names, keys first."""
    dtypes: tuple[str, ...] = ()
    """One a name, as in `Column`; empty where the numbers are one update's."""
    scope: Scope = Scope.POLICY
    keys: int = 0
    """How many of the names are keys."""
    first_ids: bool = False
    """The envs are 0, 1, 2, ... and not in the columns."""


Said: TypeAlias = Frame | Folded
"""What a record says."""
Forms: TypeAlias = Callable[[int], Form]

_encode: Final = msgspec.msgpack.Encoder().encode
_doubles: Final = msgspec.msgpack.Decoder(list[float]).decode
_frame: Final = msgspec.msgpack.Decoder(Frame).decode
_folded: Final = msgspec.msgpack.Decoder(Folded).decode
_form: Final = msgspec.msgpack.Decoder(Form).decode


class RecordError(ValueError):
    """A payload that is not what its kind says."""


def is_fact(frame: Frame) -> bool:
    """Whether a frame may not be dropped for numbers."""
    if isinstance(frame, Rolled):
        return frame.is_fact
    return not isinstance(frame, Update | SpanEnded | Measured | Tallied)


def entry(frame: Frame) -> Entry:
    """A frame as a record."""
    return Entry(kind=Kind.FRAME, at=_time(frame), payload=_encode(frame))


def folded_entry(folded: Folded, upto: int) -> Entry:
    """Folded updates as a record; `upto` counts all that were ever folded."""
    return Entry(kind=Kind.FOLDED, at=folded.at, payload=_encode(folded), index=upto)


def _time(frame: Frame) -> int:
    match frame:
        case Hello():
            return 0
        case Close() | Dropped():
            return time.time_ns()
        case _:
            return frame.at


def encode_form(form: Form) -> bytes:
    """A form as it is kept in the ring's file."""
    return _encode(form)


def decode_form(data: bytes) -> Form:
    """A form; raises `RecordError`."""
    try:
        return _form(data)
    except msgspec.MsgspecError as error:
        raise RecordError(f"a form that is none: {error}") from None


def spans(entries: Sequence[Entry], names: int) -> list[Span]:
    """What updates of one form say of each of its names; of this process's own making, so they can be read.

    All at once where NumPy is loaded.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        rows = [_doubles(one.payload) for one in entries]
        return [Span.of(column) for column in zip(*rows, strict=True)]
    data = numpy.frombuffer(b"".join([one.payload for one in entries]), "u1").reshape(len(entries), -1)
    return spans_of(table(data, first_number(names), names))


def table(payloads: "np.ndarray", first: int, names: int) -> "np.ndarray":
    """The numbers of updates, a row for each name; one update's bytes are a row of `payloads`.

    `first` is where the first number begins: its tag, then eight bytes, the most significant first.
    """
    import numpy as np

    tagged = payloads[:, first : first + NUMBER * names].reshape(len(payloads), names, NUMBER)
    numbers = np.ascontiguousarray(tagged[:, :, 1:]).view(">f8")[:, :, 0]
    return numbers.T.astype("f8", order="C")


def spans_of(numbers: "np.ndarray") -> list[Span]:
    """What each row of a table says; it is read in place."""
    # An infinity or NaN makes the sum one; so does a sum too large, which then costs time only.
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = math.isfinite(numbers.sum())
    if not is_finite:
        return [Span.of(values) for values in numbers.tolist()]
    lows, highs, lasts = numbers.min(axis=1).tolist(), numbers.max(axis=1).tolist(), numbers[:, -1].tolist()
    rows = cast("Iterable[Sequence[float]]", map(memoryview, numbers))
    return [
        Span(low=low, high=high, n=len(values), last=last, values=values)
        for values, low, high, last in zip(rows, lows, highs, lasts, strict=True)
    ]


def frame_update(entry: Entry) -> Update | None:
    """The update that a whole frame is; `None` when it is anything else."""
    if entry.kind != Kind.FRAME:
        return None
    try:
        frame = _frame(entry.payload)
    except ValueError:
        return None
    return frame if isinstance(frame, Update) else None


def said(entry: Entry, forms: Forms) -> Said:
    """What a record says; raises `RecordError`."""
    index = entry.index if entry.kind & INDEXED else None
    try:
        match entry.kind & ~INDEXED:
            case Kind.FRAME:
                frame: Frame = _frame(entry.payload)
                return frame
            case Kind.FOLDED:
                return _folded(entry.payload)
            case Kind.UPDATE:
                names = forms(entry.form).names
                values = dict(zip(names, _doubles(entry.payload), strict=True))
                return Update(at=entry.at, values=values, index=index)
            case Kind.COLUMNS:
                return measured(entry, forms(entry.form), index)
            case _:
                raise RecordError(f"a record of kind {entry.kind}")
    except (ValueError, LookupError) as error:
        raise RecordError(f"a record of kind {entry.kind} cannot be read: {error}") from None


def measured(entry: Entry, form: Form, index: int | None) -> Measured:
    """Columns of a form; raises `RecordError`, or `ValueError` for a form that is none of columns."""
    columns: dict[str, Column] = {}
    start = 0
    for name, dtype in zip(form.names, form.dtypes, strict=True):
        end = start + entry.rows * int(dtype[2:])
        columns[name] = Column(dtype=dtype, data=entry.payload[start:end])
        start = end
    if start != len(entry.payload) or any(len(column) != entry.rows for column in columns.values()):
        raise RecordError(f"{len(entry.payload)} bytes are not {entry.rows} rows of {form.dtypes}")
    keys = {name: columns.pop(name) for name in form.names[: form.keys]}
    if form.first_ids:
        keys["env_id"] = first_ids(entry.rows)
    return Measured(at=entry.at, scope=form.scope, keys=keys, values=columns, index=index)


@functools.lru_cache(maxsize=8)
def first_ids(rows: int) -> Column:
    """Ids 0, 1, 2, ... of so many envs."""
    return Column(dtype="<i4", data=struct.pack(f"<{rows}i", *range(rows)))
