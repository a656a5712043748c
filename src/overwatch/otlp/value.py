"""Attribute values: OTLP's AnyValue to plain Python and back.

Plain means str, bool, int, float, bytes, None, lists and string-keyed dicts of these. Must not know which
attribute a value belongs to.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

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
    return {pair.key: to_python(pair.value) for pair in pairs}


def to_any(value: Value) -> AnyValue:
    """The AnyValue of a plain value; raises `ValueError` on an integer beyond 64 bits or a lone surrogate."""
    if value is None:
        return AnyValue()
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=to_pairs(value)))
    return AnyValue(array_value=ArrayValue(values=[to_any(item) for item in value]))


def to_pairs(values: Mapping[str, Value]) -> list[KeyValue]:
    """Attributes as key-value messages, in the mapping's order."""
    return [KeyValue(key=key, value=to_any(value)) for key, value in values.items()]


def to_text(value: Value) -> str:
    """A value as one string for a reader: text as it is, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return "" if value is None else msgspec.json.encode(value).decode()
