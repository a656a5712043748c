"""The lock of a file that one trainer holds, and with it each process that inherits the descriptor.

Rules: it ends with the last process that has it, however that ends. Must not know what it guards.
"""

import os
from pathlib import Path

from overwatch.file_lock import lock_within


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
    try:
        is_free = lock_within(fd, patience_s)
    except BaseException:
        os.close(fd)
        raise
    if not is_free:
        os.close(fd)
        raise ValueError(f"another process {what} in {out}; end it, or name another --out folder")
    return fd
