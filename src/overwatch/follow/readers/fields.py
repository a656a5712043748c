"""Messages of protobuf, field by field, without their classes.

Rules: a message that is cut or is none raises `ValueError`. Must not know which messages there are.
"""

import struct
from collections.abc import Iterator

from overwatch.otlp.protobuf import read_varint, size_of


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: an integer of a varint, the bytes of everything else."""
    at, end = 0, len(message)
    while at < end:
        tag, at = read_varint(message, at, end)
        if tag & 7 == 0:
            value, at = read_varint(message, at, end)
            found: int | bytes = value
        else:
            size, at = size_of(tag & 7, message, at, end)
            found = message[at : at + size]
            at += size
        if at > end:
            raise ValueError("a message is cut off")
        yield tag >> 3, found


def text(value: int | bytes) -> str:
    """A field of text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def floating(value: int | bytes, kind: str) -> float:
    """A field of a number: `<d` or `<f`. Raises `ValueError`."""
    try:
        (found,) = struct.unpack(kind, value if isinstance(value, bytes) else b"")
    except struct.error as error:
        raise ValueError(str(error)) from None
    return float(found)
