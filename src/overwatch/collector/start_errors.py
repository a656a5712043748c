"""What a person is shown of an error of the operating system: the path, the reason, the fix. Pure.

Rules: an error whose message was written by a caller keeps it; every other one names the whole path and what
to do. Must not know which part failed.
"""

import errno
from pathlib import Path
from types import MappingProxyType
from typing import Final

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


def described(error: OSError, path: Path | None = None) -> str:
    """The error in one line; `path` is what was to be used where the error does not know, or knows less.

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
