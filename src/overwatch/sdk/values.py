"""The trainer's values as plain ones: numbers, words, columns; and never a stall.

Rules: a value on a device is refused, because reading it would wait for the device; user code (`__str__`,
`__float__`) runs only where the call is rare, and whatever it raises refuses that value alone. Everything
refused raises `RefusedError`, which `Run` counts. Loads NumPy with the first column.
"""

import math
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from numbers import Complex, Number, Real
from typing import Any, Final, SupportsFloat, TypeAlias, cast

from overwatch.catalog import Stage, parse_stage
from overwatch.events import Column, Severity

Numeric: TypeAlias = SupportsFloat
"""A float, an int, a NumPy scalar; a list, an array or a tensor on the CPU of one number."""
Numbers: TypeAlias = SupportsFloat | Sequence[SupportsFloat]
"""One number for all rows, or one a row: a sequence, an array, a tensor on the CPU."""
Words: TypeAlias = str | Enum | Sequence[str | Enum | None] | None

MAX_TEXT: Final = 65_536
MAX_REASON: Final = 200
_MAX_DEPTH: Final = 64
"""Lists in one another around a number, or dimensions of an array."""
_EXACT: Final = 1 << 53
"""The largest float up to which all whole numbers are floats."""
_OBJECTS: Final = "O"
_NO_NUMBERS: Final = frozenset("cSUMm")
"""Kinds of NumPy's dtypes that are no real numbers: complex, text, dates and times."""
_CPU: Final = "cpu"


class RefusedError(ValueError):
    """A value that cannot be taken."""


def number(value: object) -> float:
    """A float of one number, or of the only one in a list or an array; raises `RefusedError`."""
    if type(value) is float:
        return value
    try:
        return _number(value)
    except Exception as error:  # noqa: BLE001 a value's own code may raise anything
        raise _refusal(value, "one number", error) from None


def _number(value: object) -> float:
    for _ in range(_MAX_DEPTH):
        if value is None or isinstance(value, str | bytes | bytearray | memoryview):
            word = "nothing" if value is None else f"{value[:40]!r} is text"
            raise RefusedError(f"{word}, not a number; leave it out")
        _refuse_device(value)
        shape = getattr(value, "shape", None)
        if shape is None and not isinstance(value, Sequence):
            break
        if shape is None or _kind_of(value) == _OBJECTS or tuple(shape):
            value = _only(value, shape)
        else:
            break
    if _kind_of(value) in _NO_NUMBERS or (isinstance(value, Complex) and not isinstance(value, Real)):
        raise RefusedError(f"a {type(value).__name__} is not one real number")
    _refuse_masked(value)
    return float(cast("SupportsFloat", value))


def _only(value: Any, shape: object) -> object:
    """The only element of a sequence, or of an array of some shape."""
    size = len(value) if shape is None else math.prod(cast("Iterable[int]", shape))
    if size != 1:
        what = f"{size} values" if shape is None else f"an array of shape {shape}"
        raise RefusedError(f"{what}, not one number; pass its mean or its newest")
    _refuse_masked(value)
    return value[0] if shape is None else value.item()


def _refuse_masked(value: object) -> None:
    # Another thread may be importing NumPy: its modules are there before what is in them.
    numpy: Any = sys.modules.get("numpy.ma")
    masked, is_masked = getattr(numpy, "masked", None), getattr(numpy, "is_masked", None)
    if masked is None or is_masked is None:
        return
    listed = isinstance(value, list | tuple) and any(one is masked for one in value)
    if listed or is_masked(value):
        raise RefusedError("a masked value is none; fill it first, e.g. `.filled(0)`")


def _kind_of(value: object) -> object:
    """The letter that NumPy has for the kind of a value's dtype."""
    return getattr(getattr(value, "dtype", None), "kind", None)


def _refusal(value: object, what: str, error: Exception) -> RefusedError:
    """Why a value is not taken, whatever the error's own code does."""
    if isinstance(error, RefusedError):
        return error
    reason = f"{type(error).__name__}: {text(error, MAX_REASON)}"
    return RefusedError(f"a {type(value).__name__} is not {what}: {reason}")


def whole(value: object) -> int:
    """A 64-bit int of a whole number of any type; raises `RefusedError`."""
    try:
        _refuse_device(value)
        found = operator.index(cast("Any", value))
    except RefusedError:
        raise
    except Exception:  # noqa: BLE001 as of `number`
        try:
            one = number(value)
        except RefusedError as error:
            raise RefusedError(f"not a whole number: {error}") from None
        if not one.is_integer():
            raise RefusedError(f"{one} is not a whole number") from None
        found = int(one)
    if not -(1 << 63) <= found < 1 << 63:
        raise RefusedError(f"a whole number of {found.bit_length()} bits does not fit into 64")
    return found


def text(value: object, limit: int = MAX_TEXT) -> str:
    """Text of a value that can be sent: valid Unicode, at most `limit` characters."""
    if isinstance(value, Enum):
        value = value.value
    try:
        found = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 a value's own code may raise anything
        found = f"<{type(value).__name__}>"
    if len(found) > limit:
        found = f"{found[:limit]}… ({len(found)} characters)"
    return found if found.isascii() else found.encode("utf-8", "replace").decode()


def plain_text(value: object) -> str:
    """Like `text`, but of unknown types only the name: runs no user code."""
    if value is None or isinstance(value, str | Number | Enum):
        return text(value)
    return f"<{type(value).__name__}>"


def fields(values: Mapping[str, object]) -> dict[str, str]:
    """Fields of a fact as text."""
    return {text(key): plain_text(value) for key, value in values.items() if key}


def length(values: object) -> int | None:
    """How many rows a value has; `None` where it is one for all."""
    try:
        shape = getattr(values, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else None
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            return None
        return len(values)
    except Exception:  # noqa: BLE001 a value's own code may raise anything; reading it gives the error
        return None


def numbers(values: Numbers, rows: int) -> Column:
    """A column of `rows` numbers; one number is repeated. Raises `RefusedError`."""
    if length(values) is None:
        one = number(values)
        return Column.scalar(one) if rows == 1 else _column([one] * rows)
    _refuse_device(values)
    if hasattr(values, "detach"):
        values = values.detach()
    return _fit(_column(cast("Iterable[object]", values)), rows)


def words(values: Words, rows: int) -> Column:
    """A dictionary-coded column of `rows` words; one word is repeated. Raises `RefusedError`."""
    if values is None or isinstance(values, str | Enum):
        values = [values] * rows
    if not isinstance(values, Iterable):
        raise RefusedError(f"a {type(values).__name__} is no column of words")
    return _fit(Column.of_labels([None if value is None else text(value) for value in values]), rows)


def ids(values: Numbers, rows: int) -> Column:
    """A column of `rows` whole numbers; one number is repeated. Raises `RefusedError`."""
    if length(values) is None:
        values = [whole(values)] * rows
    column = numbers(values, rows)
    if column.dtype.endswith(("f4", "f8")) and rows:
        array = column.array()
        if not all(one.is_integer() and abs(one) <= _EXACT for one in array.tolist()):
            raise RefusedError("ids are whole numbers; some of these are not")
        return Column.of(array.astype("<i8"))
    return column


def common_rows(*values: object) -> int:
    """How many rows the values have together; values for all rows do not count. 1 when all are."""
    lengths = [found for value in values if (found := length(value)) is not None]
    return max(lengths, default=1)


def maybe_text(value: object) -> str | None:
    """Text, or absent."""
    return None if value is None else text(value)


def stage_of(value: Stage | str) -> Stage:
    """A stage from itself or its word."""
    return value if isinstance(value, Stage) else parse_stage(value)


def severity_of(value: Severity | str) -> Severity:
    """A severity from itself, its word or a logger's word for it; an unknown word is info."""
    if isinstance(value, Severity):
        return value
    return _SEVERITIES.get(value.strip().lower(), Severity.INFO)


_SEVERITIES: Final = {severity.value: severity for severity in Severity} | {
    "warn": Severity.WARNING,
    "error": Severity.CRITICAL,
    "fatal": Severity.CRITICAL,
}


def _fit(column: Column, rows: int) -> Column:
    if len(column) != rows:
        raise RefusedError(f"{len(column)} values for {rows} rows")
    return column


def _column(values: Iterable[object]) -> Column:
    import numpy as np

    try:
        _refuse_masked(values)
        array = np.asarray(values)
        if array.dtype.kind == _OBJECTS:
            array = np.array([number(one) for one in array.reshape(-1).tolist()])
        if array.dtype.kind not in "fiub":
            raise RefusedError(f"an array of {array.dtype} is not of real numbers")  # noqa: TRY301
        return Column.of(array.reshape(-1) if array.size == len(array) else array)
    except Exception as error:  # noqa: BLE001 a value's own code may raise anything
        raise _refusal(values, "a column of numbers", error) from None


def _refuse_device(value: object) -> None:
    device = getattr(value, "device", _CPU)
    kind = device if isinstance(device, str) else getattr(device, "type", _CPU)
    if kind != _CPU:
        raise RefusedError(f"a value on {kind} would make training wait; pass it after `.cpu()`")
