"""Updates of one form folded where they are told, while the ring is full: a few numbers for each name.

Owns how they lie in memory, which compiled code adds to; opening one and reading it is Python's. A value is
beyond a limit where it is at or below the lower bound of that limit, or at or above the upper one. Pure. Must
not know rings.
"""

from collections.abc import Sequence
from typing import Final

from overwatch.sdk.conflate import Bounds, Count, Span

_OPEN, _COUNT, _AT, _INDEX, _HAS_INDEX, _UPDATES, _FIRST, _HAS_FIRST = range(8)
_WORDS: Final = 8
"""Words before the numbers."""
_LAST, _LOW, _HIGH, _WARNINGS, _CRITICALS, _NAN, _INF = range(7)
_WIDTH: Final = 11
"""Numbers of a name, its four bounds behind the others."""
_NOTHING: Final = (0.0, float("inf"), float("-inf"), 0.0, 0.0, 0.0, 0.0)


class Tally:
    """What came of the updates of one form since it was opened; while it is closed nothing is added."""

    def __init__(self, names: Sequence[str], bounds: Sequence[Bounds]) -> None:
        self.names = tuple(names)
        """Full names."""
        self.memory = memoryview(bytearray(8 * (_WORDS + _WIDTH * len(self.names))))
        self._words = self.memory.cast("q")
        self._numbers = self.memory[8 * _WORDS :].cast("d")
        self._empty = [number for bound in bounds for number in (*_NOTHING, *bound)]

    def open(self) -> None:
        """Begin anew."""
        for place, number in enumerate(self._empty):
            self._numbers[place] = number
        self._words[_COUNT] = self._words[_UPDATES] = 0
        self._words[_OPEN] = 1

    @property
    def count(self) -> int:
        """Calls in it."""
        return self._words[_COUNT]

    def close(self) -> tuple[int, Count, list[Span]]:
        """What came of each name, with the newest's moment and the updates; nothing is added any more."""
        words = self._words
        words[_OPEN] = 0
        first = words[_FIRST] if words[_HAS_FIRST] else None
        count = Count(words[_UPDATES], first, words[_INDEX] if words[_HAS_INDEX] else None)
        return words[_AT], count, [self._span(place, self.count) for place in range(len(self.names))]

    def _span(self, place: int, count: int) -> Span:
        of = self._numbers[_WIDTH * place : _WIDTH * (place + 1)].tolist()
        nan, inf = int(of[_NAN]), int(of[_INF])
        is_finite = count > nan + inf
        return Span(
            low=of[_LOW] if is_finite else None, high=of[_HIGH] if is_finite else None,
            n=count, last=of[_LAST], nan=nan, inf=inf,
            breaches=(int(of[_WARNINGS]), int(of[_CRITICALS])),
        )  # fmt: skip
