"""Reading a file that others may have put there: a regular file of bounded size, or an error at once.

Must not know what the bytes mean.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

SMALL_BYTES: Final = 16 << 20
"""Most bytes of a file that a person writes: tokens, certificates, settings."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read; a link is followed.

    Raises `OSError` naming the path, without waiting, for what is no regular file, as a FIFO or a device.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file; name one", str(path))
    return os.fdopen(fd, "rb")


def read_regular(path: Path, most_bytes: int = SMALL_BYTES) -> bytes:
    """Read a whole file. Raises as `open_regular`, and for one of more bytes, before it is read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # What /proc holds has no size, and another may grow meanwhile.
        data = b"" if size > most_bytes else file.read(most_bytes + 1)
    if max(size, len(data)) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than the {most_bytes} bytes that it may have", str(path))
    return data
