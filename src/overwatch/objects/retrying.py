"""How long a failing operation is repeated: exponential backoff with jitter, until a deadline.

Must not know what is repeated. The clock, the sleep and the draw are given, so that tests need no time.
"""

import random
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

_draw: Final = random.Random()  # noqa: S311 spreads retries, no secret


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """When to give up."""

    deadline_s: float = 120.0
    """After the first try no other begins later than this."""
    request_s: float = 30.0
    """Time without a byte after which one request failed."""
    first_s: float = 0.1
    """The longest wait before the second try; it doubles from there."""
    most_s: float = 10.0
    """The longest wait before any try."""

    def __post_init__(self) -> None:
        """Raise `ValueError` naming the value."""
        for name in ("deadline_s", "request_s", "first_s", "most_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; use seconds above 0")


class Tries:
    """The tries of one operation: `for _ in tries`, left by `return`; it ends when the deadline has come."""

    def __init__(
        self,
        patience: Patience,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[float, float], float] = _draw.uniform,
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self._draw = draw

    def __iter__(self) -> Iterator[int]:
        """0, 1, 2, …, with a wait between."""
        until = self._clock() + self._patience.deadline_s
        yield 0
        most, number = self._patience.first_s, 1
        while True:
            wait = self._draw(0.0, min(most, self._patience.most_s))
            if self._clock() + wait >= until:
                return
            self._sleep(wait)
            yield number
            most, number = most * 2, number + 1
