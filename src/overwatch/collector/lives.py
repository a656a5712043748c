"""How the lives before this one ended, and how much of their past this one may fold.

Rules: a life notes its stage in the journal's folder. One that was killed while it loaded the past or had
much memory in use, or while its control group counted a kill for want of memory, ended by that as far as can
be known; any other kill is none.
After one such life the past gets less memory, after three in a row nothing of it is folded, so that no start
repeats what killed the ones before. What is left out is missing in the fold, never in the recording. A life
that lasts ends the row. Must not know what a fold holds.
"""

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from overwatch.background import Periodic
from overwatch.cgroup import ControlGroup
from overwatch.collector.health import Health
from overwatch.collector.limits import LimitsConfig, Resident, reclaim
from overwatch.journal import Folder, Note

OF_LIMIT: Final = (0.9, 0.7, 0.5)
"""Part of the memory from which on requests are refused that the past may take, by killed lives in a row:
what is left over keeps the collector accepting. Nothing is folded after more."""
LASTS_S: Final = 180.0
"""A life of so long is no part of a row, in seconds."""
_LEAST_GAIN: Final = 16
"""Giving memory back is worth it where it gives this part of the limit."""
_LOOK_S: Final = 1.0
_PART: Final = "resume"

_log = logging.getLogger("overwatch.collector")


class Stage(Enum):
    """What a life does."""

    FOLDING = "folding"
    """It loads what earlier lives knew, or folds what they journalled with much memory."""
    RUNNING = "running"
    """It has memory left."""
    PRESSED = "pressed"
    """It refuses requests for want of memory."""
    STOPPED = "stopped"
    """It ended by itself."""


class _Noted(msgspec.Struct, frozen=True, kw_only=True):
    """The note."""

    stage: Stage
    killed: int = 0
    """Lives in a row, before the one that wrote this, that were killed for want of memory."""
    oom_kills: int = 0
    """What the control groups had counted when it began."""


_noted: Final = msgspec.json.Decoder(_Noted).decode


class Lives:
    """The note of one data folder. `start` once the past can be folded, `stop` at a clean end."""

    def __init__(
        self,
        folder: Folder,
        health: Health,
        limits: LimitsConfig,
        *,
        resident: Callable[[], int] | None = None,
        now: Callable[[], float] = time.monotonic,
        oom_kills: Callable[[], int] | None = None,
    ) -> None:
        self._note = Note(folder, "lives")
        self._health = health
        self._soft = limits.soft_bytes
        self._resident, self._now = resident or Resident(), now
        self._lock = threading.Lock()
        self._looking = Periodic("lives", _LOOK_S, self.look)
        self._began = now()
        self._is_full = self._is_done = False
        self._left_out: list[str] = []
        self._oom_kills = (oom_kills or ControlGroup().oom_kills)()
        self.killed = self._count()
        """Lives in a row, before this one, that were killed for want of memory."""
        self._written: _Noted | None = None
        self._write(Stage.FOLDING)

    @property
    def folds_nothing(self) -> bool:
        """Whether all of the past is left out."""
        return self.killed >= len(OF_LIMIT)

    def has_room(self) -> bool:
        """Whether more of the past can be folded; where it could not, memory is given back first."""
        if self._is_full or self.folds_nothing:
            return False
        limit = OF_LIMIT[self.killed] * self._soft
        held = self._resident()
        self._write(Stage.FOLDING if held > self._soft // 2 else Stage.RUNNING)
        if held > limit:
            reclaim()
            left = self._resident()
            self._is_full = left > limit or held - left < limit / _LEAST_GAIN
        return not self._is_full

    def leave_out(self, what: str) -> None:
        """Note that this too of the past is not folded, in the log and in the health."""
        self._left_out.append(what)
        why = f"{self._soft >> 20} MiB are the memory to accept within"
        if self.killed:
            why = f"the last {self.killed} lives were killed for want of memory, {why}"
        self._health.failed(
            _PART,
            f"left out of the live view: {', '.join(self._left_out)}; the recording has all of it ({why}; "
            "for more set receivers.otlp.limits.limit_mib, or give the process more memory)",
        )

    def done(self, left_out: int) -> None:
        """The past is folded, but for so many batches."""
        if left_out:
            self.leave_out(f"the last {left_out} batches that earlier lives journalled")
        self._is_done = True
        self.look()

    def start(self) -> None:
        """Begin to look at memory."""
        self._looking.start()

    def stop(self) -> None:
        """Note that this life ended by itself."""
        self._looking.stop()
        self._write(Stage.STOPPED)

    def look(self) -> None:
        """Note what memory is like now, and that this life lasts."""
        if self._now() - self._began >= LASTS_S:
            self.killed = 0
            self._health.recovered(_PART)
        if self._is_done:
            self._write(Stage.PRESSED if self._resident() > self._soft else Stage.RUNNING)

    def _count(self) -> int:
        """The border to the disk: what cannot be read was no kill."""
        try:
            data = self._note.read()
            before = _Noted(stage=Stage.STOPPED) if data is None else _noted(data)
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("the note of the life before cannot be read: %s", error)
            return 0
        is_killed = before.stage in (Stage.FOLDING, Stage.PRESSED) or (
            before.stage is Stage.RUNNING and self._oom_kills > before.oom_kills
        )
        return before.killed + 1 if is_killed else 0

    def _write(self, stage: Stage) -> None:
        """The border to the disk: without a note the next start is only less careful."""
        with self._lock:
            killed = 0 if stage is Stage.STOPPED else self.killed
            noted = _Noted(stage=stage, killed=killed, oom_kills=self._oom_kills)
            if noted == self._written:
                return
            self._written = noted
            try:
                self._note.write(msgspec.json.encode(noted))
            except OSError as error:
                _log.warning("the stage of this life cannot be noted: %s", error.strerror or error)
