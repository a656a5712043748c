"""Records of one length among many, read at once by the templates of their shapes.

Rules: a record that no template knows is left out; of each length one that is strange is kept until somebody
learns, who should be in no hurry. Bounded in memory; safe from any thread. Must not know what is read.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from overwatch.otlp.frames import Place
from overwatch.otlp.lengths import Lengths
from overwatch.otlp.mask import Bytes
from overwatch.otlp.result import Rest
from overwatch.otlp.rows import RowShape

LEAST: Final = 8
"""Records of one length from which on a template pays."""
MOST: Final = 256
"""Records that are read at once: as arrays they take many times their bytes."""
LARGEST: Final = 1 << 10
"""Bytes of a record from which on hardly another one is of its length."""
MOST_BYTES: Final = 4 << 20
"""Memory of all templates."""
_MOST_WAITING: Final = 64

_Read_co = TypeVar("_Read_co", covariant=True)
_Read = TypeVar("_Read")


class Template(Protocol[_Read_co]):
    """What is known of one shape."""

    @property
    def shape(self) -> RowShape:
        """What its records have in common."""

    @property
    def length(self) -> int:
        """Bytes of a record."""

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""

    def read(self, rows: Bytes) -> Sequence[_Read_co | None]:
        """Records, one a row; `None` where one is not certainly of this shape."""


class Groups(Generic[_Read]):
    """Templates of records."""

    def __init__(self, learned: Callable[[bytes], Template[_Read] | None]) -> None:
        """`learned` makes the template of a record, where there is one."""
        self._learned = learned
        self._shapes: Lengths[Template[_Read]] = Lengths(MOST_BYTES)
        self._strange: deque[bytes] = deque(maxlen=_MOST_WAITING)
        """Records whose shapes are not known, until somebody learns."""

    @property
    def learned(self) -> int:
        """Templates made so far."""
        return self._shapes.learned

    def read(self, body: bytes, places: Iterable[Place], rest: Rest = None) -> dict[int, _Read]:
        """What records of known shapes are, by where they begin. May `rest` meanwhile."""
        by_length: dict[int, list[int]] = {}
        for start, stop in places:
            by_length.setdefault(stop - start, []).append(start)
        read: dict[int, _Read] = {}
        data = np.frombuffer(body, np.uint8)
        for length, starts in by_length.items():
            if len(starts) < LEAST or length > LARGEST:
                continue
            for first in range(0, len(starts), MOST):
                if rest is not None:
                    rest()
                self._read(data, length, starts[first : first + MOST], read)
        return read

    def learn(self) -> None:
        """Learn the shapes that pay of what was strange: as much work as some parsing."""
        while self._strange:
            record = self._strange.popleft()
            if self._shapes.is_due(len(record)) and (made := self._learned(record)) is not None:
                self._shapes.keep(made)

    def _read(self, data: Bytes, length: int, starts: list[int], read: dict[int, _Read]) -> None:
        """Read records of one length, as far as their shapes are known."""
        for known in self._shapes.of(length):
            told = known.read(known.shape.at(data, starts))
            read.update((start, one) for start, one in zip(starts, told, strict=True) if one is not None)
            starts = [start for start, one in zip(starts, told, strict=True) if one is None]
            if not starts:
                return
        self._strange.append(data[starts[0] : starts[0] + length].tobytes())
