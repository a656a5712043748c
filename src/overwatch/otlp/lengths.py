"""What is known of bytes by their length: the templates of each, and how often strange ones came.

Owns which shapes are worth a template: one whose length came a few times, and where the templates of a length
keep failing, ever more seldom: to learn one costs as much as some parsing. Bounded in memory; the length that
was not seen for longest goes first. Safe from any thread. Must not know what the bytes say.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

LEARN_AT: Final = 3
"""How often a length must have come."""
MORE_SELDOM: Final = 4
"""How many times as many must come before the next try."""
MOST_LENGTHS: Final = 1024
MOST_OF_ONE: Final = 4
"""Templates of one length: clients of one fleet send as many bytes under different names."""


class Shape(Protocol):
    """A template, as far as it is kept."""

    @property
    def length(self) -> int:
        """Bytes of what it reads."""

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""


_Shape = TypeVar("_Shape", bound=Shape)


@dataclass(slots=True)
class _Length(Generic[_Shape]):
    """What is known of one length."""

    strange: int = 0
    """How many came whose shape no template had."""
    due: int = LEARN_AT
    """At how many of them a template is learned."""
    shapes: tuple[_Shape, ...] = ()
    """The one that fitted last is the first."""


class Lengths(Generic[_Shape]):
    """Templates by length."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._lengths: OrderedDict[int, _Length[_Shape]] = OrderedDict()
        self._bytes = 0
        self.learned = 0
        """Templates kept so far."""

    def of(self, length: int) -> tuple[_Shape, ...]:
        """The templates of a length."""
        known = self._lengths.get(length)
        return () if known is None else known.shapes

    def is_due(self, length: int) -> bool:
        """Take note of strange bytes; whether their shape should be learned."""
        with self._lock:
            known = self._known(length)
            known.strange += 1
            if known.strange < known.due:
                return False
            known.due = known.strange * MORE_SELDOM
            return True

    def put_first(self, shape: _Shape) -> None:
        """Note that this one of several fitted."""
        with self._lock:
            known = self._known(shape.length)
            if shape in known.shapes:
                known.shapes = (shape, *(other for other in known.shapes if other is not shape))

    def keep(self, shape: _Shape) -> None:
        """Take a template, unless it is larger than all may be together."""
        if shape.cost > self._most:
            return
        with self._lock:
            self.learned += 1
            known = self._known(shape.length)
            shapes = shape, *known.shapes
            known.shapes = shapes[:MOST_OF_ONE]
            self._bytes += shape.cost - sum(gone.cost for gone in shapes[MOST_OF_ONE:])
            while self._bytes > self._most:
                self._forget()

    def _known(self, length: int) -> _Length[_Shape]:
        known = self._lengths.get(length)
        if known is None:
            known = self._lengths[length] = _Length()
        self._lengths.move_to_end(length)
        if len(self._lengths) > MOST_LENGTHS:
            self._forget()
        return known

    def _forget(self) -> None:
        """Let go of the length that was not seen for longest."""
        _, gone = self._lengths.popitem(last=False)
        self._bytes -= sum(shape.cost for shape in gone.shapes)
