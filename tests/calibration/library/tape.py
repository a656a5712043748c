"""A run's link that ends in this process: what the exporter would send, with the stamps it would arrive at.

Owns what lies between the SDK and a collector: the exporter's window of a tenth of a second, its requests,
the sampler of this machine. All that a user touches, `sdk.start`, `Run` and the adapters, is the real one.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from overwatch.events import Event, Measured
from overwatch.sdk import launch
from overwatch.sdk.exporter.batch_encoder import started
from overwatch.sdk.exporter.core import _URGENT, SEND_S, WINDOW_S
from overwatch.sdk.exporter.gpus import Trainer
from overwatch.sdk.exporter.record_events import is_plain, non_finite, unpacked
from overwatch.sdk.exporter.sampler import Sampler
from overwatch.sdk.exporter.window import Window
from overwatch.sdk.frames import Hello, Rolled, SpanEnded, Update
from overwatch.sdk.link import Outcome
from overwatch.sdk.rings.records import Content, Form, content_of
from overwatch.sdk.rings.writer import Entry
from tests.calibration.library.series import Moment

_DELAY_NS: Final = 5_000_000
"""From a request to its receive stamp."""


class Tape:
    """What all runs of a training sent."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.start_ns = time.time_ns()
        self.updates = 0

    def arrived(self, at_s: float, rank: int, events: list[Event]) -> None:
        """Append one request."""
        now = time.time_ns() - int((time.monotonic() - at_s) * 1e9)
        self.moments.append(Moment(now - self.start_ns + _DELAY_NS, rank, tuple(events)))

    def since(self) -> int:
        """Nanoseconds since the start."""
        return time.time_ns() - self.start_ns


class LocalLink:
    """Takes frames as the link to an exporter does."""

    exporter_pid = None
    rings = None

    def __init__(self, hello: Hello, tape: Tape) -> None:
        self.role, self._rank, self._words = hello.role, hello.rank, hello.words
        self._tape = tape
        self._lock = threading.Lock()
        self._window = Window(hello.started.chosen, hello.started.config)
        self._held: list[Event] = []
        self._is_urgent, self._taken = False, 0
        self._due = self._send_at = time.monotonic()
        self._emit(started(hello, node="library", sha=None, dirty=None))
        self._close_windows(is_last=True)
        self._sampler = Sampler(hello.run_id, self._emit, Trainer(node="library")) if hello.sample else None
        if self._sampler is not None:
            self._sampler.start()

    def send(self, frame: Content) -> None:
        """Take one frame."""
        if isinstance(frame, SpanEnded):
            return
        with self._lock:
            self._close_windows()
            self._taken += 1
            self._tape.updates += isinstance(frame, Update)
            if isinstance(frame, Update) and is_plain(frame):
                self._window.add_update(frame, size=1)
                return
            for event in unpacked(frame, self._words):
                self._add(event, is_rolled=isinstance(frame, Rolled))

    def offer(self, record: Entry, *, is_fact: bool) -> bool:  # noqa: ARG002 there is room for all
        """Take steps of a rollout."""
        self.send(content_of(record, _no_form)[0])
        return True

    def _emit(self, event: Event) -> None:
        with self._lock:
            self._close_windows()
            self._add(event)

    def _add(self, event: Event, *, is_rolled: bool = False) -> None:
        self._is_urgent |= isinstance(event, _URGENT)
        self._window.add(event, size=1, is_rolled=is_rolled)
        if isinstance(event, Measured):
            for seen in non_finite(event):
                self._is_urgent = True
                self._window.add(seen, size=1)

    def _close_windows(self, *, is_last: bool = False) -> None:
        """Do what the exporter's clock has done until now."""
        now = time.monotonic()
        while self._due <= now or is_last:
            if self._window.size_bytes:
                passed = self._window.take()
                self._held += [*passed.numbers, *passed.facts]
            if self._held and (self._is_urgent or is_last or self._due >= self._send_at):
                self._tape.arrived(min(self._due, now), self._rank, self._held)
                self._held, self._is_urgent, self._send_at = [], False, self._due + SEND_S
            if is_last:
                return
            self._due = self._due + WINDOW_S if self._held else max(self._due + WINDOW_S, now)

    def count_drop(self, reason: str) -> None:
        """A call that the run refused would be lost from the library."""
        raise AssertionError(f"a call was dropped: {reason}")

    def uses(self) -> int:
        """Frames taken."""
        return self._taken

    def flush(self, _: float) -> bool:
        """Nothing waits for a collector."""
        return True

    def close(self, _: float, *, at_exit: bool = False) -> Outcome:  # noqa: ARG002 it ends here
        """Everything was taken."""
        if self._sampler is not None:
            self._sampler.stop()
        with self._lock:
            self._close_windows(is_last=True)
        return Outcome(accepted=self._taken, delivered=self._taken, kept=0, dropped={})

    def abandon(self, _: Callable[[], None]) -> None:
        """The stream belongs to the parent."""


def _no_form(number: int) -> Form:
    raise LookupError(f"form {number}: nothing is written by one here")


def record() -> Tape:
    """Have every run that starts in this process from now on write to a tape."""
    tape = Tape()
    setattr(launch, "Link", lambda hello: LocalLink(hello, tape))  # noqa: B010 it is the SDK's own
    return tape
