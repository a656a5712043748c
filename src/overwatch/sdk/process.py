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
from pathlib import Path
from typing import IO, Final

import msgspec

from overwatch.sdk.frames import Close, Progress, encode

_COMMAND: Final = ("-P", "-m", "overwatch.sdk.exporter")
_GRACE_S: Final = 0.1


class ExporterProcess:
    """One life of the exporter of some rings. Raises `OSError` when it cannot be started."""

    def __init__(self, rings: Path) -> None:
        if not sys.executable:
            raise FileNotFoundError("this interpreter does not say where its executable is")
        self._account: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND, str(rings)],
                stdin=subprocess.PIPE,
                stdout=self._account,
                bufsize=0,
            )
        except OSError:
            self._account.close()
            raise
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
        """Whether it has not ended, as far as `watch` saw."""
        return not self._ended.is_set()

    def watch(self) -> None:
        """Wait for its end, however long that takes."""
        self._process.wait()
        self._ended.set()

    def say_close(self, deadline: float) -> None:
        """Ask it to deliver what there is until `deadline` (monotonic seconds) and end."""
        with contextlib.suppress(OSError):
            _write(self._stdin.fileno(), encode(Close(deadline=deadline)))
        with contextlib.suppress(OSError):
            self._stdin.close()

    def finish(self, timeout_s: float) -> bool:
        """Wait for its end; one that takes longer is killed. Whether it ended by itself."""
        if self._ended.wait(max(timeout_s, 0.0)):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._ended.wait(_GRACE_S)

    def progress(self) -> Progress:
        """What the exporter last said became of the records."""
        try:
            data = os.pread(self._account.fileno(), 1 << 16, 0)
            return msgspec.json.decode(data.strip(b" \0") or b"{}", type=Progress)
        except (OSError, ValueError):
            return Progress()

    def release(self) -> None:
        """Let go of the account and of the input."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._account.close()

    def abandon(self) -> None:
        """Let go in a forked child: the process is the parent's."""
        self._process.returncode = 0
        self.release()


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
