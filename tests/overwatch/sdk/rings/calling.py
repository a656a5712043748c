"""A run whose calls go into real rings and come out as events, without a process between."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from uuid import uuid4

from overwatch.events import Event, Measured
from overwatch.sdk.exporter.record_events import is_plain, unpacked
from overwatch.sdk.exporter.window import Window
from overwatch.sdk.frames import Frame, Update
from overwatch.sdk.link import Link, Outcome
from overwatch.sdk.names import DIALECT, Dialect
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import Item, RingSource
from overwatch.sdk.run import Run


class Rings:
    """As much of a link as a run needs: its rings."""

    exporter_pid = None
    role = "trainer"

    def __init__(self, rings: RingSet) -> None:
        self.rings = rings

    def send(self, frame: Frame) -> None:
        """Hand in a frame."""
        self.rings.put(frame)

    def count_drop(self, reason: str) -> None:
        """Nothing is dropped."""
        raise AssertionError(reason)

    def uses(self) -> int:
        """Records handed over so far."""
        return self.rings.account().accepted

    def close(self, timeout_s: float, *, at_exit: bool = False) -> Outcome:
        """Nothing to deliver."""
        assert timeout_s == 0.0
        assert not at_exit
        return Outcome(accepted=0, delivered=0, kept=0, dropped={})


class Called:
    """A trainer's calls, on their way to events."""

    def __init__(self, rings: RingSet, reading: str, dialect: Dialect) -> None:
        self._rings = rings
        self.run = Run("r", cast("Link", Rings(rings)), dialect=dialect)
        self._source = RingSource(rings.path)
        self._limit = 1 if reading == "single" else 4096
        self._window = Window()
        self.events: list[Measured] = []
        self.facts: list[Event] = []

    def read(self) -> None:
        """Take what the rings hold."""
        while items := self._source.read(self._limit):
            for item in items:
                self._take(item)
                self._source.done(item)

    def _take(self, item: Item) -> None:
        if isinstance(item.content, Update) and is_plain(item.content):
            self._window.add_update(item.content, size=item.size)
            return
        for event in unpacked(item.content, None):
            self._window.add(event)

    def read_all(self) -> None:
        """Everything, also what waits for room."""
        while not self._rings.numbers.flush():
            self.read()
        self.read()
        self.close_window()

    def close(self) -> None:
        """Close the run and the files of both sides."""
        self.run.close(0.0)
        self._source.close()
        self._rings.abandon()
        self._rings.unlink()
        for ring in (self._rings.numbers.ring, self._rings.facts.ring):
            ring.close()

    def close_window(self) -> None:
        """Take what a window has gathered."""
        passed = self._window.take()
        self.events += passed.numbers
        self.facts += passed.facts


@contextmanager
def called(limits: RingLimits, reading: str, dialect: Dialect = DIALECT) -> Iterator[Called]:
    """A run on rings of its own, read one record after another (`single`) or many at once (`many`)."""
    with tempfile.TemporaryDirectory() as folder:
        rings = RingSet(uuid4().hex, limits, folders=[Path(folder)])
        path = Called(rings, reading, dialect)
        try:
            yield path
        finally:
            path.close()
