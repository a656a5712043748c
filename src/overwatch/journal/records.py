"""Records in the files of a log: their layout and checks, the files' names and order, and reading them.

Rules: a header and its payload are checked apart, so that a damaged payload costs its own record only; after
a damaged header the next whole record is searched for. The checks are salted with a number from the file's
name: a payload that holds a copy of another file's records is never taken for records. What is damaged, gone
or unreadable is passed over by a reader and counted by the gap in the numbers; nothing is raised. Must not
know who writes, nor which records are wanted.

A file's name is `<log>-<number>-<first sequence>-<salt>.ow1`: numbers rise from file to file, the salt is
that of its checks, `ow1` is the version of the layout.

Layout, little-endian: magic 4 bytes, CRC-32 of the rest of the header u32, payload bytes u32, CRC-32 of the
payload u32, sequence u64, stamp u64, kind u8; then the payload.
"""

import contextlib
import os
import re
import secrets
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from overwatch.deflate import fast_zlib
from overwatch.journal.folder import Folder

VERSION: Final = 1
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


class LogVersionError(RuntimeError):
    """The log was written by a newer version; it is left as it is."""


@dataclass(slots=True, kw_only=True)
class Part:
    """One file of a log."""

    name: str
    number: int
    first: int
    """Sequence of its first record, if it has one."""
    salt: int
    end: int
    """Bytes of whole records; others may follow where a write failed."""


class Parts:
    """A log's files, oldest first; what only counts them may be asked from any thread."""

    def __init__(self, folder: Folder, log: str) -> None:
        """List them, sizes taken for ends. Raises `LogVersionError`, or `OSError`."""
        self._log = log
        sizes = {name: folder.stat(name).st_size for name in folder.names() if name.startswith(f"{log}-")}
        self.all = parts_in(sizes, log, folder.path)
        self._last_number = self.all[-1].number if self.all else 0

    @property
    def newest(self) -> Part:
        """The one that is written to; there must be one."""
        return self.all[-1]

    def begin(self, first: int) -> Part:
        """Name a new file, not yet part of the log."""
        self._last_number += 1
        salt = secrets.randbits(32)
        name = f"{self._log}-{self._last_number:010d}-{first:020d}-{salt:08x}.ow{VERSION}"
        return Part(name=name, number=self._last_number, first=first, salt=salt, end=0)

    def following(self, number: int) -> Part | None:
        """The oldest file after file `number`."""
        return next((part for part in tuple(self.all) if part.number > number), None)

    def holding(self, sequence: int) -> Part | None:
        """The file that a record would lie in, or else the oldest."""
        held = [part for part in tuple(self.all) if part.first <= sequence]
        return held[-1] if held else self.following(0)

    def bytes_after(self, number: int, offset: int) -> int:
        """Bytes of records after a place in file `number`."""
        return sum(
            part.end - (offset if part.number == number else 0)
            for part in tuple(self.all)
            if part.number >= number
        )


def parts_in(sizes: Mapping[str, int], log: str, where: Path) -> list[Part]:
    """The files of a log among these names, oldest first; sizes are taken for ends.

    Raises `LogVersionError`; `where` is what it names.
    """
    shape = re.compile(rf"{re.escape(log)}-(\d{{10}})-(\d{{20}})-([0-9a-f]{{8}})\.ow(\d+)")
    found = []
    for name, size in sizes.items():
        match = shape.fullmatch(name)
        if match is None:
            continue
        number, first, salt, version = match.groups()
        if int(version) > VERSION:
            raise LogVersionError(
                f"{where / name} was written by a newer version of Overwatch; install that version again, or "
                "restore a copy of the folder from before"
            )
        found.append(Part(name=name, number=int(number), first=int(first), salt=int(salt, 16), end=size))
    return sorted(found, key=lambda part: part.number)


class Reader:
    """Made by `Log.reader`; used by the log's own thread."""

    def __init__(self, parts: Parts, folder: Folder, start: int) -> None:
        self._parts = parts
        self._folder = folder
        self._part: Part | None = None
        self._scanner: Scanner | None = None
        self._fd = -1
        self.position = start
        """Sequence of the next record to read."""
        self.lost = 0
        """Records passed over because they were damaged or gone."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of the log from this place on; all of them before the first read."""
        if self._part is None:
            return self._parts.bytes_after(0, 0)
        offset = self._part.end if self._scanner is None else self._scanner.offset
        return self._parts.bytes_after(self._part.number, offset)

    def offset_of(self, record: Record) -> int:
        """Where in its file the record begins that `next` returned last."""
        offset = 0 if self._scanner is None else self._scanner.offset
        return offset - HEADER_BYTES - len(record.payload)

    def next(self) -> Record | None:
        """The next whole record; `None` at the end of the log, for now."""
        if self._part is None:
            self._enter(self._parts.holding(self.position))
        while self._part is not None:
            record = self._found(self._part)
            following = self._parts.following(self._part.number)
            if record is not None and (following is None or record.sequence < following.first):
                self.lost += record.sequence - self.position
                self.position = record.sequence + 1
                return record
            if following is None:
                return None
            self._enter(following)
        return None

    def close(self) -> None:
        """Let go of the file; the place is kept, nothing more is read from this file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._scanner = -1, None

    def _found(self, part: Part) -> Record | None:
        if self._scanner is None:
            self._enter(part)
        if self._scanner is not None:
            with contextlib.suppress(OSError):
                return self._scanner.next(part.end, self.position)
        return None

    def _enter(self, part: Part | None) -> None:
        self.close()
        self._part = part
        if part is not None:
            with contextlib.suppress(OSError):
                self._fd = self._folder.open(part.name)
                self._scanner = Scanner(self._fd, part.salt)
