"""Who samples what: one process of a machine for each run, by a lock file beside the collector's.

Rules: a lock goes with the process that holds it, and its file when it is given back. Must not know what is
sampled.
"""

import hashlib
import os
import threading
from pathlib import Path
from typing import IO

from overwatch import discovery
from overwatch.file_lock import try_lock


class SampleLock:
    """Whether this process samples one thing for a run. A lock goes with the process that holds it."""

    def __init__(self, run: str, subject: str) -> None:
        name = hashlib.sha256(f"{run}\n{subject}".encode()).hexdigest()[:16]
        self._path = discovery.path().with_name(f"sampler-{name}.lock")
        self._guard = threading.Lock()
        self._file: IO[bytes] | None = None
        self._given_back = False

    def held(self) -> bool:
        """Take the lock if it is free; a machine without a place for locks does without."""
        with self._guard:
            if self._file is not None or self._given_back:
                return self._file is not None
            try:
                self._file = _locked(self._path)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return True

    def release(self) -> None:
        """Give the lock back for good, and tidy its file away."""
        with self._guard:
            self._given_back = True
            if self._file is not None:
                self._path.unlink(missing_ok=True)
                self._file.close()
                self._file = None


def _locked(path: Path) -> IO[bytes]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+b")
    try:
        if not try_lock(file.fileno()):
            raise BlockingIOError(f"{path} is held")
        if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            raise BlockingIOError(f"{path} was tidied away by its last holder")
    except FileNotFoundError:
        file.close()
        raise BlockingIOError(f"{path} was tidied away by its last holder") from None
    except OSError:
        file.close()
        raise
    return file
