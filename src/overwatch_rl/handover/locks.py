"""The lock of a file that one trainer holds, and with it each process that inherits the descriptor.

Rules: it ends with the last process that has it, however that ends. Must not know what it guards.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

_LOOK_S: Final = 0.05


def held_lock(path: Path, patience_s: float, what: str, out: Path | None = None) -> int:
    """The descriptor of a lock, once no other process holds it.

    Raises `ValueError` when another still does after so long, where `what` is what it does there, or when the
    file cannot be made; `out` is the folder to name, that of the file without.
    """
    out = out or path.parent
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error.strerror}; name another --out folder") from error
    until = time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise ValueError(
                        f"another process {what} in {out}; end it, or name another --out folder"
                    ) from error
                time.sleep(_LOOK_S)
            else:
                return fd
    except BaseException:
        os.close(fd)
        raise
