"""Dips of a GPU's utilisation over the newest minute: their share of the time, and how long they are.

A dip is a stretch of readings below `DIP_BELOW`, as long as the window at most; each reading holds until the
next one. Pure: who reads gives the time. Must not know who reads.
"""

import math
from collections import deque
from itertools import pairwise
from typing import Final

from overwatch.catalog.machine import DIP_LENGTH, DIP_SHARE

WINDOW_S: Final = 60.0
DIP_BELOW: Final = 0.5
LONGEST_S: Final = 0.5
"""From one reading to the next: of a longer stretch nothing is known, and a dip ends at it."""
_NEARLY_ALL: Final = 0.95


class Dips:
    """One GPU."""

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
