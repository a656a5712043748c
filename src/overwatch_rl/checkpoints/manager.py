"""Has checkpoints written while training goes on: the training thread copies, a process writes.

Rules: at most one save is under way; one that comes meanwhile is skipped and counted, the last of a run
waits. A save that failed costs that save only. A place has one writer. The lock of a folder is held by the
trainer and by its process, so a resumed trainer waits until the process of a killed one is done; in an object
store a trainer claims the next lineage, and those of earlier ones can write no more. Must not know what the
tensors mean.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from torch import Tensor

from overwatch.objects.store import is_remote
from overwatch_rl.checkpoints.manifest import State
from overwatch_rl.checkpoints.store import Retention, Saving, claim, open_place, versions_in
from overwatch_rl.checkpoints.writer import Written
from overwatch_rl.handover.locks import held_lock
from overwatch_rl.handover.sender import Sender

LOCK: Final = ".lock"
LAST_SAVE_S: Final = 600.0
"""How long the last save of a run may take."""
_BUSY_S: Final = 30.0
_POLL_INTERVAL_S: Final = 0.1


class Manager:
    """The checkpoints of one run."""

    def __init__(
        self,
        place: Path | str,
        retention: Retention,
        saving: Saving | None = None,
        *,
        after: int = 0,
        patience_s: float = _BUSY_S,
    ) -> None:
        """`place` is a folder, or the URL of one in an object store; `after` the lineage that goes on there.

        Raises `ValueError` when nothing can be written there, or another training writes there.
        """
        # Absolute, so that each process that reads the path of a checkpoint finds it.
        self.place = place if is_remote(place) else Path(place).absolute()
        self.skipped = 0
        """Saves that came while one was under way."""
        self._after = after
        self._retention = retention
        self._saving = saving or Saving()
        self._sender: Sender | None = None
        self._cursor: dict[str, Any] | None = None
        """Of the save that is under way."""
        self._lock: int | None = None
        self._lineage: int | None = None
        if is_remote(place):
            self._lineage = self._claimed(str(place))
            return
        self._lock = held_lock(Path(place) / LOCK, patience_s, "writes checkpoints", Path(place).parent)

    @property
    def next_lineage(self) -> int:
        """One more than any checkpoint here has, and what goes on; in an object store the claimed one."""
        if self._lineage is not None:
            return self._lineage
        return 1 + max((self._after, *(version.lineage for version in versions_in(open_place(self.place)))))

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way, of which `finished` has not given what became of it."""
        return self._sender is not None and self._sender.is_busy

    @property
    def where(self) -> str:
        """The place in words, without options."""
        return str(self.place).partition("?")[0]

    def save(self, state: State, tensors: Mapping[str, Tensor]) -> list[Written]:
        """Have a checkpoint written, each tensor called `file:name`; what became of earlier ones."""
        done = self.finished()
        if self.is_busy:
            self.skipped += 1
            return done
        return done + self._offer(state, tensors)

    def finished(self, timeout: float = 0.0) -> list[Written]:
        """What became of saves since the last call; waits that long for one that is under way."""
        if self._sender is None:
            return []
        was_busy = self._sender.is_busy
        answers = [msgspec.json.decode(one, type=Written) for one in self._sender.answers(timeout)]
        found = [msgspec.structs.replace(one, cursor=self._cursor) for one in answers]
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
            if self._lock is not None:
                os.close(self._lock)

    def settle(self) -> list[Written]:
        """Wait for a save that is under way; what became of it."""
        if not self.is_busy:
            return []
        done = self.finished(LAST_SAVE_S)
        if not done:
            done.append(self._failed(None, f"it takes longer than {LAST_SAVE_S:g} s"))
        return done

    def _offer(self, state: State, tensors: Mapping[str, Tensor]) -> list[Written]:
        try:
            if self._sender is None:
                rules = [
                    msgspec.json.encode(one, enc_hook=str).decode() for one in (self._retention, self._saving)
                ]
                kept = [] if self._lock is None else [self._lock]
                words = [str(self.place), *rules]
                self._sender = Sender("overwatch_rl.checkpoints.writer", words, kept=kept)
            is_taken = self._sender.offer(state, tensors)
        except OSError as error:
            return [self._failed(state.updates, f"no memory or process to save from: {error}")]
        self._cursor = state.cursor
        return [] if is_taken else [self._failed(state.updates, "its process ended")]

    def _failed(self, updates: int | None, why: str) -> Written:
        return Written(updates=updates or 0, path=self.where, error=why)

    def _claimed(self, url: str) -> int:
        store = open_place(url, self._saving.patience)
        store.check()
        try:
            return claim(store)
        except OSError as error:
            raise ValueError(f"{self.where} cannot be written: {error}") from error
