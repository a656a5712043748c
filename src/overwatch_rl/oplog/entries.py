"""How operations and payloads lie in the records of a log.

A record holds an entry: the length of its head, the head as msgpack, then the payloads. The record's kind is
what the entry is for. Rules: kinds and the head's places are never used for anything else; a kind that is not
known was written by a newer version. Must not know files, nor what operations do.
"""

from collections.abc import Mapping
from typing import Any, Final, Generic

import msgspec

from overwatch_rl.oplog.book import Op

OPERATIONS: Final = 1
"""What one request did."""
SNAPSHOT: Final = 2
"""The whole state after entry `number`; begins a file."""
MOVED: Final = 3
"""Payloads from a file that is given up; no operations."""

_LENGTH_BYTES: Final = 4
_MOST_PIECES: Final = 512
"""Pieces that are written in one call; the system's limit is higher."""


class Head(msgspec.Struct, Generic[Op], frozen=True, array_like=True):
    """What an entry holds."""

    number: int
    """Rises by one from entry to entry; an entry that was written twice has the same one. 0 for `MOVED`."""
    operations: tuple[Op, ...]
    sizes: dict[int, int]
    """Bytes of the payload of each item, by id, in their order."""


_encode: Final = msgspec.msgpack.Encoder().encode


def pack(number: int, operations: tuple[Op, ...], payloads: Mapping[int, bytes]) -> tuple[bytes, ...]:
    """An entry's bytes, in pieces."""
    head = _encode(Head(number, operations, {item: len(payload) for item, payload in payloads.items()}))
    pieces = (len(head).to_bytes(_LENGTH_BYTES, "little"), head, *payloads.values())
    return pieces if len(pieces) <= _MOST_PIECES else (b"".join(pieces),)


class Unpacker(Generic[Op]):
    """Reads entries of one kind of operations."""

    def __init__(self, operation: Any) -> None:
        """`operation` is the closed union."""
        self._decode = msgspec.msgpack.Decoder(Head[operation]).decode

    def unpack(self, data: bytes) -> tuple[Head[Op], dict[int, bytes]]:
        """An entry's head and payloads. Raises `ValueError` where it is not one."""
        start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
        head: Head[Op] = self._decode(memoryview(data)[_LENGTH_BYTES:start])
        payloads = {}
        for item, size in head.sizes.items():
            payloads[item] = data[start : start + size]
            start += size
        if start != len(data):
            raise ValueError(f"an entry of {len(data)} bytes declares that it has {start}")
        return head, payloads
