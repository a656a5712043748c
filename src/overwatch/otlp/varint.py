"""Numbers as protobuf writes them: seven bits a byte, the lowest first.

Must not know what a number means.
"""

from typing import Final

_LONGEST: Final = 10
"""Bytes of the longest."""
_SMALL: Final = tuple(bytes([number]) for number in range(0x80))


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
