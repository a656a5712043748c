"""Has checkpoints written while training goes on: the training thread copies, a process writes.

Rules: at most one save is under way; one that comes meanwhile is skipped and counted, the last of a run
waits. A save that failed costs that save only. A folder has one writer: the lock of it is held by the trainer
and by its process, so a resumed trainer waits until the process of a killed one is done. Must not know what
the tensors mean.
"""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from torch import Tensor

from overwatch_rl.checkpoints.manifest import State
from overwatch_rl.checkpoints.reading import versions
from overwatch_rl.checkpoints.writer import Written
from overwatch_rl.checkpoints.writing import Retention
from overwatch_rl.handover.sender import Sender

LOCK: Final = ".lock"
LAST_SAVE_S: Final = 600.0
"""How long the last save of a run may take."""
_BUSY_S: Final = 30.0
_LOOK_S: Final = 0.1


class Manager:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, retention: Retention, *, patience_s: float = _BUSY_S) -> None:
        """Raises `ValueError` when nothing can be written there, or another training writes there."""
        self.folder = folder
        self.skipped = 0
        """Saves that came while one was under way."""
        self._retention = retention
        self._sender: Sender | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ValueError(
                f"{folder.parent} cannot be written: {error.strerror}; name another --out folder"
            ) from error
        try:
            self._hold(patience_s)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def next_lineage(self) -> int:
        """One more than any checkpoint here has."""
        return 1 + max((lineage for (lineage, _), _ in versions(self.folder)), default=0)

    def save(self, state: State, tensors: Mapping[str, Tensor]) -> list[Written]:
        """Have a checkpoint written, each tensor called `file:name`; what became of earlier ones."""
        done = self.finished()
        if self._sender is not None and self._sender.is_busy:
            self.skipped += 1
            return done
        return done + self._offer(state, tensors)

    def finished(self, timeout: float = 0.0) -> list[Written]:
        """What became of saves since the last call; waits that long for one that is under way."""
        if self._sender is None:
            return []
        was_busy = self._sender.is_busy
        found = [msgspec.json.decode(one, type=Written) for one in self._sender.answers(timeout)]
        if self._sender.is_gone:
            pid = self._sender.pid
            self._sender.close(0.0)
            self._sender = None
            if was_busy and not found:
                found.append(self._failed(None, f"its process {pid} ended; the next save starts another"))
        return found

    def close(self, state: State | None, tensors: Mapping[str, Tensor]) -> list[Written]:
        """Save the last one, wait for it, and let go of the folder; what became of all that was under way."""
        try:
            done = self.settle()
            if state is not None:
                done += self._offer(state, tensors) + self.settle()
            return done
        finally:
            if self._sender is not None:
                self._sender.close(LAST_SAVE_S)
            os.close(self._lock)

    def settle(self) -> list[Written]:
        """Wait for a save that is under way; what became of it."""
        if self._sender is None or not self._sender.is_busy:
            return []
        done = self.finished(LAST_SAVE_S)
        if not done:
            done.append(self._failed(None, f"it takes longer than {LAST_SAVE_S:g} s"))
        return done

    def _offer(self, state: State, tensors: Mapping[str, Tensor]) -> list[Written]:
        try:
            if self._sender is None:
                words = [str(self.folder), str(self._retention.keep)]
                self._sender = Sender("overwatch_rl.checkpoints.writer", words, kept=[self._lock])
            is_taken = self._sender.offer(state, tensors)
        except OSError as error:
            return [self._failed(state.updates, f"no memory or process to save from: {error}")]
        return [] if is_taken else [self._failed(state.updates, "its process ended")]

    def _failed(self, updates: int | None, why: str) -> Written:
        return Written(updates=updates or 0, path=str(self.folder), error=why)

    def _hold(self, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise ValueError(
                        f"{self.folder.parent} is written by another training; "
                        "end it, or name another --out folder"
                    ) from error
                time.sleep(_LOOK_S)
            else:
                return
