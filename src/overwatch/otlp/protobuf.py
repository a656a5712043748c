"""Protobuf's bytes: its numbers, and how many parts a body has before a parser makes an object of each.

Numbers are varints: seven bits a byte, the lowest first. Rules: counting costs no memory and stops at its
limit; bytes that are no message end the count, and the parser reports what is wrong with them. Must not know
what a part or a number means.
"""

import re
from functools import cache
from typing import Final, TypeAlias

from google.protobuf.descriptor import Descriptor

from overwatch.journal import Signal
from overwatch.otlp import wire

_Tags: TypeAlias = "dict[int, _Tags]"
"""By the tag of a field that holds messages: the same of those messages."""

_VARINT, _FIXED64, _BYTES, _BEGIN, _END, _FIXED32 = range(6)
_LONGEST: Final = 10
"""Bytes of the longest."""
_SMALL: Final = tuple(bytes([number]) for number in range(0x80))
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OPENING: Final = (b"{", b"[", b",")


class TooManyElements(ValueError):  # noqa: N818 names the thing, as its neighbours do
    """A body with more parts than are allowed."""


def check_protobuf(signal: Signal, body: bytes, limit: int) -> None:
    """Refuse a protobuf body of more than `limit` messages; raises `TooManyElements`."""
    kind = wire.REQUESTS.get(signal)
    # A message takes at least a tag and a length.
    if kind and len(body) > 2 * limit and _count(_tags(kind.DESCRIPTOR), body, limit) > limit:
        raise _too_many(limit)


def check_json(text: bytes, limit: int) -> None:
    """Refuse JSON of more than `limit` values; raises `TooManyElements`."""
    # Text may hold the same characters: it is cut out only where they could be too many.
    if len(text) > limit and _opened(text) > limit and _opened(_TEXT.sub(b"", text)) > limit:
        raise _too_many(limit)


def _too_many(limit: int) -> TooManyElements:
    return TooManyElements(
        f"the request has more than {limit} elements; send smaller batches, or raise max_elements"
    )


def _opened(text: bytes) -> int:
    return sum(text.count(mark) for mark in _OPENING)


@cache
def _tags(descriptor: Descriptor) -> _Tags:
    return _gather(descriptor, {})


def _gather(descriptor: Descriptor, made: dict[str, _Tags]) -> _Tags:
    """Messages may hold themselves, so each is made once."""
    known = made.get(descriptor.full_name)
    if known is not None:
        return known
    tags: _Tags = {}
    made[descriptor.full_name] = tags
    for field in descriptor.fields:
        if field.message_type is not None:
            tags[field.number << 3 | _BYTES] = _gather(field.message_type, made)
    return tags


def _count(tags: _Tags, body: bytes, limit: int) -> int:
    """Messages inside of a message, up to one more than `limit`."""
    count, at, end = 0, 0, len(body)
    outer: list[tuple[_Tags, int]] = []
    while True:
        while at == end:
            if not outer:
                return count
            tags, end = outer.pop()
        tag, at = read_varint(body, at, end)
        size, at = size_of(tag & 7, body, at, end)
        if at + size > end:
            return count
        inner = tags.get(tag)
        if inner is None:
            at += size
            continue
        count += 1
        if count > limit:
            return count
        outer.append((tags, end))
        tags, end = inner, at + size


def size_of(kind: int, body: bytes, at: int, end: int) -> tuple[int, int]:
    """The bytes that a field of a wire type takes, and where they begin."""
    if kind == _BYTES:
        return read_varint(body, at, end)
    if kind == _VARINT:
        return 0, read_varint(body, at, end)[1]
    if kind in {_BEGIN, _END}:
        return 0, at
    return {_FIXED64: 8, _FIXED32: 4}.get(kind, end), at


def varint(number: int) -> bytes:
    """A number of at least 0 as it is written."""
    if number < 0x80:
        return _SMALL[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def read_varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and where it ends; one that does not end is beyond everything."""
    if at < end and body[at] < 0x80:
        return body[at], at + 1
    value = 0
    for place in range(at, min(at + _LONGEST, end)):
        value |= (body[place] & 0x7F) << 7 * (place - at)
        if body[place] < 0x80:
            return value, place + 1
    return 0, end + 1
