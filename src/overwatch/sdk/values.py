"""The trainer's values as plain ones: numbers, words, columns; and never a stall.

Rules: a value on a device is refused, because reading it would wait for the device; user code (`__str__`)
runs only where the call is rare. Everything refused raises `RefusedError`, which `Run` counts. Loads NumPy
with the first column.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from numbers import Number
from typing import Any, Final, SupportsFloat, TypeAlias, cast

from overwatch.catalog import Stage, parse_stage
from overwatch.events import Column, Severity

Numeric: TypeAlias = SupportsFloat
"""A float, an int, a NumPy scalar, a tensor of no dimensions on the CPU."""
Numbers: TypeAlias = SupportsFloat | Sequence[SupportsFloat]
"""One number for all rows, or one a row: a sequence, an array, a tensor on the CPU."""
Words: TypeAlias = str | Enum | Sequence[str | Enum | None] | None

MAX_TEXT: Final = 65_536
_CPU: Final = "cpu"


class RefusedError(ValueError):
    """A value that cannot be taken."""


def number(value: object) -> float:
    """A float of one number; raises `RefusedError`."""
    if isinstance(value, str | bytes | bytearray):
        raise RefusedError(f"{value[:40]!r} is text, not a number")
    _refuse_device(value)
    try:
        return float(cast("SupportsFloat", value))
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise RefusedError(f"a {type(value).__name__} is not one number: {error}") from None


def whole(value: object) -> int:
    """A 64-bit int of an int or NumPy integer; raises `RefusedError`."""
    try:
        found = operator.index(cast("Any", value))
    except TypeError:
        raise RefusedError(f"{type(value).__name__} is not a whole number") from None
    if not -(1 << 63) <= found < 1 << 63:
        raise RefusedError(f"{found:.3e} does not fit into 64 bits")
    return found


def text(value: object, limit: int = MAX_TEXT) -> str:
    """Text of a value that can be sent: valid Unicode, at most `limit` characters."""
    if isinstance(value, Enum):
        value = value.value
    said = value if isinstance(value, str) else str(value)
    if len(said) > limit:
        said = f"{said[:limit]}… ({len(said)} characters)"
    return said if said.isascii() else said.encode("utf-8", "replace").decode()


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
    shape = getattr(values, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        return None
    return len(values)


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
    return _fit(Column.of_labels([None if value is None else text(value) for value in values]), rows)


def ids(values: Numbers, rows: int) -> Column:
    """A column of `rows` whole numbers; one number is repeated. Raises `RefusedError`."""
    if length(values) is None:
        values = [whole(values)] * rows
    column = numbers(values, rows)
    if column.dtype.endswith(("f4", "f8")) and rows:
        raise RefusedError("ids are whole numbers; these are floats")
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
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise RefusedError(f"an array of {array.dtype} is not of numbers")
        return Column.of(array)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise RefusedError(f"a {type(values).__name__} is not a column of numbers: {error}") from None


def _refuse_device(value: object) -> None:
    device = getattr(value, "device", _CPU)
    kind = device if isinstance(device, str) else getattr(device, "type", _CPU)
    if kind != _CPU:
        raise RefusedError(f"a value on {kind} would make training wait; pass it after `.cpu()`")
