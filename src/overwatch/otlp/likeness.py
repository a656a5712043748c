"""Text of OTLP/JSON read by its likeness to an earlier one: the same but for its numbers, bytes and words.

Of a text that was read the general way a shape keeps what must be the same, and where each value between goes
in the protobuf message: found by reading the text once more with values in it that occur nowhere else.

Rules: a shape gives what the general way would, or nothing: other text, and a value that is not written
plainly, are left to the general way. Must not know what a text means.
"""

import binascii
import math
import random
import re
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, TypeAlias

from overwatch.otlp.varint import read_varint, varint

_LAST: Final = (1 << 63) - 1
_SURE: Final = 18
"""Digits of a number that is surely smaller."""
_DOUBLE: Final = re.compile(rb"-?(?:0|[1-9]\d*)\.\d+(?:[eE][+-]?\d+)?")
_PLAIN: Final = re.compile(rb"[ !#-\[\]-~]*")
_VALUE: Final = re.compile(
    rb'"(?:timeUnixNano|observedTimeUnixNano|startTimeUnixNano|asInt)":"(?P<fixed>\d{1,19})"'
    rb'|"(?:traceId|spanId|parentSpanId)":"(?P<id>[0-9a-fA-F]+)"'
    rb'|"intValue":"(?P<whole>-?\d{1,19})"'
    rb'|"bytesValue":"(?P<bytes>[A-Za-z0-9+/]*={0,2})"'
    rb'|"stringValue":"(?P<words>[ !#-\[\]-~]*)"'
    rb'|"(?:doubleValue|asDouble)":(?P<double>-?(?:0|[1-9]\d*)\.\d+(?:[eE][+-]?\d+)?)(?=[},])'
)
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5

_Packing: TypeAlias = Callable[[bytes], bytes | None]
"""What a written value is in the message, its length included; `None` where the general way must say."""
_Parts: TypeAlias = "list[bytes | int | _Message]"
"""Bytes as they are, values by their number, and messages with some in them."""


class _Message(NamedTuple):
    tag: bytes
    parts: _Parts


class Value(NamedTuple):
    """A value in a text."""

    kind: str
    start: int
    stop: int


def _fixed(text: bytes) -> bytes | None:
    if not text.isdigit() or len(text) > 19:
        return None
    number = int(text)
    return number.to_bytes(8, "little") if 0 < number <= _LAST else None


def _whole(text: bytes) -> bytes | None:
    if text.isdigit() and len(text) <= _SURE:
        return varint(int(text))
    if not text.removeprefix(b"-").isdigit() or len(text) > 20:
        return None
    number = int(text)
    if not -_LAST - 1 <= number <= _LAST:
        return None
    return varint(number if number >= 0 else number + (1 << 64))


def _id(text: bytes) -> bytes | None:
    try:
        data = binascii.unhexlify(text)
    except binascii.Error:
        return None
    return varint(len(data)) + data if data else None


def _bytes(text: bytes) -> bytes | None:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None
    return varint(len(data)) + data


def _words(text: bytes) -> bytes | None:
    return None if _PLAIN.fullmatch(text) is None else varint(len(text)) + text


def _double(text: bytes) -> bytes | None:
    if len(text) > 32 or _DOUBLE.fullmatch(text) is None:
        return None
    number = float(text)
    return struct.pack("<d", number) if math.isfinite(number) else None


_PACKINGS: Final[dict[str, _Packing]] = {
    "fixed": _fixed, "whole": _whole, "id": _id, "bytes": _bytes, "words": _words, "double": _double,
}  # fmt: skip
SOME: Final = ("bytes", "words")
"""Kinds of values that are mostly the same; those that are not have to be named."""


class Shape:
    """What texts of one shape say. Not safe for several threads at once."""

    def __init__(self, text: bytes, values: Sequence[Value], parts: _Parts) -> None:
        self._places = []
        at = 0
        for value in values:
            self._places.append((text[at : value.start], text[value.stop : value.stop + 1]))
            at = value.stop
        self._packings = [_PACKINGS[value.kind] for value in values]
        self._after = text[at:]
        self._parts = parts
        self._sizes: list[int] = []
        """Bytes of each value in the message written last..."""
        self._pieces: list[bytes] = []
        """...which these make up: what is before each value and the value, in turn, then what is behind."""
        self._order: list[int] = []
        """The values in the order in which they come in it."""

    def read(self, text: bytes, at: int = 0) -> tuple[bytes, int] | None:
        """The message of a text that begins at a place, and where it ends; `None` where it is not certain."""
        told = []
        for before, ends in self._places:
            if not text.startswith(before, at):
                return None
            start = at + len(before)
            at = text.find(ends, start)
            if at < 0:
                return None
            told.append(text[start:at])
        if not text.startswith(self._after, at):
            return None
        packed = []
        for packing, word in zip(self._packings, told, strict=True):
            one = packing(word)
            if one is None:
                return None
            packed.append(one)
        return self._message(packed), at + len(self._after)

    def _message(self, packed: list[bytes]) -> bytes:
        sizes = [len(one) for one in packed]
        if sizes != self._sizes:
            return self._first(packed, sizes)
        pieces = self._pieces
        pieces[1::2] = [packed[number] for number in self._order]
        return b"".join(pieces)

    def _first(self, packed: list[bytes], sizes: list[int]) -> bytes:
        """A message whose values are of other sizes than before."""
        starts = [0] * len(packed)
        size, pieces = _written(self._parts, packed, starts)
        message = b"".join(reversed(pieces))
        # They were written from the end, since a message says its size before what is in it.
        order = sorted(range(len(packed)), key=lambda number: -starts[number])
        self._pieces, at = [], 0
        for number in order:
            start = size - starts[number]
            self._pieces += [message[at:start], packed[number]]
            at = start + sizes[number]
        self._pieces.append(message[at:])
        self._sizes, self._order = sizes, order
        return message


def _written(
    parts: _Parts, packed: Sequence[bytes], places: list[int], behind: int = 0
) -> tuple[int, list[bytes]]:
    """The bytes from the begin of a message on with `behind` after it, and its pieces, the last one first.

    Sets for each value how many bytes there are from its begin on.
    """
    pieces: list[bytes] = []
    for part in reversed(parts):
        if isinstance(part, bytes):
            pieces.append(part)
            behind += len(part)
        elif isinstance(part, int):
            pieces.append(packed[part])
            behind += len(packed[part])
            places[part] = behind
        else:
            size, inner = _written(part.parts, packed, places, behind)
            head = part.tag + varint(size - behind)
            pieces += inner
            pieces.append(head)
            behind = size + len(head)
    return behind, pieces


def values_in(text: bytes) -> list[Value]:
    """The values that may differ in a text, in order."""
    return [
        Value(kind, *found.span(kind)) for found in _VALUE.finditer(text) for kind in (found.lastgroup or "",)
    ]


def skeleton_of(text: bytes, values: Sequence[Value]) -> int:
    """A number that texts of the same shape share."""
    parts, at = [], 0
    for value in values:
        parts += [text[at : value.start], value.kind.encode()]
        at = value.stop
    return hash((b"\0".join(parts), text[at:]))


def shape_of(
    text: bytes, values: Sequence[Value], parse: Callable[[bytes], bytes], named: Collection[int] = ()
) -> Shape | None:
    """What a text has in common with its like; `None` where that cannot be told.

    `parse` reads the general way. Of kinds that are mostly the same only the values in these places vary.
    """
    varying = [value for at, value in enumerate(values) if value.kind not in SOME or at in named]
    marks = [_mark(value.kind) for value in varying]
    told = parse(_marked(text, varying, [written for written, _ in marks]))
    places = {told.find(packed): (number, len(packed)) for number, (_, packed) in enumerate(marks)}
    if not varying or len(places) < len(varying) or any(told.count(packed) != 1 for _, packed in marks):
        return None
    parts = _parts(told, 0, len(told), places)
    if parts is None:
        return None
    shape = Shape(text, varying, parts)
    again = _marked(text, varying, [_mark(value.kind)[0] for value in varying])
    for other in (text, again):
        if shape.read(other) != (parse(other), len(other)):
            return None
    return shape


def _marked(text: bytes, values: Sequence[Value], written: Sequence[bytes]) -> bytes:
    """A text with other values."""
    parts, at = [], 0
    for value, word in zip(values, written, strict=True):
        parts += [text[at : value.start], word]
        at = value.stop
    return b"".join([*parts, text[at:]])


_CHANCE: Final = random.Random()  # noqa: S311 marks that occur nowhere else, no secrets
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def _mark(kind: str) -> tuple[bytes, bytes]:
    """A value of a kind that is found nowhere else: as it is written, and as it is in a message."""
    match kind:
        case "bytes":
            written = binascii.b2a_base64(_CHANCE.randbytes(18), newline=False)
        case "id":
            written = binascii.hexlify(_CHANCE.randbytes(18))
        case "words":
            written = bytes(_CHANCE.choices(_DIGITS, k=18))
        case "double":
            written = repr(_CHANCE.uniform(1e3, 2e3)).encode()
        case _:
            written = b"%d" % _CHANCE.randrange(1 << 57, 1 << 62)
    packed = _PACKINGS[kind](written)
    if packed is None:
        raise AssertionError(f"a mark of kind {kind} must be a plain value: {written!r}")
    return written, packed


def _parts(told: bytes, at: int, end: int, places: dict[int, tuple[int, int]]) -> "_Parts | None":
    """A message between two places with its values named; `None` where it is not made as one."""
    parts: _Parts = []
    while at < end:
        begin = at
        key, at = read_varint(told, at, end)
        number, size = places.get(at, (-1, 0))
        kind = key & 7
        if number >= 0:
            parts += [told[begin:at], number]
            at += size
        elif kind in (_FIXED64, _FIXED32, _VARINT):
            at = read_varint(told, at, end)[1] if kind == _VARINT else at + (8 if kind == _FIXED64 else 4)
            parts.append(told[begin:at])
        elif kind == _SIZED:
            tag = told[begin:at]
            length, at = read_varint(told, at, end)
            if any(at <= place < at + length for place in places):
                inner = _parts(told, at, at + length, places)
                if inner is None:
                    return None
                parts.append(_Message(tag, inner))
            else:
                parts.append(told[begin : at + length])
            at += length
        else:
            return None
    return _joined(parts) if at == end else None


def _joined(parts: _Parts) -> _Parts:
    """The same with bytes that follow one another as one."""
    joined: _Parts = []
    for part in parts:
        if isinstance(part, bytes) and joined and isinstance(joined[-1], bytes):
            joined[-1] += part
        else:
            joined.append(part)
    return joined
