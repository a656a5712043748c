"""What every component is given: the journal, the loop, the counters, and where to say its address.

Must not know which components there are.
"""

import logging
from dataclasses import dataclass
from typing import Protocol

from overwatch.aggregator import Aggregator
from overwatch.collector.health import Health
from overwatch.collector.intake import Intake
from overwatch.collector.loop import LoopThread
from overwatch.collector.net import Listening
from overwatch.collector.tally import Tally
from overwatch.journal import MemoryJournal, Signal
from overwatch.serve.stream import Bell

_log = logging.getLogger("overwatch.collector")


class Component(Protocol):
    """A part of the collector. `stop` may follow a `start` that failed, and a second `stop` does nothing."""

    def start(self) -> None:
        """Begin to work; raises `AddressError` or `OSError` when it cannot."""
        ...

    def stop(self) -> None:
        """Finish what was begun."""
        ...


class Board:
    """Where components say what they listen at."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}

    def note(self, name: str, scheme: str, listening: Listening) -> None:
        """Write down an address; one that moved is logged with the reason."""
        self._urls[name] = listening.address.url(scheme)
        if listening.moved is not None:
            _log.warning("%s: %s", name, listening.moved)

    def url(self, name: str) -> str | None:
        """The URL of a door, `None` while it is not open."""
        return self._urls.get(name)

    @property
    def urls(self) -> dict[str, str]:
        """All URLs by name of the door."""
        return dict(self._urls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The collector as its components see it."""

    journal: MemoryJournal
    intake: Intake
    loop: LoopThread
    health: Health
    tally: Tally
    board: Board
    bell: Bell
    signals: frozenset[Signal]
    """Signals that a pipeline takes in."""
    recorded: frozenset[Signal]
    """Signals that a pipeline writes to files."""
    aggregator: Aggregator | None = None
    """Set for the components that are made after the aggregator."""
