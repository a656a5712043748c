"""What a part of a program leaves for its next life: a reader's place, a few bytes of any part.

Rules: a note is replaced as a whole and survives a power loss, so that a reader finds the last one or the one
before it. A place is a number and a note in a file of two slots, written in turn, so that a write that fails
or is cut short leaves the place before it, and moving on takes no new room on a full disk. No whole slot
where there should be one is a lost cursor: its reader begins again at the oldest record kept, and reports
that. Must not know what notes mean.
"""

import errno
import os
import stat
import struct
import zlib
from typing import Final

import msgspec

from overwatch.journal.folder import File, Folder
from overwatch.regular import SMALL_BYTES

_MAGIC: Final = b"\xf5OWc"
_CHECK: Final = struct.Struct("<I")
_FIELDS: Final = struct.Struct("<QQI")
_HEADER_BYTES: Final = len(_MAGIC) + _CHECK.size + _FIELDS.size
_SLOT_BYTES: Final = 4096
MAX_NOTE_BYTES: Final = _SLOT_BYTES - _HEADER_BYTES


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far a reader has come."""

    position: int
    """Sequence of the next record to read."""
    note: bytes = b""
    """Up to `MAX_NOTE_BYTES` of the reader's own, kept or lost together with the position."""


class CursorFile:
    """One named place in a folder. Not safe for use from several threads at once."""

    def __init__(self, folder: Folder, name: str) -> None:
        """Read what is there. Raises `OSError` when the folder cannot be read."""
        self._folder = folder
        # Names of several readers of one kind, as `otlp_file/copy`, are no paths.
        self._name = f"{name.replace('/', '%2F')}.cursor"
        self._file: File | None = None
        self._turn = 0
        self.place: Place | None = None
        """As last saved; `None` for a new or a lost cursor."""
        self.is_lost = False
        """There was a place, and it cannot be read."""
        self._read()

    def save(self, place: Place, *, sync: bool = False) -> None:
        """Keep a place: over the death of this process, with `sync` over a power loss too.

        Raises `ValueError` for too long a note, `OSError` when it may not have been kept; the place before it
        still is.
        """
        if len(place.note) > MAX_NOTE_BYTES:
            raise ValueError(f"a note of {len(place.note)} bytes; at most {MAX_NOTE_BYTES} are kept")
        turn = self._turn + 1
        fields = _FIELDS.pack(turn, place.position, len(place.note)) + place.note
        slot = _MAGIC + _CHECK.pack(zlib.crc32(fields)) + fields
        try:
            self._write(slot.ljust(_SLOT_BYTES, b"\0"), turn % 2 * _SLOT_BYTES, sync=sync)
        except OSError:
            self.close()
            raise
        self._turn = turn
        self.place = place

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, slot: bytes, offset: int, *, sync: bool) -> None:
        if self._file is None:
            self._file = self._folder.files.open(self._name)
        if self._file.write((slot,), offset) != len(slot):
            raise OSError(errno.ENOSPC, f"{self._folder.path} has no room for {self._name}")
        if sync:
            self._file.sync()
            self._folder.files.sync()

    def _read(self) -> None:
        try:
            fd = self._folder.open(self._name)
        except FileNotFoundError:
            return
        except OSError:
            self.is_lost = True
            return
        try:
            data = os.pread(fd, 2 * _SLOT_BYTES, 0)
        except OSError:
            data = b""
        finally:
            os.close(fd)
        self._turn, self.place = _newest(data) or (0, None)
        self.is_lost = self.place is None


def _newest(data: bytes) -> tuple[int, Place] | None:
    """Turn and place of the slot that was written last."""
    slots = (_unpack(data[offset : offset + _SLOT_BYTES]) for offset in (0, _SLOT_BYTES))
    whole = [found for found in slots if found is not None and found[0] > 0]
    return max(whole, key=lambda found: found[0], default=None)


def _unpack(slot: bytes) -> tuple[int, Place] | None:
    """A slot's turn and place, `None` when it is not whole."""
    at = len(_MAGIC) + _CHECK.size
    if len(slot) < _HEADER_BYTES or not slot.startswith(_MAGIC):
        return None
    turn, position, length = _FIELDS.unpack_from(slot, at)
    fields = slot[at : _HEADER_BYTES + length]
    if length > MAX_NOTE_BYTES or zlib.crc32(fields) != _CHECK.unpack_from(slot, len(_MAGIC))[0]:
        return None
    return turn, Place(position=position, note=fields[_FIELDS.size :])


class Note:
    """One named note. Not safe for use from several threads at once."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        # Names of several parts of one kind, as `webhook/chat`, are no paths.
        self._name = f"{name.replace('/', '%2F')}.note"

    def read(self) -> bytes | None:
        """What was written last, `None` where nothing was. Raises `OSError`."""
        try:
            fd = self._folder.open(self._name)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            # Of what is no regular file nothing is there, or it is not read; a note is never so large.
            return file.read(SMALL_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else None

    def write(self, data: bytes) -> None:
        """Put this in the place of what was. Raises `OSError`, and then what was is still there."""
        self._folder.replace(self._name, data)
        self._folder.files.sync()
