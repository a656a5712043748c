"""The sign of life of a training: a file of each process, whose time is that of its last progress.

Rules: it is touched at most once a second, and a disk that fails then is no error of training. Who no longer
touches it is taken to hang. Must not know what progress is, nor who looks.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

EVERY_S: Final = 1.0


class Alive:
    """The file of this process, named after its place among those of torchrun on this machine."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """What an earlier process left there is removed. Raises `ValueError` where nothing can be written."""
        self.file = folder / environment.get("LOCAL_RANK", "0")
        self._clock = clock
        self._next = -math.inf
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.file.touch()
            self.file.unlink()
        except OSError as error:
            raise ValueError(f"alive is {folder}, which cannot be written: {error}") from error

    def touch(self) -> None:
        """Progress was made."""
        now = self._clock()
        if now >= self._next:
            self._next = now + EVERY_S
            with contextlib.suppress(OSError):
                self.file.touch()
