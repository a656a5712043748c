"""Lines of OTLP/JSON read by their likeness to an earlier one: the same text but for its numbers and bytes.

One exporter writes one shape for hours. Of a line that was read the general way, a shape keeps the text that
must be the same, and where each number between goes in the protobuf body: found by reading the line again
with one number changed at a time.

Rules: a shape gives what `from_json` would, or nothing: other text, a number that takes another width, one
that is not written plainly, are left to the general way. Must not know what a line means.
"""

import binascii
import math
import re
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from overwatch.journal import Signal
from overwatch.otlp.jsonl import MalformedJson, from_json

MAX_BYTES: Final = 1 << 20
"""Longest line of which a shape is kept."""
MAX_SHAPES: Final = 16
_MAX_SEEN: Final = 256
"""Texts that are remembered until they come again."""
_FIRST_SHAPES: Final = 64
_HITS_A_SHAPE: Final = 100
"""So many shapes are learned without return; more only where so many lines were read by those known."""
_TRIED: Final = 2000
_LAST_NS: Final = (1 << 63) - 1

_VARYING: Final = re.compile(
    rb'"(?:timeUnixNano|observedTimeUnixNano|startTimeUnixNano|asInt)":"(?P<fixed>\d{1,19})"'
    rb'|"intValue":"(?P<whole>\d{1,19})"'
    rb'|"bytesValue":"(?P<bytes>[A-Za-z0-9+/]+={0,2})"'
    rb'|"(?:doubleValue|asDouble)":(?P<double>-?(?:0|[1-9]\d*)\.\d+(?:[eE][+-]?\d+)?)(?=[},])'
)
_DOUBLE: Final = re.compile(rb"-?(?:0|[1-9]\d*)\.\d+(?:[eE][+-]?\d+)?")

_Packing: TypeAlias = Callable[[bytes], bytes | None]
"""What a written value is in the body; `None` where the general way must say."""


def _fixed(text: bytes) -> bytes | None:
    if not text.isdigit() or len(text) > 19:
        return None
    number = int(text)
    return number.to_bytes(8, "little") if 0 < number <= _LAST_NS else None


def _whole(text: bytes) -> bytes | None:
    if not text.isdigit() or len(text) > 19:
        return None
    number, packed = int(text), bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed) if len(packed) <= 9 else None


def _bytes(text: bytes) -> bytes | None:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None


def _double(text: bytes) -> bytes | None:
    if len(text) > 32 or _DOUBLE.fullmatch(text) is None:
        return None
    number = float(text)
    return struct.pack("<d", number) if math.isfinite(number) else None


_PACKINGS: Final[dict[str, _Packing]] = {
    "fixed": _fixed, "whole": _whole, "bytes": _bytes, "double": _double,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Varying:
    """A value that may differ."""

    before: bytes
    """Text between the value before it and this one."""
    ends: bytes
    """The one byte that follows it."""
    packing: _Packing
    start: int
    """In the body, where its bytes begin..."""
    stop: int
    """...and end."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What lines of one shape say."""

    signal: Signal
    varying: tuple[_Varying, ...]
    after: bytes
    """Text behind the last value."""
    body: bytes
    """Of the line that it was learned from."""

    def read(self, line: bytes) -> bytes | None:
        """The body of a line; `None` where it is not certainly of this shape."""
        body, at = bytearray(self.body), 0
        for one in self.varying:
            if not line.startswith(one.before, at):
                return None
            at += len(one.before)
            end = line.find(one.ends, at)
            packed = one.packing(line[at:end]) if end > at else None
            if packed is None or len(packed) != one.stop - one.start:
                return None
            body[one.start : one.stop] = packed
            at = end
        return bytes(body) if line[at:] == self.after else None


def shape_of(signal: Signal, line: bytes, body: bytes) -> Shape | None:
    """What a line that was read as this body has in common with its like; `None` where nothing varies."""
    varying, at = [], 0
    for found in _VARYING.finditer(line):
        kind = found.lastgroup or ""
        start, stop = found.span(kind)
        packed = _PACKINGS[kind](line[start:stop])
        if packed is None:
            continue
        place = _place(signal, body, found, packed)
        if place is None:
            continue
        varying.append(
            _Varying(line[at:start], line[stop : stop + 1], _PACKINGS[kind], place, place + len(packed))
        )
        at = stop
    shape = Shape(signal, tuple(varying), line[at:], body)
    return shape if varying and shape.read(line) == body else None


def _place(signal: Signal, body: bytes, found: re.Match[bytes], packed: bytes) -> int | None:
    """Where a value lies in the body; `None` where another one changes anything but its own bytes."""
    line, kind = found.string, found.lastgroup or ""
    begin, end = found.span(kind)
    other = _other(kind, line[begin:end], packed)
    if other is None:
        return None
    text, changed = other
    try:
        told = from_json(signal, line[:begin] + text + line[end:])
    except MalformedJson:
        return None
    start = next((place for place, (a, b) in enumerate(zip(body, told, strict=False)) if a != b), None)
    if start is None or len(told) != len(body):
        return None
    stop = start + len(packed)
    as_it_was = body[start:stop] == packed and told[start:stop] == changed
    return start if as_it_was and body[stop:] == told[stop:] else None


def _other(kind: str, text: bytes, packed: bytes) -> tuple[bytes, bytes] | None:
    """Another value of the same width whose first byte differs: as text, and as it is in the body."""
    if kind == "bytes":
        flipped = bytes([packed[0] ^ 0xFF]) + packed[1:]
        return binascii.b2a_base64(flipped, newline=False), flipped
    if kind == "double":
        (number,) = struct.unpack("<d", bytes([packed[0] ^ 1]) + packed[1:])
        written = repr(number).encode()
    else:
        written = str(int(text) ^ 1).encode()
    changed = _PACKINGS[kind](written)
    return None if changed is None or len(changed) != len(packed) else (written, changed)


class JsonReader:
    """`from_json` for many lines of few shapes. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        """Used last first."""
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._lines = self._learned = 0
        self.hits = 0
        """Lines that were read by their likeness."""

    @property
    def kept(self) -> int:
        """Shapes that are known now."""
        return len(self._shapes)

    def read(self, signal: Signal, line: bytes) -> bytes:
        """The protobuf body of one line of OTLP/JSON; raises `MalformedJson`."""
        self._lines += 1
        for place, shape in enumerate(self._shapes):
            body = shape.read(line) if shape.signal is signal else None
            if body is not None:
                self.hits += 1
                if place:
                    self._shapes.insert(0, self._shapes.pop(place))
                return body
        body = from_json(signal, line)
        if len(line) <= MAX_BYTES and self._is_worth_it():
            self._learn(signal, line, body)
        return body

    def _is_worth_it(self) -> bool:
        """Whether lines come again here, so that learning and looking for more is paid back."""
        is_varied = self._lines > _TRIED and self.hits < self._lines // 8
        return not is_varied and self._learned < _FIRST_SHAPES + self.hits // _HITS_A_SHAPE

    def _learn(self, signal: Signal, line: bytes, body: bytes) -> None:
        """Keep the shape of a line whose text came before."""
        text = hash((signal, _VARYING.sub(b"", line)))
        if text not in self._seen:
            self._seen[text] = None
            if len(self._seen) > _MAX_SEEN:
                self._seen.popitem(last=False)
            return
        self._learned += 1
        shape = shape_of(signal, line, body)
        if shape is not None:
            self._shapes.insert(0, shape)
            del self._shapes[MAX_SHAPES:]
