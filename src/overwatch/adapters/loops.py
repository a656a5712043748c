"""A foreign training loop while it is watched: its phase, and who calls.

Rules: there is one phase at a time, however calls are nested: one that begins within another interrupts it,
so that their times add up to the loop's; a pause (an evaluation, a checkpoint) is not interrupted. Must not
know which library calls.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from overwatch.adapters.border import Bordered, kept_out
from overwatch.catalog.phases import is_pause
from overwatch.sdk import Run

T = TypeVar("T")


class Phases(Bordered):
    """The phases of one run, until `close`."""

    def __init__(self, run: Run) -> None:
        self._run: Run | None = run
        self._open = ExitStack()
        self._now: str | None = None

    @kept_out
    def switch(self, phase: str | None) -> None:
        """End the phase that is open, and begin another or none."""
        self._open.close()
        self._now = phase
        if phase is not None and self._run is not None:
            self._open.enter_context(self._run.phase(phase))

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Be in a phase, and then again in the one around it."""
        outer = self._now
        if outer is not None and is_pause(outer):
            yield
            return
        self.switch(phase)
        try:
            yield
        finally:
            self.switch(outer)

    def close(self) -> None:
        """The loop is over; what still ends around it is no phase."""
        self.switch(None)
        self._run = None


def caller(kind: type[T]) -> T:
    """The nearest object of a kind whose method calls this: some libraries give a hook all but themselves."""
    frame = inspect.currentframe()
    while frame is not None:
        if isinstance(found := frame.f_locals.get("self"), kind):
            return found
        frame = frame.f_back
    raise LookupError(f"no {kind.__name__} calls this hook: give the callback to one")
