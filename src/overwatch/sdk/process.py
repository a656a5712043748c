"""The exporter process as the trainer holds it: the writing end of its input, and its own account.

Rules: nothing here waits longer than it is told. The account is an anonymous file that is the exporter's
standard output, so it can be read at any time, even after the process died. Must not know frames' content.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from typing import IO, Final

import msgspec

from overwatch.sdk.frames import Progress

PIPE_BYTES: Final = 1 << 20
_F_SETPIPE_SZ: Final = getattr(fcntl, "F_SETPIPE_SZ", None)
_COMMAND: Final = ("-P", "-m", "overwatch.sdk.exporter")


class ExporterProcess:
    """One life of the exporter. Raises `OSError` when it cannot be started."""

    def __init__(self) -> None:
        if not sys.executable:
            raise FileNotFoundError("this interpreter does not say where its executable is")
        self._account: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND], stdin=subprocess.PIPE, stdout=self._account, bufsize=0
            )
        except OSError:
            self._account.close()
            raise
        stdin = self._process.stdin
        if stdin is None:
            raise BrokenPipeError("the exporter was started without an input")
        self._stdin = stdin
        self.fd = stdin.fileno()
        """Writing end; non-blocking."""
        os.set_blocking(self.fd, False)
        if _F_SETPIPE_SZ is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.fd, _F_SETPIPE_SZ, PIPE_BYTES)
        self.written = 0
        """Records that went into the pipe whole."""

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def write(self, data: bytes | memoryview) -> int:
        """Write what fits; 0 when nothing does. Raises `BrokenPipeError` when the process is gone."""
        try:
            if signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL:
                return self._write_masked(data)
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    def _write_masked(self, data: bytes | memoryview) -> int:
        """Write where a broken pipe would kill the trainer: the signal is held back and taken."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        try:
            return os.write(self.fd, data)
        except BrokenPipeError:
            signal.sigtimedwait({signal.SIGPIPE}, 0)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def progress(self) -> Progress:
        """What the exporter last said became of the records."""
        try:
            data = os.pread(self._account.fileno(), 1 << 16, 0)
            return msgspec.json.decode(data.strip(b" \0") or b"{}", type=Progress)
        except (OSError, ValueError):
            return Progress()

    def end_input(self) -> None:
        """Nothing will be written any more."""
        self._stdin.close()

    def finish(self, timeout_s: float) -> Progress:
        """The exporter's last account, within `timeout_s`; a process that takes longer is killed."""
        self.end_input()
        try:
            self._process.wait(max(timeout_s, 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        progress = self.progress()
        self._account.close()
        return progress

    def abandon(self) -> None:
        """Let go in a forked child: the process is the parent's."""
        self._process.returncode = 0
        self._stdin.close()
        self._account.close()
