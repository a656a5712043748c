"""The extension `file_storage`: the collector's data folder, held by one collector at a time.

With it the journal lies on disk, in the folder `journal` below; without it in memory. Owns what a person is
shown of an error of the operating system too: the path, the reason, the fix.
"""

import errno
import os
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from overwatch.collector.setting_types import bounded
from overwatch.file_lock import try_lock
from overwatch.journal import Durability

JOURNAL_MIB: Final = 64
"""The least that a journal works with."""
LEAST_MIB: Final = 192
"""A budget in which every part has room to work."""

_MOVE: Final = "move away what lies there"
_RIGHTS: Final = "give this user the right to write there, or configure another place"
_FIXES: Final = MappingProxyType(
    {
        errno.EISDIR: _MOVE,
        errno.ENOTDIR: _MOVE,
        errno.ELOOP: _MOVE,
        errno.EEXIST: _MOVE,
        errno.EINVAL: _MOVE,
        errno.ESPIPE: _MOVE,
        errno.ENXIO: _MOVE,
        errno.EACCES: _RIGHTS,
        errno.EPERM: _RIGHTS,
        errno.EROFS: _RIGHTS,
        errno.ENOENT: "make the folder that it lies in, or configure another place",
        errno.ENOSPC: "make room on that disk, or configure another place",
        errno.EDQUOT: "make room within the quota, or configure another place",
        errno.ENAMETOOLONG: "configure a shorter path",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
        errno.ENFILE: "raise the machine's limit of open files (fs.file-max)",
        errno.EIO: "look after that disk, or configure another place",
    }
)
_OTHER: Final = "configure another place"


class FileStorageConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`extensions.file_storage`."""

    directory: Path
    """The folder; it is made when it is not there."""
    durability: Durability = Durability.FSYNC
    """What an acknowledged request survives: `fsync`, a power loss; `fast`, the end of the collector."""
    max_size_mib: int = 2048
    """Most MiB of the journal on disk, or less where the budget is tight; beyond it senders must retry."""
    budget_mib: int | None = None
    """Most MiB of journal, checkpoints, recordings and snapshots together; by the volume if left out."""

    def __post_init__(self) -> None:
        bounded(self, "max_size_mib", least=JOURNAL_MIB)
        bounded(self, "budget_mib", least=LEAST_MIB)

    def within(self, most: int) -> "FileStorageConfig":
        """The same, with a journal of so many bytes at most."""
        mib = max(JOURNAL_MIB, min(self.max_size_mib, most >> 20))
        return msgspec.structs.replace(self, max_size_mib=mib)


class FileStorage:
    """Holds the folder's lock from start to stop."""

    def __init__(self, config: FileStorageConfig, *_: object) -> None:
        self._lock = config.directory / "lock"
        self._fd: int | None = None

    def start(self) -> None:
        """Take the lock; raises `OSError` naming the holder when another collector has it."""
        try:
            self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"{self._lock.parent} cannot be the data folder: {error.strerror}; "
                "set extensions.file_storage.directory or OVERWATCH_DATA_DIR"
            ) from error
        try:
            fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise OSError(described(error, self._lock)) from error
        try:
            is_free = try_lock(fd)
            held_by = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            if is_free:
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(fd)
            raise OSError(
                f"{described(error, self._lock)}; the folder must be where files can be locked"
            ) from error
        if not is_free:
            os.close(fd)
            raise OSError(
                f"{self._lock.parent} is in use by another collector (pid {held_by}); stop that one, "
                "or set extensions.file_storage.directory or OVERWATCH_DATA_DIR"
            )
        self._fd = fd

    def stop(self) -> None:
        """Let go of the lock; a second call does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def described(error: OSError, path: Path | None = None) -> str:
    """The error in one line; an error whose message was written by a caller keeps it.

    `path` is what was to be used where the error does not know, or knows less.

    >>> described(IsADirectoryError(errno.EISDIR, "Is a directory", "/data/lock"))
    '/data/lock: Is a directory; move away what lies there'
    >>> described(OSError("the folder is in use by process 7; stop that one"))
    'the folder is in use by process 7; stop that one'
    """
    place = path or error.filename
    if error.errno is None:
        return str(error)
    if place is None:
        return error.strerror or str(error)
    return f"{place}: {error.strerror}; {_FIXES.get(error.errno, _OTHER)}"
