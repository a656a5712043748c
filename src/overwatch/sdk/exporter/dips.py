"""Dips of a GPU's utilisation over the newest minute: their share of the time, and how long they are.

A dip is a stretch of readings below `DIP_BELOW`, as long as the window at most; each reading holds until the
next one. They are read by a process of its own, see `dipping`. Rules: no thread waits for that process. It is
started when dips are asked for, one for all runs of this exporter; it ends when no run asks any more, or with
the exporter. What it did not write lately is absent. Must not know how readings are sent.
"""

import contextlib
import json
import math
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from overwatch.catalog.machine import DIP_LENGTH, DIP_SHARE

WINDOW_S: Final = 60.0
DIP_BELOW: Final = 0.5
LONGEST_S: Final = 0.5
"""From one reading to the next: of a longer stretch nothing is known, and a dip ends at it."""
_NEARLY_ALL: Final = 0.95
STALE_S: Final = 3.0
AGAIN_S: Final = 5.0
"""From the end of one process to the start of the next."""
UNASKED_S: Final = 10.0
"""Without a question for so long, it ends."""
COMMAND: Final = (sys.executable, "-m", "overwatch.sdk.exporter.dipping")


class Dips:
    """Those of one GPU; who reads gives the time."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, utilization: float) -> None:
        """A reading, later than those before it."""
        self._readings.append((at_s, utilization))
        while self._readings[0][0] < at_s - WINDOW_S:
            self._readings.popleft()

    def numbers(self) -> dict[str, float]:
        """By catalogue name; the length is absent where there was no dip, both where no time is known."""
        known = below = length = 0.0
        lengths: list[float] = []
        for (at, utilization), (until, _) in pairwise(self._readings):
            is_known = until - at <= LONGEST_S
            is_dip = is_known and utilization < DIP_BELOW
            known += until - at if is_known else 0.0
            if is_dip:
                length += until - at
            elif length:
                lengths.append(length)
                below, length = below + length, 0.0
        if length:
            lengths.append(length)
        if not known:
            return {}
        share = {DIP_SHARE.name: min((below + length) / known, 1.0)}
        if not lengths:
            return share
        return share | {DIP_LENGTH.name: sorted(lengths)[math.ceil(_NEARLY_ALL * len(lengths)) - 1]}


class DipWatch:
    """The newest line of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_running = False
        self._begin_at = self._requested_at = self._newest_at = -math.inf
        self._newest: dict[str, dict[str, float]] = {}

    def of(self, uuid: str) -> Mapping[str, float]:
        """The dips of one GPU, by catalogue name; empty where they are not known."""
        with self._lock:
            now = self._requested_at = time.monotonic()
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
                        if self._newest_at - self._requested_at > UNASKED_S:
                            return
            finally:
                process.kill()


SHARED: Final = DipWatch()
"""That of this process."""
