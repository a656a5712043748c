"""A folder on disk that one process owns: its lock, its names, and the only door by which it is written.

Owns the seam `Files`: whatever the journal changes on disk goes through it, so that a test can refuse,
shorten or forget any call. Rules: no link is ever followed, a folder is 0700 and a file 0600, and all names
are looked up under the folder that was opened, wherever its path leads later. Must not know what the files
hold.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from overwatch.file_lock import lock_within, try_lock
from overwatch.platform import sync, sync_data, write_parts

_LOCK: Final = "lock"
_LOCK_PATIENCE_S: Final = 0.2
"""Another process may look whether the lock is held, which takes a moment."""
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC


class File:
    """One file open for writing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, parts: Sequence[bytes], offset: int) -> int:
        """Write at a place, in one call; how many bytes were taken, which may be fewer. Raises `OSError`."""
        return write_parts(self._fd, parts, offset)

    def cut(self, size: int) -> None:
        """Forget what lies after `size` bytes. Raises `OSError`."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Return when the file survives a power loss. Raises `OSError`."""
        sync_data(self._fd)

    def close(self) -> None:
        """Let go; never raises."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


@contextlib.contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Errors about a name in the folder name its whole path."""
    try:
        yield
    except OSError as error:
        error.filename = str(folder / (error.filename or ""))
        if error.filename2 is not None:
            error.filename2 = str(folder / error.filename2)
        raise


class Files:
    """The names under an open folder; every call may raise `OSError`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.where = Path()
        """The folder, as errors name it."""

    def open(self, name: str) -> File:
        """The file of that name, made for this user alone when it is not there."""
        with _named(self.where):
            return File(os.open(name, os.O_RDWR | os.O_CREAT | _SAFE, 0o600, dir_fd=self._fd))

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of what has it."""
        with _named(self.where):
            os.rename(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Take a name away."""
        with _named(self.where):
            os.unlink(name, dir_fd=self._fd)

    def sync(self) -> None:
        """Return when the names survive a power loss."""
        with _named(self.where):
            sync(self._fd)


class FolderBusyError(OSError):
    """Another process, or another part of this one, writes to the folder."""


class FolderLostError(OSError):
    """The folder is no longer where it was: deleted, moved, or something else has its name."""


class Folder:
    """A locked folder. Not safe for use from several threads at once."""

    def __init__(self, path: Path, files: Callable[[int], Files] = Files) -> None:
        """Make the folder when it is not there, and lock it.

        Raises `FolderBusyError` naming the holder; `OSError` when it is a link, another user's, on a disk
        without locks, or cannot be made.
        """
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        try:
            self._claim()
            self._lock_fd = self._lock()
        except BaseException:
            os.close(self._fd)
            raise
        self._self = _identity(os.fstat(self._fd))
        self._lock_self = _identity(os.fstat(self._lock_fd))
        self._is_open = True
        self.files = files(self._fd)
        self.files.where = path

    def names(self) -> list[str]:
        """What lies in the folder. Raises `OSError`."""
        return os.listdir(self._fd)  # noqa: PTH208 the folder itself, wherever its path leads

    def open(self, name: str) -> int:
        """A file descriptor to read from, which the caller closes. Raises `OSError`, also for a link."""
        with _named(self.path):
            return os.open(name, os.O_RDONLY | os.O_NONBLOCK | _SAFE, dir_fd=self._fd)

    def stat(self, name: str) -> os.stat_result:
        """What the folder knows of a name. Raises `OSError`."""
        with _named(self.path):
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)

    def check(self) -> None:
        """Raise `FolderLostError` unless the path still leads here and the lock still guards it."""
        try:
            here = self.path.lstat()
            lock = self.stat(_LOCK)
        except OSError as error:
            raise FolderLostError(error.errno, f"{self.path} is gone: {error.strerror}") from error
        if _identity(here) != self._self or _identity(lock) != self._lock_self:
            raise FolderLostError(errno.ESTALE, f"{self.path} is not the folder that it was")

    @property
    def is_deleted(self) -> bool:
        """Nothing is left of it on disk; a folder that was moved is."""
        return os.fstat(self._fd).st_nlink == 0

    def replace(self, name: str, data: bytes) -> None:
        """Put a whole small file in place of another, so that a reader finds one or the other."""
        scratch = f".{name}.new"
        file = self.files.open(scratch)
        try:
            file.cut(0)
            if file.write((data,), 0) != len(data):
                raise OSError(errno.ENOSPC, f"{self.path} has no room for {name}")
            file.sync()
        finally:
            file.close()
        self.files.rename(scratch, name)

    def discard(self) -> None:
        """Let go, and remove the folder with all its files. Raises `OSError` when something resists."""
        self.check()
        for name in self.names():
            self.files.remove(name)
        self.path.rmdir()
        self.close()

    def close(self) -> None:
        """Let go of the lock; never raises."""
        if self._is_open:
            self._is_open = False
            for fd in (self._lock_fd, self._fd):
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _claim(self) -> None:
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"{self.path} belongs to user {found.st_uid}")
        if found.st_mode & 0o077:
            os.fchmod(self._fd, 0o700)

    def _lock(self) -> int:
        with _named(self.path):
            fd = os.open(_LOCK, os.O_RDWR | os.O_CREAT | _SAFE, 0o600, dir_fd=self._fd)
        try:
            if not lock_within(fd, _LOCK_PATIENCE_S):
                raise FolderBusyError(errno.EWOULDBLOCK, f"{self.path} is in use by {_holder(fd)}")
        except OSError:
            os.close(fd)
            raise
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        return fd


def is_held(path: Path) -> bool:
    """Whether a process has the folder locked. Raises `OSError` when there is no such folder or no lock."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    try:
        fd = os.open(_LOCK, os.O_RDONLY | _SAFE, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        return not try_lock(fd, shared=True)
    finally:
        os.close(fd)


def _holder(fd: int) -> str:
    pid = os.pread(fd, 32, 0).decode("ascii", "replace")
    return f"process {pid}" if pid.isdecimal() else "another process"


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
