"""Attribute values: OTLP's AnyValue to plain Python.

Plain means str, bool, int, float, bytes, None, lists and string-keyed dicts of these. Must not know which
attribute a value belongs to.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

Value: TypeAlias = "str | bool | int | float | bytes | Sequence[Value] | Mapping[str, Value] | None"

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_EXACT: Final = 1 << 53
"""Doubles below this are whole numbers exactly where they have no fraction."""


def as_word(value: Value) -> str | None:
    """A value that identifies something, as text: text, or a whole number; `None` for anything else."""
    if isinstance(value, str):
        return value or None
    number = as_whole(value)
    return None if number is None else str(number)


def as_whole(value: Value) -> int | None:
    """The same as a number: whole, or text of a whole number; `None` for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else None


def to_python(value: AnyValue) -> Value:
    """The plain value of an AnyValue; an unset one is `None`, and so is one by number, as profiles have."""
    kind = value.WhichOneof("value")
    if kind is None or kind == "string_value_strindex":
        return None
    if kind == "array_value":
        return [to_python(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_to_python(value.kvlist_value.values)
    plain: str | bool | int | float | bytes = getattr(value, kind)
    return plain


def attributes_to_python(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    """A plain dict of attributes; of a key given twice the last value counts."""
    values: dict[str, Value] = {}
    for pair in pairs:
        # These lines are where a request's time goes: a field that is not empty is the one that is set.
        any_value = pair.value
        plain = (
            any_value.string_value or any_value.int_value or any_value.double_value or any_value.bool_value
        )
        values[pair.key] = plain or to_python(any_value)
    return values


def to_text(value: Value) -> str:
    """A value as one string for a reader: text as it is, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return "" if value is None else msgspec.json.encode(value).decode()
