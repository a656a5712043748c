"""A message to a command: JSON on its standard input, what became of it by its exit status.

Rules: no shell; arguments are the operator's, telemetry is on standard input alone. A command that takes too
long is killed with all that it started. Its output is not read. Must not know when a message is due.
"""

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from overwatch.serve.notices import Notice

TEMPFAIL: Final = 75
"""Exit status of a command that wants another try: EX_TEMPFAIL of sysexits.h."""
_REAPED_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is run."""

    argv: tuple[str, ...]
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("argv is empty; give the program and its arguments, e.g. [/usr/local/bin/page]")
        if not 0 < self.timeout_s <= 60:
            raise ValueError(f"a command ends within 60 s or is killed, not {self.timeout_s} s")


class Command:
    """Carries messages to a program, a process a message."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def shown(self) -> str:
        """The program's name; arguments may be secret."""
        return Path(self._program.argv[0]).name

    def deliver(self, notice: Notice) -> tuple[str, float | None]:
        """Run the program once; see `Carrier`. Status 0 is arrived, 75 another try, any other lost."""
        try:
            process = subprocess.Popen(
                self._program.argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"cannot be started: {error.strerror or type(error).__name__}", 0.0
        try:
            # A program that does not read its input is none the worse: a closed pipe is no error here.
            process.communicate(notice.body("json"), timeout=self._program.timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return f"did not end in {self._program.timeout_s:g} s and was killed", 0.0
        except BaseException:
            _kill(process)
            raise
        if process.returncode == TEMPFAIL:
            return f"exit status {TEMPFAIL}: another try", 0.0
        return (f"exit status {process.returncode}", None) if process.returncode else ("", None)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process with its group, and let go of it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    process.wait(_REAPED_S)
