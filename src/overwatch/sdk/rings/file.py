"""One ring's file, mapped: made by the trainer, opened by its reader.

Rules: the room is allocated and touched before use, so a full filesystem is an `OSError` at the start and
never a SIGBUS later; only this user can read it; a link is never followed. Must not know records.
"""

import contextlib
import mmap
import os
import platform
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from overwatch.platform import allocate
from overwatch.sdk.rings.layout import (
    HEAD,
    HEADER_BYTES,
    MAGIC,
    MAX_DATA,
    W_DATA,
    W_MAGIC,
    W_PID,
    W_SIZE,
)

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

    def again(self) -> "RingFile":
        """The same memory for a reader in this process."""
        return RingFile(self.path, self._map)

    def close(self) -> None:
        """Unmap, unless the other side is in this process; the file stays."""
        self.words.release()
        self.view.release()
        with contextlib.suppress(BufferError):
            self._map.close()


def create(path: Path, size: int, forms: int) -> RingFile:
    """A new ring of `size` bytes, of which `forms` are for forms; raises `OSError`."""
    _check(size, forms)
    fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        allocate(fd, size)
        memory = mmap.mmap(fd, size)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(fd)
    return _begun(RingFile(path, memory), forms)


def create_private(path: Path, size: int, forms: int) -> RingFile:
    """A new ring in memory of this process, for a reader in it; there is no file at `path`."""
    _check(size, forms)
    return _begun(RingFile(path, mmap.mmap(-1, size)), forms)


def _check(size: int, forms: int) -> None:
    if not HEADER_BYTES + forms + HEAD.size < size <= MAX_DATA or (size | forms) % _PAGE:
        raise ValueError(f"a ring of {size} bytes with {forms} bytes of forms has no room for records")


def _begun(ring: RingFile, forms: int) -> RingFile:
    for page in range(0, ring.size, _PAGE):
        ring.view[page] = 0
    ring.words[W_SIZE], ring.words[W_DATA], ring.words[W_PID] = ring.size, HEADER_BYTES + forms, os.getpid()
    ring.words[W_MAGIC] = MAGIC
    return ring


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
    it everything after. Released, then taken, nothing can pass. Nobody ever waits for this lock.
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
