"""The frame around the items of a request, walked without a parser.

Must not know what lies in the fields.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from overwatch.otlp.varint import read_varint

LONGEST_SIZE: Final = 4
"""Bytes of the longest length that is understood here."""


FIRST: Final = 0x0A
SECOND: Final = 0x12
THIRD: Final = 0x1A
"""Tags of a message's first three fields, where they hold bytes."""


Place: TypeAlias = tuple[int, int]
"""Where something begins and ends."""


class OddError(Exception):
    """Bytes that are not written in the one plain way; the general path reads them."""


def fields_of(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Fields that hold bytes, all tags of one byte: the tag, and where what it holds begins and ends.

    Raises `OddError`.
    """
    while at < end:
        tag = body[at]
        size, at = size_at(body, at + 1, end)
        if tag & 0x87 != 2:
            raise OddError
        yield tag, at, at + size
        at += size


def size_at(body: bytes, at: int, end: int) -> tuple[int, int]:
    """A length that ends before `end`, and where what has it begins; raises `OddError`."""
    if at + 1 < end and body[at + 1] < 0x80 <= body[at]:
        size, begin = body[at] & 0x7F | body[at + 1] << 7, at + 2
    else:
        size, begin = read_varint(body, at, end)
    # Parsers refuse lengths that are written longer than any needs to be.
    if begin + size > end or begin - at > LONGEST_SIZE:
        raise OddError
    return size, begin
