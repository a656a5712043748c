"""A file that only grows by whole lines: opened late, reopened when it was taken away, never torn.

Rules: a write that fails leaves the file as it was before; a torn last line of an earlier life is cut off
on opening. Used from one thread at a time. Must not know what the lines mean.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from overwatch.platform import begin_writing, sync_data, sync_folder

_TAIL_BYTES: Final = 1 << 16
_BEGUN_BYTES: Final = 1 << 19
"""So much is handed to the disk at once: a sync of many seconds' lines holds up everybody else's."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a file had come."""

    inode: int
    length: int
    """Bytes."""


class LineFile:
    """Appends whole lines to a path; creates its folder when needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._size = 0
        self._begun = 0
        """Bytes that were handed to the disk, synced or not."""
        self._synced: int | None = None
        """Bytes that survive a power loss, as far as is known of the open file."""

    def open(self) -> int:
        """Make the file ready and return its size in bytes; raises `OSError`."""
        if self._fd is not None and self._moved(self._fd):
            self.close()
        if self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                self._size = _cut_torn_line(fd)
            except OSError:
                os.close(fd)
                raise
            self._fd, self._begun, self._synced = fd, self._size, None
        return self._size

    def append(self, lines: bytes) -> int:
        """Write lines that end in newlines; returns the offset of the first. Raises `OSError`."""
        start = self.open()
        fd = self._fd
        if fd is None:
            raise OSError(f"{self.path} is not open")
        try:
            _write_all(fd, lines, start)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, start)
            raise
        self._size = start + len(lines)
        if self._size - self._begun >= _BEGUN_BYTES:
            begin_writing(fd, self._begun, self._size)
            self._begun = self._size
        return start

    def mark(self) -> Mark:
        """Which file this is and how long. Raises `OSError`."""
        length = self.open()
        return Mark(inode=0 if self._fd is None else os.fstat(self._fd).st_ino, length=length)

    def after(self, mark: Mark) -> bytes:
        """The first lines after a mark, none where the file ends or is another. Raises `OSError`."""
        self.open()
        if self._fd is None or os.fstat(self._fd).st_ino != mark.inode:
            return b""
        return os.pread(self._fd, _TAIL_BYTES, mark.length)

    def head(self) -> bytes:
        """The first lines. Raises `OSError`."""
        self.open()
        return b"" if self._fd is None else os.pread(self._fd, _TAIL_BYTES, 0)

    def cut(self, mark: Mark) -> None:
        """Forget what was added since the mark; another or a shorter file is left as it is."""
        size = self.open()
        if self._fd is not None and size > mark.length and os.fstat(self._fd).st_ino == mark.inode:
            os.ftruncate(self._fd, mark.length)
            self._size = self._begun = mark.length
            self._synced = None

    def sync(self) -> None:
        """Return when what is there survives a power loss. Raises `OSError`."""
        if self._fd is None or self._synced == self._size:
            return
        sync_data(self._fd)
        if self._synced is None:
            sync_folder(self.path.parent)
        self._begun = self._synced = self._size

    def close(self) -> None:
        """Let go of the file; a later `append` opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _moved(self, fd: int) -> bool:
        try:
            named = self.path.stat()
        except OSError:
            return True
        opened = os.fstat(fd)
        return (named.st_ino, named.st_dev) != (opened.st_ino, opened.st_dev)


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def _cut_torn_line(fd: int) -> int:
    """Cut what follows the last newline; returns the size that is left."""
    end = size = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _TAIL_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(fd, end)
    return end
