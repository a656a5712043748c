"""The exporter `command`: a message as JSON to a program; its exit status is what became of it.

Rules: no shell; arguments are the operator's, telemetry is on standard input alone. A program that takes too
long is killed with all that it started. Its output is not read. Must not know when a message is due.
"""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from overwatch.collector.exporters.notices import Notice, NotifierConfig

TEMPFAIL: Final = 75
"""Exit status of a program that wants another try: EX_TEMPFAIL of sysexits.h."""
_REAPED_S: Final = 5.0


class CommandConfig(NotifierConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.command`."""

    argv: tuple[str, ...] = ()
    """The program and its arguments; no shell reads them. A message is on its standard input."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.argv and not self.argv[0]:
            raise ValueError("argv is empty; give the program and its arguments, e.g. [/usr/bin/page]")

    @property
    def missing(self) -> tuple[str, str] | None:
        """The key without which nothing can be sent, and what to do; `None` where it is there."""
        if self.argv:
            return None
        return "argv", "the command has no program; give one, e.g. [/usr/local/bin/page]"

    @property
    def shown(self) -> str:
        """The program's name; arguments may be secret."""
        return Path(self.argv[0]).name

    def deliver(self, notice: Notice) -> tuple[str, float | None]:
        """Run the program once. Status 0 is arrived, 75 another try, any other lost."""
        try:
            process = subprocess.Popen(
                self.argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"cannot be started: {error.strerror or type(error).__name__}", 0.0
        try:
            # A program that does not read its input is none the worse: a closed pipe is no error here.
            process.communicate(notice.body("json"), timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return f"did not end in {self.timeout_s:g} s and was killed", 0.0
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
