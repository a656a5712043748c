"""The dips of this machine's GPUs, as a process of its own reads them: see `dipping`.

Rules: no thread waits for that process. It is started when dips are asked for, one for all runs of this
exporter; it ends when no run asks any more, or with the exporter. What it did not write lately is absent.
Must not know how readings are sent.
"""

import contextlib
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

STALE_S: Final = 3.0
AGAIN_S: Final = 5.0
"""From the end of one process to the start of the next."""
UNASKED_S: Final = 10.0
"""Without a question for so long, it ends."""
COMMAND: Final = (sys.executable, "-m", "overwatch.sdk.exporter.dipping")


class DipWatch:
    """The newest line of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_running = False
        self._begin_at = self._asked_at = self._newest_at = -math.inf
        self._newest: dict[str, dict[str, float]] = {}

    def of(self, uuid: str) -> Mapping[str, float]:
        """The dips of one GPU, by catalogue name; empty where they are not known."""
        with self._lock:
            now = self._asked_at = time.monotonic()
            if not self._is_running and now >= self._begin_at:
                self._is_running = True
                threading.Thread(target=self._run, name="overwatch-dips", daemon=True).start()
            return self._newest.get(uuid, {}) if now - self._newest_at <= STALE_S else {}

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._read()
        with self._lock:
            self._is_running, self._begin_at = False, time.monotonic() + AGAIN_S

    def _read(self) -> None:
        with subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            try:
                for line in process.stdout or ():
                    found = json.loads(line)
                    with self._lock:
                        self._newest, self._newest_at = found, time.monotonic()
                        if self._newest_at - self._asked_at > UNASKED_S:
                            return
            finally:
                process.kill()


SHARED: Final = DipWatch()
"""That of this process."""
