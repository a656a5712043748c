"""How a ring lies in its file: header words, forms, records. Both sides share this and nothing else.

A ring is a file of a fixed size: a page of 64-bit words, the forms (names of numbers, never overwritten),
then the records, which lap. A *mark* is one 64-bit word that says how far a side is: the sequence number of
a record and the place behind it, so one aligned store publishes or releases, and counts, at once.

Rules: all little-endian; every word has one writer, the trainer (`W_...` below 32) or the reader. A record's
head holds the mark that it publishes, so one from an earlier lap is never taken for a new one. Must not know
what payloads mean.
"""

import struct
from enum import IntEnum
from typing import Final
from zlib import crc32

MAGIC: Final = int.from_bytes(b"OWRING04", "little")
HEADER_BYTES: Final = 4096
ALIGN: Final = 8

W_MAGIC: Final = 0
W_SIZE: Final = 1
W_DATA: Final = 2
"""Where records begin, bytes from the start of the file."""
W_PID: Final = 3
W_FORMS: Final = 4
"""Bytes of forms so far."""
W_CLOSED: Final = 5
"""1 when the writer has ended by itself."""
W_PUBLISHED: Final = 8
W_DROPPED: Final = 16
"""One word a reason of `REASONS`."""
W_FOLDED: Final = 31
"""Updates that met a full ring and were folded together."""
W_RELEASED: Final = 32
W_UNFOLDED: Final = 33
"""Of the folded updates, those whose record is released."""
W_SAID: Final = 34
"""Newest `overwatch.seq` that the reader has given away."""

REASONS: Final = (
    "ring_full", "too_large", "backlog_full", "contended", "invalid",
    "device_backlog", "device_pending", "device_failed", "not_sent", "other",
)  # fmt: skip
"""Why a record was not written."""

PLACE_BITS: Final = 20
PLACE_MASK: Final = (1 << PLACE_BITS) - 1
ONE: Final = 1 << PLACE_BITS
"""What one record adds to a mark besides its size in units of `ALIGN`."""
MAX_DATA: Final = PLACE_MASK * ALIGN

HEAD: Final = struct.Struct("<IIQI4x")
"""Length with head, checksum, mark, tag."""
LAP: Final = 0xFFFF_FFFF
"""In place of a length: the next record is at the start."""
FORM: Final = struct.Struct("<II")
"""Length and checksum before a form."""
LENGTH: Final = struct.Struct("<I")

WHOLE: Final = 4096
_END: Final = 2048
_KIND_BITS: Final = 8


class Kind(IntEnum):
    """What a record's payload is; `records` has what each means."""

    FRAME = 1
    UPDATE = 2
    """Numbers of the form, moment and index."""
    COLUMNS = 3
    """Moment and index, then the columns of the form, one behind the other."""
    FOLDED = 4


def mark(sequence: int, end: int) -> int:
    """The mark of a record that ends `end` bytes behind the start of the records."""
    return sequence << PLACE_BITS | end // ALIGN


def sequence_of(mark: int) -> int:
    """The sequence number in a mark; 0 before the first record."""
    return mark >> PLACE_BITS


def end_of(mark: int) -> int:
    """The place in a mark, bytes behind the start of the records."""
    return (mark & PLACE_MASK) * ALIGN


def padded(length: int) -> int:
    """Bytes that a record of this length takes."""
    return (length + ALIGN - 1) & -ALIGN


def tag(kind: Kind, form: int = 0) -> int:
    """What a payload is, as 32 bits of the head."""
    return int(kind) | form << _KIND_BITS


def untagged(tag: int) -> tuple[int, int]:
    """Kind and form of a tag."""
    return tag & (1 << _KIND_BITS) - 1, tag >> _KIND_BITS


def checksum(payload: "bytes | memoryview", start: int) -> int:
    """CRC32 of a payload, from its tag on; of one longer than 4 KiB only of both ends.

    A torn copy shows at its end, and `crc32` of much data would release the interpreter lock.
    """
    if len(payload) <= WHOLE:
        return crc32(payload, start)
    return crc32(payload[-_END:], crc32(payload[:_END], start))
