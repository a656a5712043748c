"""Where the log of an exporter goes: what concerns one run to its trainer's stream, the rest to its own.

Rules: a trainer whose stream takes nothing, or is gone, costs its own lines and holds up no other run; no
line reaches a stream that its run has given back. Threads of a run carry its stream in their context. Must
not know what is logged.
"""

import contextlib
import logging
import os
import select
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

_LONGEST: Final = 2048
"""Bytes of a line: a pipe that is ready takes twice as many without a wait."""


class ErrorStream:
    """A trainer's error stream, for as long as its run lasts."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        self._lock = threading.Lock()

    def write(self, line: str) -> bool:
        """Write a line where that is possible at once; whether it was."""
        data = line.encode(errors="replace")[:_LONGEST] + b"\n"
        poll = select.poll()
        with self._lock:
            if self._fd is None:
                return False
            poll.register(self._fd, select.POLLOUT)
            with contextlib.suppress(OSError):
                return poll.poll(0) == [(self._fd, select.POLLOUT)] and os.write(self._fd, data) == len(data)
        return False

    def close(self) -> None:
        """Give it back; waits for no line but the one that is being written."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
            self._fd = None


_of_run: Final[ContextVar[ErrorStream | None]] = ContextVar("overwatch_errors", default=None)


@contextlib.contextmanager
def logging_to(stream: ErrorStream) -> Iterator[None]:
    """What this thread logs, and each that it starts in a copy of its context, goes to a trainer."""
    token = _of_run.set(stream)
    try:
        yield
    finally:
        _of_run.reset(token)
        stream.close()


class TrainerHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the trainer of the run that logs, else to this process's error stream."""

    def createLock(self) -> None:  # noqa: N802 its name in logging
        """None: a stream that takes nothing must not hold up other runs."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        stream = _of_run.get()
        if stream is None or not stream.write(self.format(record)):
            super().emit(record)
