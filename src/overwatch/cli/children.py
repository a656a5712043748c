"""A child process of the demo: its log file, its end, the tail of what it said."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
POLL_S = 0.05
TAIL_BYTES = 2000


class Child:
    """One process in a session of its own, so that a Ctrl-C meant for us does not hit it first."""

    def __init__(self, name: str, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit status, `None` while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Exit status if it ends within the time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, timeout_s: float) -> None:
        """Ask it to end, and after the time end it; says so when that was needed."""
        if self.code is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        if self.wait(timeout_s) is None:
            sys.stderr.write(
                f"{self.name} did not end within {timeout_s:.0f}s and was killed; see {self.log}\n"
            )
            self._process.kill()
            self._process.wait()

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()


def wait_for_file(path: Path, kind: type[T], child: Child, timeout_s: float) -> T | None:
    """The JSON that a child writes when it is ready; `None` when it ended or the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if path.is_file():
            try:
                return msgspec.json.decode(path.read_bytes(), type=kind)
            except msgspec.DecodeError:
                continue
        if child.wait(POLL_S) is not None:
            return None
    return None
