"""A program that `overwatch watch` runs beside the screen: its process, its console, its end.

Rules: it has a session of its own, so that neither a Ctrl-C meant for the screen nor the end of the terminal
reaches it; its output goes to a file, or to where ours goes, so that nothing breaks when this process leaves
it running. Must not know screens or collectors.
"""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from overwatch.sdk.ending import signal_name
from overwatch.sdk.exporter.parent import Parent

_TAIL_BYTES: Final = 8192
_MOST_NEW: Final = 1 << 16
"""Bytes of its console that are read at once; of more the newest."""
_SHELL: Final = 128
"""A shell's status of a program that a signal ended is this plus the signal."""


class ProgramError(ValueError):
    """The program cannot be started; the message names it and why."""


class Program:
    """One process."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], console: Path | None = None
    ) -> None:
        """Start it; without a `console` file its output goes to this process's. Raises `ProgramError`."""
        self.console = console
        self._is_interrupted = False
        self._read_to = 0
        """Bytes of the console that `new_lines` has given."""
        try:
            with contextlib.ExitStack() as held:
                output = None if console is None else held.enter_context(console.open("ab"))
                self._process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=None if output is None else subprocess.STDOUT,
                    env=dict(environment),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ProgramError(f"{shlex.join(command)} cannot be started: {reason}") from error
        self.shown = Path(next((word for word in command if word.endswith(".py")), command[0])).name
        self.pid = self._process.pid
        self._fate = Parent(self.pid)

    @property
    def status(self) -> int | None:
        """As a shell has it: the exit status, or 128 and the signal that ended it; `None` while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else _SHELL - code

    @property
    def ended(self) -> str | None:
        """How it ended; `None` while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"{self.shown} ended with status {code}"
        memory = self._fate.out_of_memory if code == -signal.SIGKILL else None
        why = "" if memory is None else f": out of memory (control group {memory})"
        return f"{self.shown} was killed by {signal_name(-code)}{why}"

    def interrupt(self) -> str:
        """Pass Ctrl-C on to all of it, once; what came of that."""
        if self._is_interrupted:
            return f"SIGINT was sent to {self.shown} ({self.pid}) already · q leaves it running"
        self._is_interrupted = True
        self.send(signal.SIGINT)
        return f"SIGINT sent to {self.shown} ({self.pid}) · q leaves it running"

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self) -> int:
        """Wait for its end; its status."""
        self._process.wait()
        return self.status or 0

    def new_lines(self) -> list[str]:
        """What it has printed since the last call, whole lines only; none without a console of its own."""
        if self.console is None:
            return []
        with self.console.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            self._read_to = max(self._read_to, end - _MOST_NEW)
            file.seek(self._read_to)
            whole = file.read(end - self._read_to).rpartition(b"\n")[0]
        self._read_to += len(whole) + bool(whole)
        return whole.decode(errors="replace").split("\n") if whole else []

    def tail(self, lines: int) -> list[str]:
        """The last lines of its console; none without one."""
        if self.console is None:
            return []
        with self.console.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-lines:]
