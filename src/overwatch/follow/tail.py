"""What was appended to a file, whatever becomes of the file meanwhile.

Rules: bytes are read once, in order. A file that is not there yet, or not any more, has none. A new file
under the name (rotation), a shorter one and one whose beginning is another begin anew; of a rotated one the
rest comes first. One that is rewritten in place is read once it has stood still between two looks. Must not
know what the bytes mean.
"""

import os
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

_CHUNK: Final = 1 << 20
_HEAD: Final = 16 << 10
"""Bytes by which a file that was rewritten in place is known."""


class Begins(Enum):
    """How bytes stand to those before."""

    ON = "they follow"
    REWRITTEN = "the same file, from its beginning"
    ROTATED = "another file of this name"


class Appended(NamedTuple):
    """Bytes of one look."""

    data: bytes
    begins: Begins = Begins.ON


_NOTHING: Final = Appended(b"")


class Tail:
    """One path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        """Bytes that were read of the file."""
        self.until: int | None = None
        """Where reading stops for now."""
        self._fd: int | None = None
        self._head = b""
        self._seen: tuple[int, int] | None = None
        """Size and time of a file that is being rewritten, at the last look."""

    def read(self) -> Appended:
        """The next bytes, at most a MiB; none where nothing was added. Raises `OSError`."""
        if self._fd is None:
            return self._open(Begins.ON)
        state = os.fstat(self._fd)
        if state.st_size >= self.position and os.pread(self._fd, len(self._head), 0) == self._head:
            self._seen = None
            if state.st_size > self.position:
                return self._next(self._fd, Begins.ON)
            return self._rotated(state.st_ino)
        now = (state.st_size, state.st_mtime_ns)
        if now != self._seen:
            self._seen = now
            return _NOTHING
        self.position, self._head = 0, b""
        return self._next(self._fd, Begins.REWRITTEN)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, begins: Begins) -> Appended:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return _NOTHING
        self.position, self._head, self._seen = 0, b"", None
        return self._next(self._fd, begins)

    def _next(self, fd: int, begins: Begins) -> Appended:
        most = _CHUNK if self.until is None else min(_CHUNK, self.until - self.position)
        data = os.pread(fd, most, self.position)
        self._head += data[: max(_HEAD - self.position, 0)]
        self.position += len(data)
        return Appended(data, begins)

    def _rotated(self, inode: int) -> Appended:
        """The file that has the name now, where it is another one."""
        try:
            is_same = os.stat(self.path).st_ino == inode  # noqa: PTH116 a look costs no object
        except FileNotFoundError:
            return _NOTHING
        if is_same:
            return _NOTHING
        self.close()
        return self._open(Begins.ROTATED)
