"""A run of the SDK for a program that is much shorter than a training: nothing is late, nothing kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import overwatch.sdk

PATIENCE_S: Final = 60.0
"""For a machine with much other work."""


@contextmanager
def reporting(**about: Any) -> Iterator[overwatch.sdk.Run]:
    """A run whose collector has its first line before it trains, and its last before it ends."""
    run = overwatch.sdk.start(quiet=True, **about)
    run.log("training begins")
    run.flush(PATIENCE_S)
    with run:
        yield run
        run.close(PATIENCE_S)
