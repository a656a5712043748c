"""The advisory lock of an open file: one holder, or several that share it.

Rules: it goes with the last copy of its descriptor, so with its process however that ends; each `os.open` is
a holder of its own, also inside one process. A place without locks raises `OSError`. Must not know what is
guarded.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LOOK_S: Final = 0.02


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the lock where it is free; whether it was. Raises `OSError`."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(fd: int, patience_s: float) -> bool:
    """Take the lock once it is free, within so long; whether it was. Raises `OSError`."""
    until = time.monotonic() + patience_s
    while not try_lock(fd):
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_S)
    return True


def unlock(fd: int) -> None:
    """Let go, also where a fork has a copy of the descriptor."""
    fcntl.flock(fd, fcntl.LOCK_UN)


@contextmanager
def locked(path: Path, mode: int = 0o600) -> Iterator[None]:
    """Wait, however long, until no other holds the lock of a file, which is made where it is not there."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
