"""The busiest processes of this host: by pid and name, never by command line, which may hold secrets.

Rules: bounded in processes and in words; what cannot be read is left out. Must not know how it is sent.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

import psutil

from overwatch.catalog.processes import BUSIEST, Busy

MOST: Final = 4096
"""Processes that are looked at; of a host with more, the others are not among the busiest."""
_LEAST: Final = 0.005
"""Share of a core below which a process is not busy."""


class Processes:
    """How much of a core each process took since the last look."""

    def __init__(
        self,
        running: Callable[[], Iterable[psutil.Process]] = psutil.process_iter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._running, self._clock = running, clock
        self._before: dict[int, float] = {}
        self._at: float | None = None

    def read(self) -> tuple[Busy, ...]:
        """The busiest, the worst first; none on the first look."""
        now, before = self._clock(), self._before
        elapsed = None if self._at is None else now - self._at
        used: dict[int, float] = {}
        shares: list[tuple[float, psutil.Process]] = []
        for process, _ in zip(self._running(), range(MOST), strict=False):
            try:
                times = process.cpu_times()
            except (psutil.Error, OSError):
                continue
            used[process.pid] = times.user + times.system
            if elapsed and process.pid in before:
                shares.append(((used[process.pid] - before[process.pid]) / elapsed, process))
        self._before, self._at = used, now
        shares.sort(key=lambda pair: -pair[0])
        return tuple(filter(None, (_busy(*pair) for pair in shares[:BUSIEST] if pair[0] >= _LEAST)))


def _busy(cpu: float, process: psutil.Process) -> Busy | None:
    try:
        return Busy(pid=process.pid, name=process.name(), cpu=cpu, ram_bytes=float(process.memory_info().rss))
    except (psutil.Error, OSError):
        return None
