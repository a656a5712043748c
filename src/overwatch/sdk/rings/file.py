"""One ring's file: how its records lie in it, and the mapping of it that both sides share.

A ring is a file of a fixed size: a page of 64-bit words, the forms (names of numbers, never overwritten),
then the records, which lap. A *mark* is one 64-bit word for how far a side is: the sequence number of
a record and the place behind it, so one aligned store publishes or releases, and counts, at once.

Rules: all little-endian; every word has one writer, the trainer (`W_...` below 32) or the reader. A record's
head holds the mark that it publishes, so one from an earlier lap is never taken for a new one. The room is
allocated and touched before use, so a full filesystem is an `OSError` at the start and never a SIGBUS later;
only this user can read the file; a link is never followed. Must not know what payloads mean.
"""

import contextlib
import mmap
import os
import platform
import stat
import struct
import threading
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Final
from zlib import crc32

from overwatch.platform import allocate

MAGIC: Final = int.from_bytes(b"OWRING04", "little")
HEADER_BYTES: Final = 4096
ALIGN: Final = 8

W_MAGIC: Final = 0
W_SIZE: Final = 1
W_DATA: Final = 2
"""Where records begin, bytes from the start of the file."""
W_FORMS: Final = 4
"""Bytes of forms so far."""
W_PUBLISHED: Final = 8
W_DROPPED: Final = 16
"""One word a reason of `REASONS`."""
W_FOLDED: Final = 31
"""Updates that met a full ring and were folded together."""
W_RELEASED: Final = 32
W_UNFOLDED: Final = 33
"""Of the folded updates, those whose record is released."""
W_STATED: Final = 34
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


_PAGE: Final = 4096
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class RingError(ValueError):
    """A file that is no ring, or one that is broken."""


class RingFile:
    """A mapped ring. `view` is its bytes, `words` the same as unsigned 64-bit words."""

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path = path
        self.size = len(memory)
        self._map = memory
        self.view = memoryview(self._map)
        self.words = self.view.cast("Q")

    @property
    def data(self) -> int:
        """Where records begin."""
        return self.words[W_DATA]

    def dropped(self) -> Counter[str]:
        """What was not written, by reason, as the header has it."""
        counts = {reason: self.words[W_DROPPED + place] for place, reason in enumerate(REASONS)}
        return +Counter(counts)

    def again(self) -> "RingFile":
        """The same memory for a reader in this process."""
        return RingFile(self.path, self._map)

    def close(self) -> None:
        """Unmap, unless the other side is in this process; the file stays."""
        self.words.release()
        self.view.release()
        with contextlib.suppress(BufferError):
            self._map.close()


def create(path: Path, size: int, forms: int, *, shared: bool = True) -> RingFile:
    """A new ring of `size` bytes, of which `forms` are for forms; raises `OSError`.

    One that is not `shared` is memory of this process, for a reader in it, and no file at `path`.
    """
    if not HEADER_BYTES + forms + HEAD.size < size <= MAX_DATA or (size | forms) % _PAGE:
        raise ValueError(f"a ring of {size} bytes with {forms} bytes of forms has no room for records")
    ring = RingFile(path, _allocated(path, size) if shared else mmap.mmap(-1, size))
    for page in range(0, ring.size, _PAGE):
        ring.view[page] = 0
    ring.words[W_SIZE], ring.words[W_DATA] = ring.size, HEADER_BYTES + forms
    ring.words[W_MAGIC] = MAGIC
    return ring


def _allocated(path: Path, size: int) -> mmap.mmap:
    fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        allocate(fd, size)
        return mmap.mmap(fd, size)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(fd)


def open_ring(path: Path) -> RingFile:
    """A ring that a trainer made; raises `OSError` or `RingError`."""
    fd = os.open(path, _FLAGS)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise RingError(f"{path} is not a file of this user")
        if found.st_size < HEADER_BYTES:
            raise RingError(f"{path} has {found.st_size} bytes; a ring has more")
        ring = RingFile(path, mmap.mmap(fd, found.st_size))
    finally:
        os.close(fd)
    words = ring.words
    sound = words[W_MAGIC] == MAGIC and words[W_SIZE] == ring.size
    if not sound or not HEADER_BYTES <= words[W_DATA] < ring.size:
        ring.close()
        raise RingError(f"{path} is not a ring")
    return ring


def _fence() -> Callable[[], None] | None:
    """A barrier for stores and loads where the processor may reorder them; x86 does not.

    Python has no fence, but a lock has half of one at each end: releasing it orders everything before, taking
    it everything after. Released, then taken, nothing can pass. Nothing ever waits for this lock.
    """
    if platform.machine().lower() in ("x86_64", "amd64", "i686", "i386"):
        return None
    lock = threading.Lock()
    lock.acquire()

    def fence() -> None:
        with contextlib.suppress(RuntimeError):
            lock.release()
        lock.acquire(blocking=False)

    return fence


FENCE: Final = _fence()
"""Called between payload and mark by the writer, between mark and payload by the reader; `None` on x86."""
