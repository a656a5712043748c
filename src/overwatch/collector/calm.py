"""Whether somebody waits for a request to be taken in: who is in no hurry works in the moments between.

Rules: doors never wait here. Who rests does so for a bounded share of the time, so that nothing is put off
for good where the doors are never calm. Must not know what anybody does.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHARE: Final = 0.5
"""The share of its time that somebody in no hurry may rest..."""
_SAVED_S: Final = 0.05
"""...of which so much is saved up at most, in seconds."""
_LONGEST_S: Final = 0.005
"""The longest rest at once, in seconds."""


class Calm:
    """Requests that are being taken in; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = 0
        self._is_calm = threading.Event()
        self._is_calm.set()

    def begin(self) -> None:
        """A request is being taken in, until `end`."""
        with self._lock:
            self._busy += 1
            if self._busy == 1:
                self._is_calm.clear()

    def end(self) -> None:
        """It is not any more."""
        with self._lock:
            self._busy -= 1
            if not self._busy:
                self._is_calm.set()

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """A request is being taken in while the block runs."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def wait(self, most_s: float) -> None:
        """Return once nobody's request is being taken in, after `most_s` seconds in any case."""
        self._is_calm.wait(most_s)


class Patience:
    """Somebody in no hurry; for one thread."""

    def __init__(self, calm: Calm, now: Callable[[], float] = time.monotonic) -> None:
        self._calm = calm
        self._now = now
        self._saved_s = 0.0
        self._looked_at = now()

    def rest(self) -> float:
        """Wait for a calm moment, as long as the share allows; returns how long that took, in seconds."""
        began = self._now()
        self._saved_s = min(self._saved_s + (began - self._looked_at) * SHARE, _SAVED_S)
        self._calm.wait(min(self._saved_s, _LONGEST_S))
        self._looked_at = self._now()
        rested = self._looked_at - began
        self._saved_s -= rested
        return rested
