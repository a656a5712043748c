"""Trainers of several modes at once, as processes of their own.

Owns the processes: starts them, reads their lines, stops them. Every trainer ends when this ends: each gets
SIGINT once, and after a while SIGKILL. Must not know how anything is drawn.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

STOP_S: Final = 30.0
"""How long a trainer may take to end before it is killed."""
TAIL: Final = 20
"""Lines of standard error that are kept."""


@dataclass
class Mode:
    """One mode and what its trainer wrote."""

    name: str
    process: subprocess.Popen[str]
    values: list[dict[str, Any]] = field(default_factory=list)
    """A row an update, by short name."""
    view: list[str] = field(default_factory=list)
    """What its first environment sees."""
    outcome: str | None = None
    """`None` while it trains."""
    reason: str | None = None
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))

    def take(self, line: str) -> None:
        """One line of its log; one that is no JSON is passed over."""
        try:
            row = json.loads(line)
        except ValueError:
            return
        if not isinstance(row, dict):
            return
        if row.get("event") == "run ended":
            self.outcome, self.reason = row["outcome"], row["reason"]
        elif row.get("event") == "update":
            self.view = row.get("view", [])
            numbers = {name: float(value) for name, value in row["values"].items()}
            self.values.append({"update": row["update"], **numbers})

    def history(self, name: str) -> list[float | None]:
        """One value over all updates."""
        return [row.get(name) for row in self.values]


class Modes:
    """Trainers side by side; use it as a context, which stops them."""

    def __init__(self, commands: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Pairs of a mode's name and the arguments of `overwatch-rl` for it."""
        self._lock = threading.Lock()
        self.modes = [
            Mode(
                name,
                subprocess.Popen(
                    [sys.executable, "-m", "overwatch_rl.cli", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # Ctrl-C reaches this process, which passes it on once
                ),
            )
            for name, words in commands
        ]
        self._readers = [
            threading.Thread(target=self._read, args=(mode, which), daemon=True)
            for mode in self.modes
            for which in ("stdout", "stderr")
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_training(self) -> bool:
        """Whether any of them still is."""
        return any(mode.process.poll() is None for mode in self.modes)

    def status(self) -> int:
        """0 where all completed or were interrupted, else the first status that is not."""
        failed = (mode.process.returncode for mode in self.modes if mode.outcome != "interrupted")
        return next(filter(None, failed), 0)

    def snapshot(self, mode: Mode) -> tuple[list[dict[str, Any]], list[str]]:
        """Its rows and its view as they are now."""
        with self._lock:
            return list(mode.values), list(mode.view)

    def stop(self) -> None:
        """End all and wait for them."""
        running = [mode for mode in self.modes if mode.process.poll() is None]
        for mode in running:
            mode.process.send_signal(signal.SIGINT)
        until = time.monotonic() + STOP_S
        for mode in running:
            try:
                mode.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                mode.process.kill()
                mode.process.wait()
        for reader in self._readers:
            reader.join()
        for mode in self.modes:
            for stream in (mode.process.stdout, mode.process.stderr):
                if stream is not None:
                    stream.close()

    def _read(self, mode: Mode, which: str) -> None:
        stream = getattr(mode.process, which)
        for line in stream:
            with self._lock:
                if which == "stdout":
                    mode.take(line)
                else:
                    mode.errors.append(line.rstrip("\n"))
