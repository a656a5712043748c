"""Standard input as rows: its lines are passed on as they come.

Rules: a look waits a little for bytes, never for a whole line. Where what is passed on has no reader, it is
read on all the same. Must not know what the lines mean.
"""

import os
import select
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from overwatch.follow.base import Logged, Reader

_CHUNK: Final = 1 << 16
_IN, _OUT = 0, 1


class StandardInput:
    """What another program writes into a pipe."""

    def __init__(self, reader: Reader, wait_s: float) -> None:
        self.path = Path("-")
        self.reader: Reader | None = reader
        self.waiting: deque[Logged] = deque()
        self.is_over = False
        self._wait_s = wait_s
        self._is_passed_on = True

    def look(self) -> bool:
        """Read what came, waiting up to `wait_s` for it."""
        if self.reader is None or self.is_over or not select.select([_IN], [], [], self._wait_s)[0]:
            return bool(self.waiting)
        data = os.read(_IN, _CHUNK)
        self.is_over = not data
        self._pass_on(data)
        self.waiting.extend(self.reader.feed(data))
        return bool(self.waiting)

    def take(self) -> Logged:
        """The oldest row that waits."""
        return self.waiting.popleft()

    def end(self) -> None:
        """It is not read on."""
        if self.reader is not None:
            self.waiting.extend(self.reader.end())

    def remarks(self) -> Iterator[str]:
        """What could not be used."""
        for problem, count in self.reader.known.problems.items() if self.reader else ():
            yield f"standard input: {count:,} {problem}"

    def _pass_on(self, data: bytes) -> None:
        while data and self._is_passed_on:
            try:
                data = data[os.write(_OUT, data) :]
            except OSError:
                self._is_passed_on = False
