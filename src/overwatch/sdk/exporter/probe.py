"""Questions asked in threads of their own, so that an answer that never comes holds up nothing, and who asks.

Rules: at most one question is under way; an answer is taken once, and none is lost: the next question waits
until it is taken. One process of a machine asks for each run, by a lock file beside the collector's, which is
removed when the lock is given back. Must not know what is asked.
"""

import contextvars
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, Generic, TypeVar

from overwatch import discovery
from overwatch.file_lock import try_lock

log: Final = logging.getLogger("overwatch.exporter")

T_co = TypeVar("T_co", covariant=True)


class Probe(Generic[T_co]):
    """Asks in the background; the thread begins with the first question."""

    def __init__(self, name: str, question: Callable[[], T_co], wake_up: threading.Condition) -> None:
        """`wake_up` is rung at every answer, and guards what the probe knows."""
        self._name = name
        self._question = question
        self._wake_up = wake_up
        self._wanted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._answer: tuple[int, T_co] | None = None
        self.busy = False
        """A question is under way."""
        self.failed = 0
        """Questions that broke."""

    def query(self) -> bool:
        """Begin to ask; `False` while the last question has no answer yet, or one that was not taken."""
        with self._wake_up:
            if self.busy or self._answer is not None or self._stopped:
                return False
            self.busy = True
        if self._thread is None:
            run = contextvars.copy_context().run
            self._thread = threading.Thread(
                target=run, args=(self._run,), name=f"overwatch-{self._name}", daemon=True
            )
            self._thread.start()
        self._wanted.release()
        return True

    def take(self) -> tuple[int, T_co] | None:
        """The answer and its Unix time in nanoseconds; `None` where there is no new one."""
        with self._wake_up:
            answer, self._answer = self._answer, None
            return answer

    def stop(self) -> None:
        """End the thread, as soon as its question comes back."""
        self._stopped = True
        self._wanted.release()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            if self._stopped:
                return
            answer = self._try()
            with self._wake_up:
                self._answer, self.busy = answer, False
                self._wake_up.notify_all()

    def _try(self) -> tuple[int, T_co] | None:
        try:
            answer = self._question()
        except Exception as error:  # noqa: BLE001 the border: counted, logged once, and asked again
            self.failed += 1
            if self.failed == 1:
                log.warning("%s cannot be read: %s: %s", self._name, type(error).__name__, error)
            return None
        return time.time_ns(), answer


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
