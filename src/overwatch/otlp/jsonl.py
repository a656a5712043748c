"""OTLP/JSON, one request a line, by the rules of the OTLP specification.

Rules: lowerCamelCase names, hex ids, integer enums, 64-bit integers as strings, base64 bytes, non-finite
doubles as strings. Reading ignores unknown fields and is strict about everything else; every body that
parses as protobuf survives the round trip. Must not know what the messages mean.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Final, NamedTuple, TypeAlias

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from overwatch.journal import Signal
from overwatch.otlp import wire

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
_Tree: TypeAlias = "str | int | float | bool | msgspec.Raw | list[_Tree] | dict[str, _Tree] | None"
"""What is written: parts may be JSON text already."""

MAX_DEPTH: Final = 101
"""Deepest nesting of messages; the protobuf parser's own limit."""

_ITEMS: Final = frozenset({"logRecords", "dataPoints", "spans"})
_MANY: Final = 256
"""Items, and all lists longer than this, become text one by one: a tree of all takes far more memory."""

_IDS: Final = frozenset({"trace_id", "span_id", "parent_span_id"})
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WIDE: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_NARROW: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_ENUM,
    }
)


class MalformedJson(ValueError):  # noqa: N818 names the thing; part of the fixed contract
    """The line is no OTLP/JSON; the message names the path."""


def to_json(signal: Signal, body: bytes) -> bytes:
    """One line of OTLP/JSON without the newline; raises `MalformedBody` on no protobuf."""
    return text_of(wire.parse(signal, body))


def text_of(message: Message) -> bytes:
    """A message as OTLP/JSON."""
    return msgspec.json.encode(_write(message))


def from_json(signal: Signal, line: bytes) -> bytes:
    """The protobuf body of one line of OTLP/JSON; raises `MalformedJson`."""
    kind = wire.REQUESTS.get(signal)
    if kind is None:
        raise MalformedJson(f"signal {signal.value!r} has no OTLP message; use logs, metrics or traces")
    try:
        tree: Json = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedJson(f"$: {error}") from None
    message = kind()
    try:
        _read(message, tree, 1)
    except _Misread as error:
        raise MalformedJson(f"${''.join(reversed(error.path))}: {error.reason}") from None
    return message.SerializeToString()


class _Writer(NamedTuple):
    name: str
    convert: Callable[..., _Tree] | None
    """`None` where the value is JSON already."""
    many: bool


@cache
def _writers(descriptor: Descriptor) -> dict[int, _Writer]:
    return {
        field.number: _Writer(field.json_name, _writer(field), field.is_repeated)
        for field in descriptor.fields
    }


def _writer(field: FieldDescriptor) -> Callable[..., _Tree] | None:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _write
    if field.type == FieldDescriptor.TYPE_BYTES:
        return bytes.hex if field.name in _IDS else _base64
    if field.cpp_type in _WIDE:
        return str
    return _double if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE else None


def _write(message: Message) -> _Tree:
    writers = _writers(message.DESCRIPTOR)
    tree: dict[str, _Tree] = {}
    for field, value in message.ListFields():
        name, convert, many = writers[field.number]
        if convert is None:
            tree[name] = list(value) if many else value
        elif not many:
            tree[name] = convert(value)
        elif name in _ITEMS or len(value) > _MANY:
            tree[name] = _as_text(value, convert)
        else:
            tree[name] = [convert(item) for item in value]
    return tree


def _as_text(items: Iterable[object], convert: Callable[..., _Tree]) -> msgspec.Raw:
    """A list of at least one item."""
    text = bytearray(b"[")
    for item in items:
        text += msgspec.json.encode(convert(item))
        text += b","
    text[-1:] = b"]"
    return msgspec.Raw(bytes(text))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class _Misread(Exception):  # noqa: N818 becomes a `MalformedJson` where the whole path is known
    """A value that cannot be read."""

    def __init__(self, reason: str, *path: str) -> None:
        self.reason = reason
        self.path = list(path)
        """From the value outwards."""


class _Reader(NamedTuple):
    name: str
    convert: Callable[[Json], object] | None
    """`None` where the value is a message."""
    many: bool


@cache
def _readers(descriptor: Descriptor) -> dict[str, _Reader]:
    return {
        field.json_name: _Reader(field.name, _reader(field), field.is_repeated) for field in descriptor.fields
    }


def _reader(field: FieldDescriptor) -> Callable[[Json], object] | None:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return None
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _read_id if field.name in _IDS else _read_base64
    if field.cpp_type in _WIDE or field.cpp_type in _NARROW:
        return partial(_read_int, words=field.cpp_type != FieldDescriptor.CPPTYPE_ENUM)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return _read_double
    return _read_bool if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else _read_text


def _read(message: Message, tree: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _Misread(f"nested deeper than {MAX_DEPTH} messages")
    if not isinstance(tree, dict):
        raise _Misread(f"expected an object, got {_kind(tree)}")
    readers = _readers(message.DESCRIPTOR)
    for key, value in tree.items():
        reader = readers.get(key)
        if reader is None or value is None:
            continue
        try:
            _read_field(message, reader, value, depth)
        except _Misread as error:
            error.path.append(f".{key}")
            raise
        except (ValueError, TypeError, OverflowError) as error:
            raise _Misread(str(error), f".{key}") from None


def _read_field(message: Message, reader: _Reader, value: Json, depth: int) -> None:
    name, convert, many = reader
    if convert is not None:
        if many:
            getattr(message, name).extend([convert(item) for item in _items(value)])
        else:
            setattr(message, name, convert(value))
        return
    target = getattr(message, name)
    if not many:
        target.SetInParent()
        _read(target, value, depth + 1)
        return
    for position, item in enumerate(_items(value)):
        try:
            _read(target.add(), item, depth + 1)
        except _Misread as error:
            error.path.append(f"[{position}]")
            raise


def _items(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise _Misread(f"expected an array, got {_kind(value)}")
    return value


def _read_int(value: Json, *, words: bool) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    digits = value.removeprefix("-") if isinstance(value, str) and words else ""
    if isinstance(value, str) and digits.isascii() and digits.isdigit() and len(digits) <= 20:
        return int(value)
    raise ValueError(f"expected an integer, got {_kind(value)}")


def _read_double(value: Json) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        word = _WORDS.get(value)
        if word is not None:
            return word
        if _NUMBER.fullmatch(value) and math.isfinite(float(value)):
            return float(value)
    raise ValueError(f"expected a number, got {_kind(value)}")


def _read_bool(value: Json) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, got {_kind(value)}")


def _read_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"expected a string, got {_kind(value)}")


def _read_id(value: Json) -> bytes:
    try:
        return binascii.unhexlify(_read_text(value))
    except binascii.Error:
        raise ValueError(f"expected hex digits, got {_kind(value)}") from None


def _read_base64(value: Json) -> bytes:
    try:
        return base64.b64decode(_read_text(value), validate=True)
    except binascii.Error:
        raise ValueError(f"expected base64 with padding, got {_kind(value)}") from None


def _kind(value: Json) -> str:
    """A value as an error shows it: short, whatever its size."""
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
