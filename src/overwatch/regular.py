"""Reading a file that others may have put there: a regular file of bounded size, or an error at once.

Must not know what the bytes mean.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Read a whole file; a link is followed.

    Raises `OSError` naming the path, without waiting: for what is no regular file, as a FIFO, a device or a
    folder, and for one of more than `most_bytes`, before it is read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(fd, "rb") as file:
        return read_open(file, path, most_bytes)


def read_open(file: BinaryIO, path: Path, most_bytes: int) -> bytes:
    """As `read_regular`, of a file that was opened without waiting."""
    state = os.fstat(file.fileno())
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "no regular file; name one", str(path))
    # What /proc holds has no size, and another may grow meanwhile.
    data = b"" if state.st_size > most_bytes else file.read(most_bytes + 1)
    if state.st_size > most_bytes or len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than the {most_bytes} bytes that it may have", str(path))
    return data
