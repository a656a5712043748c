"""Scalars that a program logs by name and step become updates and episodes of a run.

Rules: the run starts with the first number. Nothing raises into training and nothing waits. A run that no
program closes ends with the program. Must not know who logs: `tensorboard` and `wandb` do.
"""

import atexit
import sys
from collections.abc import Callable, Mapping
from typing import Final

from overwatch.adapters.border import Bordered, flush_at_exit, kept_out
from overwatch.adapters.logged_updates import LoggedUpdates
from overwatch.adapters.numbers import number_of
from overwatch.adapters.starting import given_library
from overwatch.catalog import CUSTOM_PREFIX
from overwatch.sdk import Run
from overwatch.sdk.ending import COMPLETED
from overwatch.sdk.exits import way_out

UNCLOSED: Final = "the SummaryWriter was dropped without close()"
_UNKNOWN: Final = ("ended", UNCLOSED)
_LEFT: Final[list["Scalars"]] = []
"""Those that were dropped and never closed."""


class Scalars(Bordered):
    """One run, from what is logged."""

    def __init__(self, begin: Callable[[], Run], library: str | None = None) -> None:
        self._begin = begin
        self._run: Run | None = None
        self._updates = LoggedUpdates(given_library(library))
        self._shown = id(None)
        """The newest exception that nothing caught when the newest number came."""
        flush_at_exit(self)

    @property
    def run(self) -> Run:
        """The run, which starts here at the latest."""
        if self._run is None:
            while _LEFT:
                _LEFT.pop().close(*_UNKNOWN)
            self._run = self._begin()
        return self._run

    @kept_out
    def add(self, name: str, value: object, step: float | None = None) -> None:
        """One scalar."""
        number = number_of(name, value)
        if number is not None:
            self._shown = id(getattr(sys, "last_value", None))
            self._updates.add(self.run, name, number, step)

    @kept_out
    def end(self) -> None:
        """The open update is whole."""
        if self._run is not None:
            self._updates.end(self._run)

    @kept_out
    def aside(self, values: Mapping[str, object]) -> None:
        """Numbers that are of no update."""
        found = {f"{CUSTOM_PREFIX}{name}": number_of(name, value) for name, value in values.items()}
        self.run.gauge(**{name: number for name, number in found.items() if number is not None})

    @kept_out
    def close(self, outcome: str | None = None, reason: str | None = None) -> None:
        """Send what is left and end the run, if it has started."""
        self.flush()
        if self._run is not None:
            self._run.close(outcome=outcome, reason=reason)

    @kept_out
    def flush(self) -> None:
        """Send what is left."""
        if self._run is not None:
            self._updates.finish(self._run)

    @kept_out
    def leave(self) -> None:
        """It was dropped and never closed: what is left is sent.

        A notebook shows the exception that ended its cell; one that was caught leaves nothing behind. Without
        one no more is known than that it ended, when another begins or with the program, unless that fails.
        """
        error = getattr(sys, "last_value", None)
        if self._run is not None and error is not None and id(error) != self._shown:
            self._run.note_error(error)
            self.close()
        else:
            self.flush()
            _LEFT.append(self)


@atexit.register
def _end_left() -> None:
    """The program ends; the SDK, which was loaded before, ends the other runs after this."""
    if way_out() == COMPLETED:
        while _LEFT:
            _LEFT.pop().close(*_UNKNOWN)
