"""The exporter process as the trainer holds it: its life, its standard input, and its account.

Rules: nothing here waits longer than it is told, but `watch`, which has a thread to itself. The account is
an anonymous file that is the exporter's standard output, so it can be read at any time, even after the
process died. Standard input carries the farewell; its end says that the trainer is gone. Must not know
rings.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from overwatch.sdk.frames import Close, Progress, encode, progress_of

_COMMAND: Final = ("-P", "-m", "overwatch.sdk.exporter")
_GRACE_S: Final = 0.1
_LOOK_S: Final = 0.02


class AccountFile:
    """Where the exporters of some rings, one after the other, leave their account: memory, if it can be.

    Raises `OSError`.
    """

    def __init__(self) -> None:
        memory = getattr(os, "memfd_create", None)
        self._length = 0
        self._file: IO[bytes]
        if memory is not None:
            self._file = os.fdopen(memory("overwatch-account"), "r+b", 0)
        else:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the run

    def fileno(self) -> int:
        """The open file."""
        return self._file.fileno()

    def read(self) -> Progress:
        """What was last said."""
        try:
            data = os.pread(self._file.fileno(), 1 << 16, 0)
            return progress_of(data.strip(b" \0") or b"{}")
        except (OSError, ValueError):
            return Progress()

    def write(self, progress: Progress) -> None:
        """Say it, where the exporter is a thread of this process."""
        data = msgspec.json.encode(progress)
        self._length = max(self._length, len(data))
        with contextlib.suppress(OSError, ValueError):
            os.pwrite(self._file.fileno(), data.ljust(self._length), 0)

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class ExporterProcess:
    """One life of the exporter of some rings. Raises `OSError` when it cannot be started."""

    def __init__(self, rings: Path, account: AccountFile) -> None:
        if not sys.executable:
            raise FileNotFoundError("this interpreter does not say where its executable is")
        with own_handle() as handles:
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND, str(rings), *map(str, handles)],
                stdin=subprocess.PIPE,
                stdout=account.fileno(),
                bufsize=0,
                pass_fds=handles,
            )
        stdin = self._process.stdin
        if stdin is None:
            raise BrokenPipeError("the exporter was started without an input")
        self._stdin = stdin
        os.set_blocking(stdin.fileno(), False)
        self._ended = threading.Event()
        self._owner = os.getpid()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, as far as `watch` or `finish` saw."""
        return not self._ended.is_set()

    def watch(self) -> None:
        """Wait for its end, however long that takes."""
        self._process.wait()
        self._ended.set()

    def say_close(self, deadline: float, *, at_exit: bool) -> None:
        """Ask it to deliver what there is until `deadline` (monotonic seconds) and end: see `Close`."""
        with contextlib.suppress(OSError):
            _write(self._stdin.fileno(), encode(Close(deadline=deadline, at_exit=at_exit)))
        with contextlib.suppress(OSError):
            self._stdin.close()

    def finish(self, timeout_s: float) -> bool:
        """Wait for its end; one that takes longer is killed. Whether it ended by itself."""
        deadline = time.monotonic() + timeout_s
        while not self._ended.wait(min(max(deadline - time.monotonic(), 0.0), _LOOK_S)):
            if self._process.poll() is not None:
                self._ended.set()
            elif time.monotonic() >= deadline:
                self.kill()
                return False
        return True

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(OSError):
            self._process.kill()
        deadline = time.monotonic() + _GRACE_S
        while self._process.poll() is None and time.monotonic() < deadline:
            self._ended.wait(_LOOK_S)

    def release(self) -> None:
        """Let go of the input."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def abandon(self) -> None:
        """Let it live: it is another process's, or outlives this one."""
        self._process.returncode = 0
        self.release()


@contextlib.contextmanager
def own_handle() -> Iterator[list[int]]:
    """A handle on this process, where the system has such: with it the exporter sees how it ends."""
    handles: list[int] = []
    with contextlib.suppress(OSError, AttributeError):
        handles.append(os.pidfd_open(os.getpid()))
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def _write(fd: int, data: bytes) -> None:
    """Write where a broken pipe must not kill the trainer: the signal is held back and taken."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        os.write(fd, data)
    except BrokenPipeError:
        signal.sigtimedwait({signal.SIGPIPE}, 0)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
