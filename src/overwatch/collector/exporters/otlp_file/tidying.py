"""The process that keeps a recording small: when it is started, and what it reported.

Rules: never two at a time; a few seconds after a rotation at the soonest, and otherwise when something may
have come of age; it is no loss when it is killed. What it reports becomes metrics. Must not know what the
process does.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from overwatch.background import give_way
from overwatch.collector.exporters.otlp_file.config import OtlpFileConfig
from overwatch.recordings.tidy import CompactionJob, Report

_EVERY_S: Final = 60.0
_SHRUNK_BYTES: Final = 16 << 20
"""By so much the room must shrink to bring a clean-up forward."""
_TELL_BYTES: Final = 2000
_told: Final = msgspec.json.Decoder(Report).decode


class Tidying:
    """Used from one thread. `stop` it."""

    def __init__(
        self, config: OtlpFileConfig, room: Callable[[], int], done: Callable[[Report], None]
    ) -> None:
        """`room` is how many bytes the recording may have on disk; `done` gets each report."""
        self._config = config
        self._room = room
        self._done = done
        self._process: subprocess.Popen[bytes] | None = None
        self._next_at = 0.0
        """Monotonic; a rotation brings it forward, and less room."""
        self._ordered = 0
        """The room at the last start."""

    def rotated(self) -> None:
        """There is something to do."""
        self._next_at = 0.0

    def look(self, now: int, through: int) -> None:
        """Take a report, or start a clean-up that is due. `through` is the newest piece that may be touched.

        Raises `OSError` when the process cannot be started.
        """
        process = self._process
        if process is not None:
            if process.poll() is None:
                return
            self._process = None
            self._done(_report(*process.communicate()))
        if self._room() < self._ordered - _SHRUNK_BYTES:
            self._next_at = 0.0
        if through > 0 and now > 0 and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _EVERY_S
            self._start(now, through)

    def stop(self) -> None:
        """End what is under way; what it had not finished is as if it had not begun."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with contextlib.suppress(ValueError):
                process.communicate()

    def _start(self, now: int, through: int) -> None:
        thinning, self._ordered = self._config.thinning, self._room()
        job = CompactionJob(
            folder=str(self._config.path),
            now=now,
            through=through,
            rules=self._config.rules(self._ordered),
            before_s=thinning.before_s,
            after_s=thinning.after_s,
            parent=os.getpid(),
        )
        command = [sys.executable, "-m", "overwatch.recordings.tidy", msgspec.json.encode(job).decode()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        give_way(self._process.pid)


def _report(said: bytes, complained: bytes) -> Report:
    """What the process said; its last words where it said nothing that can be read."""
    try:
        return _told(said)
    except msgspec.DecodeError:
        last = complained[-_TELL_BYTES:].decode(errors="replace").strip().rpartition("\n")[2]
        return Report(error=last or "the clean-up ended without a report")
