"""On the path of a Python process: each sync takes so long as on a disk that much else writes to.

A kill then falls between two steps on the disk more often than not.
"""

import os
import time

_SLOW_S = 0.05
_fsync, _fdatasync = os.fsync, os.fdatasync


def fsync(fd: int) -> None:
    """As the system's, after a while."""
    time.sleep(_SLOW_S)
    _fsync(fd)


def fdatasync(fd: int) -> None:
    """As the system's, after a while."""
    time.sleep(_SLOW_S)
    _fdatasync(fd)


os.fsync, os.fdatasync = fsync, fdatasync
