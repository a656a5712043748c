"""One record in a file: its header, its checks, and finding it among damaged bytes.

Rules: a header and its payload are checked apart, so that a damaged payload costs its own record only; after
a damaged header the next whole record is searched for. The checks are salted with a number from the file's
name: a payload that holds a copy of another file's records is never taken for records. Must not know files'
names or which records are wanted by whom.

Layout, little-endian: magic 4 bytes, CRC-32 of the rest of the header u32, payload bytes u32, CRC-32 of the
payload u32, sequence u64, stamp u64, kind u8; then the payload.
"""

import os
import struct
from typing import Final

import msgspec

from overwatch.deflate import fast_zlib

_MAGIC: Final = b"\xf5OWj"
_CHECK: Final = struct.Struct("<I")
_FIELDS: Final = struct.Struct("<IIQQB")
_FIELDS_AT: Final = len(_MAGIC) + _CHECK.size
HEADER_BYTES: Final = _FIELDS_AT + _FIELDS.size
_CHUNK: Final = 256 << 10


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a log."""

    sequence: int
    """Rises by one from record to record; a gap is a lost record."""
    stamp: int
    """Unix nanoseconds, as the writer gave them."""
    kind: int
    """0..255, the writer's own."""
    payload: bytes


class Header(msgspec.Struct, frozen=True):
    """What lies before a payload."""

    length: int
    """Bytes of the payload."""
    check: int
    """CRC-32 of the payload."""
    sequence: int
    stamp: int
    kind: int


def pack(header: Header, salt: int) -> bytes:
    """A header's bytes."""
    fields = _FIELDS.pack(header.length, header.check, header.sequence, header.stamp, header.kind)
    return _MAGIC + _CHECK.pack(fast_zlib.crc32(fields, salt)) + fields


def unpack(data: bytes, salt: int) -> Header | None:
    """The header at the beginning of `data`, `None` when there is none."""
    if len(data) < HEADER_BYTES or not data.startswith(_MAGIC):
        return None
    fields = data[_FIELDS_AT:HEADER_BYTES]
    if _CHECK.unpack_from(data, len(_MAGIC))[0] != fast_zlib.crc32(fields, salt):
        return None
    return Header(*_FIELDS.unpack(fields))


class Scanner:
    """Whole records of one file, in order."""

    def __init__(self, fd: int, salt: int, offset: int = 0) -> None:
        self._fd = fd
        self._salt = salt
        self._held = b""
        self._held_at = 0
        self.offset = offset
        """Where the search goes on: after the last record found."""

    def next(self, limit: int, wanted: int = 0) -> Record | None:
        """The next whole record numbered `wanted` or later that ends at or before byte `limit`.

        Raises `OSError` when the file cannot be read.
        """
        while self.offset + HEADER_BYTES <= limit:
            header = unpack(self._bytes(self.offset, HEADER_BYTES, limit), self._salt)
            if header is None or self.offset + HEADER_BYTES + header.length > limit:
                self._seek(limit)
                continue
            start = self.offset + HEADER_BYTES
            self.offset = start + header.length
            if header.sequence < wanted:
                continue
            payload = self._bytes(start, header.length, limit)
            if fast_zlib.crc32(payload, self._salt) == header.check:
                return Record(sequence=header.sequence, stamp=header.stamp, kind=header.kind, payload=payload)
        return None

    def _seek(self, limit: int) -> None:
        """Go to the next place that may be a header."""
        self.offset += 1
        while self.offset + HEADER_BYTES <= limit:
            data = self._bytes(self.offset, min(_CHUNK, limit - self.offset), limit)
            found = data.find(_MAGIC)
            if found >= 0:
                self.offset += found
                return
            if len(data) < len(_MAGIC):
                break
            self.offset += len(data) - len(_MAGIC) + 1
        self.offset = max(self.offset, limit)

    def _bytes(self, offset: int, size: int, limit: int) -> bytes:
        """Bytes of the file; nothing at or after `limit` is read, as it may still change."""
        start = offset - self._held_at
        if start < 0 or start + size > len(self._held):
            self._held = os.pread(self._fd, min(max(size, _CHUNK), limit - offset), offset)
            self._held_at, start = offset, 0
        return self._held[start : start + size]
