"""Processes that a command starts: a program beside the screen, a collector for it, a trainer of the demo.

Rules: each has a session of its own, so that neither a Ctrl-C meant for the screen nor the end of the
terminal reaches it; its output goes to a file, or to where ours goes, so that nothing breaks when this
process leaves it running. Must not know screens.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from overwatch.discovery import Endpoints
from overwatch.sdk.ending import signal_name
from overwatch.sdk.exporter.parent import Parent

POLL_S: Final = 0.05
READY_S: Final = 30.0
"""Longest start of a collector."""
_TAIL_BYTES: Final = 8192
_MOST_NEW: Final = 1 << 16
"""Bytes of its console that are read at once; of more the newest."""
_SHELL: Final = 128
"""A shell's status of a program that a signal ended is this plus the signal."""


class ProgramError(ValueError):
    """The program cannot be started; the message names it and why."""


def tail(log: Path, lines: int = 20) -> list[str]:
    """The last lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()[-lines:]


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
    def code(self) -> int | None:
        """Exit status, or the signal that ended it as a negative number; `None` while it runs."""
        return self._process.poll()

    @property
    def status(self) -> int | None:
        """As a shell has it: the exit status, or 128 and the signal that ended it; `None` while it runs."""
        code = self.code
        return code if code is None or code >= 0 else _SHELL - code

    @property
    def ended(self) -> str | None:
        """How it ended; `None` while it runs."""
        code = self.code
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

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its status once it has ended; `None` where it did not within the time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.status

    def stop(self, timeout_s: float) -> None:
        """Request its end, and after the time end it; warns when that was needed."""
        if self.code is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        if self.wait(timeout_s) is None:
            log = "" if self.console is None else f"; see {self.console}"
            sys.stderr.write(f"{self.shown} did not end within {timeout_s:.0f}s and was killed{log}\n")
            self._process.kill()
            self._process.wait()

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
        return [] if self.console is None else tail(self.console, lines)


def child(name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Program:
    """A program of ours; its log is in a folder."""
    started = Program(command, {**os.environ, **environment}, folder / f"{name}.log")
    started.shown = name
    return started


def collector(folder: Path, arguments: Sequence[str]) -> Program:
    """`overwatch collect`; where it listens, once it does, is in the folder."""
    command = [sys.executable, "-m", "overwatch.cli", "collect", *arguments]
    return child("collector", command, folder, {"OVERWATCH_READY_FILE": str(folder / "ready.json")})


def wait_ready(started: Program, folder: Path) -> Endpoints:
    """Where a `collector` listens; raises `ClickException` where it does not start."""
    deadline = time.monotonic() + READY_S
    ready = folder / "ready.json"
    while time.monotonic() < deadline:
        if ready.is_file():
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(ready.read_bytes(), type=Endpoints)
        if started.wait(POLL_S) is not None:
            break
    log = "\n".join(started.tail(20))
    raise click.ClickException(f"the collector did not start; its log is {started.console}:\n{log}")
