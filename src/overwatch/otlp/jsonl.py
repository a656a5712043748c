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
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

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

_SHORT: Final = 64
"""Bytes of an attribute that is remembered at most..."""
_REMEMBERED: Final = 4096
"""...and how many are."""
_WRITTEN: Final[dict[bytes, bytes]] = {}
"""Text of attributes that came before, by their bytes: most of a log's attributes are said over and over."""

_IDS: Final = frozenset({"trace_id", "span_id", "parent_span_id"})
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DEEPER: Final = 3
"""From an attribute to those in its value there are so many messages."""
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
    _read(message, tree, "$", 1)
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
        kind = field.message_type
        return _write if kind is None else _SHORT_CUTS.get(kind.full_name, _write)
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
        elif convert is _write_pair:
            tree[name] = _pairs_as_text(value)
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


def _pairs_as_text(pairs: Iterable[KeyValue]) -> msgspec.Raw:
    """A list of at least one attribute; what was written before is not written again."""
    texts = []
    for pair in pairs:
        told = pair.SerializeToString()
        text = _WRITTEN.get(told)
        if text is None:
            text = msgspec.json.encode(_write_pair(pair))
            if len(told) <= _SHORT:
                if len(_WRITTEN) >= _REMEMBERED:
                    _WRITTEN.clear()
                _WRITTEN[told] = text
        texts.append(text)
    return msgspec.Raw(b"[%b]" % b",".join(texts))


def _write_pair(pair: KeyValue) -> _Tree:
    """As `_write`, for the message that most of a request is made of."""
    key, value = pair.key, pair.value
    kind = value.WhichOneof("value")
    # An empty or an absent value, and a key by number, are rare: the general way tells them apart.
    if kind is None or not key or pair.key_strindex:
        return _write(pair)
    return {"key": key, "value": _write_kind(value, kind)}


def _write_any(value: AnyValue) -> _Tree:
    kind = value.WhichOneof("value")
    return {} if kind is None else _write_kind(value, kind)


def _write_kind(value: AnyValue, kind: str) -> _Tree:
    if kind == "string_value":
        return {"stringValue": value.string_value}
    if kind == "int_value":
        return {"intValue": str(value.int_value)}
    if kind == "double_value":
        return {"doubleValue": _double(value.double_value)}
    if kind == "bool_value":
        return {"boolValue": value.bool_value}
    return _write(value)


_SHORT_CUTS: Final[dict[str, Callable[..., _Tree]]] = {
    KeyValue.DESCRIPTOR.full_name: _write_pair,
    AnyValue.DESCRIPTOR.full_name: _write_any,
}
"""Writers of messages that come by the thousand; they give what `_write` gives."""


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class _Pairs(Protocol):
    """A repeated field of attributes."""

    def add(self) -> KeyValue: ...


class _Reader(NamedTuple):
    name: str
    convert: Callable[[Json], object] | None
    """`None` where the value is a message."""
    many: bool
    pairs: bool
    """A list of attributes, which most of a request is made of."""


@cache
def _readers(descriptor: Descriptor) -> dict[str, _Reader]:
    return {
        field.json_name: _Reader(field.name, _reader(field), field.is_repeated, _holds_pairs(field))
        for field in descriptor.fields
    }


def _holds_pairs(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and field.is_repeated and kind.full_name == KeyValue.DESCRIPTOR.full_name


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


def _read(message: Message, tree: Json, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise MalformedJson(f"{path}: nested deeper than {MAX_DEPTH} messages")
    if not isinstance(tree, dict):
        raise MalformedJson(f"{path}: expected an object, got {_kind(tree)}")
    readers = _readers(message.DESCRIPTOR)
    for key, value in tree.items():
        reader = readers.get(key)
        if reader is None or value is None:
            continue
        if reader.convert is None:
            _read_messages(message, reader, value, f"{path}.{key}", depth)
        else:
            _read_values(message, reader, value, f"{path}.{key}")


def _read_messages(message: Message, reader: _Reader, value: Json, path: str, depth: int) -> None:
    target = getattr(message, reader.name)
    if not reader.many:
        target.SetInParent()
        _read(target, value, path, depth + 1)
        return
    if reader.pairs:
        _read_pairs(target, _items(value, path), path, depth + 1)
        return
    for position, item in enumerate(_items(value, path)):
        _read(target.add(), item, f"{path}[{position}]", depth + 1)


def _read_pairs(target: "_Pairs", items: list[Json], path: str, depth: int) -> None:
    """As `_read` for each; what is not of the usual form goes the general way, which says what is wrong."""
    for position, item in enumerate(items):
        pair = target.add()
        if not _is_read(pair, item, (path, position), depth):
            pair.Clear()
            _read(pair, item, f"{path}[{position}]", depth)


def _is_read(pair: KeyValue, item: Json, where: tuple[str, int], depth: int) -> bool:
    """Read an attribute with a key and one value of a frequent kind; `False` where it is anything else."""
    if not isinstance(item, dict) or len(item) != 2 or depth + _DEEPER > MAX_DEPTH:
        return False
    key, value = item.get("key"), item.get("value")
    if not isinstance(key, str) or not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, inner),) = value.items()
    try:
        pair.key = key
        if kind == "kvlistValue":
            if not isinstance(inner, dict) or len(inner) != 1:
                return False
            values = inner.get("values")
            if not isinstance(values, list):
                return False
            pair.value.kvlist_value.SetInParent()
            path = f"{where[0]}[{where[1]}].value.kvlistValue.values"
            _read_pairs(pair.value.kvlist_value.values, values, path, depth + _DEEPER)
            return True
        known = _VALUES.get(kind)
        if known is None:
            return False
        setattr(pair.value, known[0], known[1](inner))
    except MalformedJson:
        raise
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def _read_values(message: Message, reader: _Reader, value: Json, path: str) -> None:
    convert = reader.convert
    if convert is None:
        raise TypeError(f"{path} is a message, not a value")
    try:
        if reader.many:
            getattr(message, reader.name).extend([convert(item) for item in _items(value, path)])
        else:
            setattr(message, reader.name, convert(value))
    except MalformedJson:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        raise MalformedJson(f"{path}: {error}") from None


def _items(value: Json, path: str) -> list[Json]:
    if not isinstance(value, list):
        raise MalformedJson(f"{path}: expected an array, got {_kind(value)}")
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


_VALUES: Final[dict[str, tuple[str, Callable[[Json], object]]]] = {
    "stringValue": ("string_value", _read_text),
    "bytesValue": ("bytes_value", _read_base64),
    "intValue": ("int_value", partial(_read_int, words=True)),
    "doubleValue": ("double_value", _read_double),
    "boolValue": ("bool_value", _read_bool),
}
"""Kinds of values in attributes that are read at once."""


def _kind(value: Json) -> str:
    """A value as an error shows it: short, whatever its size."""
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
