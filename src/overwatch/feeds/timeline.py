"""A place in time and what moves it: seek, step, play, pause. What is shown there is made by who derives.

Owns the arithmetic of ticks, gaps and speeds. No clock, no thread: who plays says how much time went by.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Protocol

from overwatch.fold import FAST_NS, SLOW_NS, Frame
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.history import Ask, History

SLOWEST: Final = 0.1
_OPENING_TICKS: Final = 60
"""A run is shown so many seconds after its first record at the latest."""
FASTEST: Final = 1000.0
"""Recording seconds a second."""


class Cancelled(Exception):  # noqa: N818 what happened, as `asyncio.CancelledError`
    """The way to another place is given up; raised by what is called with the part that is done."""


class Span(Protocol):
    """A stretch of ticks without a gap."""

    @property
    def first(self) -> int:
        """First tick, Unix nanoseconds."""

    @property
    def last(self) -> int:
        """Last tick."""


class Timeline(ABC):
    """A place; `frame` is what is there."""

    def __init__(self, spans: Sequence[Span]) -> None:
        """Stand at the first tick of the first span; there must be one."""
        self._spans = spans
        self._frame: Frame | None = None
        self._clock = self.first
        self.paused = True
        self.follows = False
        """More may come: playing does not end at the end."""
        self.folded = 0
        """Ticks folded so far: what seeking cost."""
        self._speed = 1.0

    @property
    def frame(self) -> Frame:
        """What is at the current place."""
        return self.seek(self.first) if self._frame is None else self._frame

    @property
    def first(self) -> int:
        """First tick, Unix nanoseconds."""
        return self._spans[0].first

    @property
    def last(self) -> int:
        """Last tick, Unix nanoseconds."""
        return self._spans[-1].last

    @property
    def position(self) -> int:
        """The current tick."""
        return self.frame.tick

    @property
    def speed(self) -> float:
        """Recording seconds a second while playing."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        if not SLOWEST <= speed <= FASTEST:
            raise ValueError(f"speed {speed:g} does not play; use {SLOWEST:g} to {FASTEST:g}")
        self._speed = speed

    def seek(self, time: int) -> Frame:
        """Go to the last tick at or before a Unix time in nanoseconds; beyond the ends, to the end.

        What is `Cancelled` on the way leaves the place as it was.
        """
        tick = self._settle(time)[1]
        before, clock = self._frame, self._clock
        if before is None or before.tick != tick:
            try:
                self._frame = self._show(tick)
            except Cancelled:
                self._frame = None if before is None else self._show(before.tick)
                self._clock = clock
                raise
        self._clock = max(time, self.first)
        return self.frame

    def begin(self, run_id: str | None) -> None:
        """Go to where a run, or with `None` any, is shown first; to the first tick where that is far."""
        self.seek(self.begun)
        for _ in range(_OPENING_TICKS):
            if self.look(run_id, View()) is not None:
                return
            self.step()
        self.seek(self.first)

    @property
    def begun(self) -> int:
        """When the first record came, Unix nanoseconds."""
        return self.first

    def step(self, by: int = 1) -> Frame:
        """Go `by` recorded ticks (whole seconds) on, or back when negative; stays at the ends."""
        tick = self.position
        for _ in range(abs(by)):
            tick = self._recorded_after(tick) if by > 0 else self._recorded_before(tick)
        return self.seek(tick)

    def advance(self, elapsed_ns: int, most_ticks: int | None = None) -> Frame:
        """Play on for so long, gaps left out; stands still while paused and pauses at the end.

        With `most_ticks` no further than that many ticks take to make, however fast it plays.
        """
        if self.paused:
            return self.frame
        clock = self._clock + int(elapsed_ns * self._speed)
        segment, _ = self._settle(self._clock)
        if clock > segment.last > self.position:
            clock = segment.last
        elif clock > segment.last:
            later = [other.first for other in self._spans if other.first > segment.last]
            clock = later[0] if later else self.last
            self.paused = not later and not self.follows
        if most_ticks is not None:
            clock = min(clock, max(self._clock, self._reachable(clock, most_ticks)))
        return self.seek(clock)

    @property
    def known(self) -> float:
        """Which part of the past of the current tick is in `history`; a fold holds all of it."""
        return 1.0

    @property
    @abstractmethod
    def looked(self) -> float:
        """Which part of it was looked through, for what is known of the whole."""

    @abstractmethod
    def look(self, run_id: str | None, view: View) -> Snapshot | None:
        """Another view of the current tick, of a run or of the newest; `None` where there is no such run."""

    @abstractmethod
    def history(self, run_id: str | None, ask: Ask) -> History | None:
        """The past of a run, or of the newest, up to the current tick; `None` where there is no such run."""

    @abstractmethod
    def _show(self, tick: int) -> Frame:
        """Make the frame of a tick of a span."""

    def _reachable(self, time: int, most_ticks: int) -> int:  # noqa: ARG002 others need it
        """The latest time up to one that costs at most so many ticks."""
        return time

    def _settle(self, time: int) -> tuple[Span, int]:
        place = bisect_right(self._spans, time, key=lambda span: span.first)
        span = self._spans[max(0, place - 1)]
        return span, min(max(time // FAST_NS * FAST_NS, span.first), span.last)

    def _recorded_after(self, tick: int) -> int:
        for span in self._spans:
            following = -(-max(tick + 1, span.first) // SLOW_NS) * SLOW_NS
            if following <= span.last:
                return following
        return tick

    def _recorded_before(self, tick: int) -> int:
        for span in reversed(self._spans):
            preceding = min(tick - 1, span.last) // SLOW_NS * SLOW_NS
            if preceding >= span.first:
                return preceding
        return tick
