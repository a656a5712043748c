"""Folds at many ticks, so that every other tick is near one of them.

They lie in a file, not in memory; it has no name and goes with the process. Rules: beyond a budget
every second one is let go and the time between them doubles. Must not know what a fold is.
"""

import os
from bisect import bisect_left, bisect_right, insort

from overwatch.recordings.handles import Scratch


class Checkpoints:
    """Bytes by tick. Not safe for several threads at once."""

    def __init__(self, every_ns: int, most_bytes: int) -> None:
        self.every_ns = every_ns
        """Recording time between two."""
        self._most_bytes = most_bytes
        self._ticks: list[int] = []
        self._places: dict[int, tuple[int, int]] = {}
        self._bytes = 0
        self._scratch = Scratch()

    def __len__(self) -> int:
        return len(self._ticks)

    def __contains__(self, tick: int) -> bool:
        return tick in self._places

    def is_due(self, tick: int, step_ns: int) -> bool:
        """Whether one is wanted after this tick: just before each round time, so that that is near."""
        return (tick + step_ns) % self.every_ns == 0 and tick not in self._places

    def keep(self, tick: int, data: bytes, step_ns: int) -> None:
        """Add one. Raises `OSError` when the disk is full."""
        self._places[tick] = self._scratch.append(data), len(data)
        insort(self._ticks, tick)
        self._bytes += len(data)
        while self._ticks and self._bytes > self._most_bytes:
            self._thin(step_ns)

    def nearest(self, tick: int, floor: int) -> int | None:
        """The last one before a tick, from `floor` on."""
        place = bisect_left(self._ticks, tick) - 1
        return self._ticks[place] if place >= 0 and self._ticks[place] >= floor else None

    def read(self, tick: int) -> bytes:
        """One that is kept."""
        offset, length = self._places[tick]
        return os.pread(self._scratch.fd, length, offset)

    def forget(self, after: int = 0) -> None:
        """Let go of those after a tick."""
        del self._ticks[bisect_right(self._ticks, after) :]
        self._rewrite()

    def _thin(self, step_ns: int) -> None:
        self.every_ns *= 2
        self._ticks = [tick for tick in self._ticks if (tick + step_ns) % self.every_ns == 0]
        self._rewrite()

    def _rewrite(self) -> None:
        old, before = self._scratch, self._places
        self._scratch, self._places, self._bytes = Scratch(), {}, 0
        for tick in self._ticks:
            offset, length = before[tick]
            self._places[tick] = self._scratch.append(os.pread(old.fd, length, offset)), length
            self._bytes += length
