"""What was appended to a file, whatever becomes of the file meanwhile.

Rules: bytes are read once, in order. A file that is not there yet, or not any more, has none. A new file
under the name (rotation, or a whole one renamed over it), a shorter one and one whose beginning is another
begin anew; of a rotated one the rest comes first. One that is rewritten in place is read once its beginning
is the same at two looks. Must not know what the bytes mean.
"""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

_CHUNK: Final = 64 << 10
_HEAD: Final = 16 << 10
"""Bytes by which a file that was rewritten in place is known."""


class Appended(NamedTuple):
    """Bytes of one look."""

    data: bytes
    is_anew: bool = False
    """They are the beginning of a file, not what follows the bytes before."""


_NOTHING: Final = Appended(b"")


class Tail:
    """One path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        """Bytes that were read of the file."""
        self._fd: int | None = None
        self._head = b""
        self._seen: bytes | None = None
        """Beginning of a file that is being rewritten, at the last look."""

    def read(self) -> Appended:
        """The next bytes, at most 64 KiB; none where nothing was added. Raises `OSError`."""
        if self._fd is None and self.position and self._descriptor() is None:
            return _NOTHING
        if self._fd is None:
            return self._open(is_anew=False)
        state = os.fstat(self._fd)
        head = os.pread(self._fd, _HEAD, 0)
        if state.st_size >= self.position and head.startswith(self._head):
            self._seen = None
            if state.st_size > self.position:
                return self._next(self._fd, is_anew=False)
            return self._rotated(state.st_ino)
        before, self._seen = self._seen, head
        if not before or not head.startswith(before):
            return _NOTHING
        self.position, self._head, self._seen = 0, b"", None
        return self._next(self._fd, is_anew=True)

    def close(self) -> None:
        """Let go of the file; where it is read on, from the same place."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, *, is_anew: bool) -> Appended:
        self.position, self._head, self._seen = 0, b"", None
        fd = self._descriptor()
        return _NOTHING if fd is None else self._next(fd, is_anew=is_anew)

    def _descriptor(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        return self._fd

    def _next(self, fd: int, *, is_anew: bool) -> Appended:
        data = os.pread(fd, _CHUNK, self.position)
        self._head += data[: max(_HEAD - self.position, 0)]
        self.position += len(data)
        return Appended(data, is_anew)

    def _rotated(self, inode: int) -> Appended:
        """The file that has the name now, where it is another one."""
        try:
            is_same = os.stat(self.path).st_ino == inode  # noqa: PTH116 a look costs no object
        except FileNotFoundError:
            return _NOTHING
        if is_same:
            return _NOTHING
        self.close()
        return self._open(is_anew=True)
