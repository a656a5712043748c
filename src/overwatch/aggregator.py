"""The only loop: seal a tick, fold what was accepted before it, publish the frame by one reference.

Rules: every tick is taken, in order, so that a recording replays to the same frames; a loop that falls
behind takes its ticks late, never skips them. Sinks are called in this thread and must return at once.
Must not know what sinks do with a frame.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from overwatch.fold import FAST_NS, Fold, Frame, next_tick
from overwatch.journal import Cursor
from overwatch.snapshot import View

__all__ = ["Aggregator", "Frame", "FrameSink"]

MAX_VIEWS: Final = 32

_log = logging.getLogger("overwatch.aggregator")


class FrameSink(Protocol):
    """A reader of frames."""

    def publish(self, frame: Frame) -> None:
        """Take one frame; returns at once."""

    def close(self) -> None:
        """Finish what was taken."""


class Aggregator:
    """The aggregator thread over one journal cursor."""

    def __init__(self, cursor: Cursor, now: Callable[[], int], sinks: Sequence[FrameSink] = ()) -> None:
        self._cursor = cursor
        self._now = now
        self._sinks = tuple(sinks)
        self._fold = Fold()
        self._views: Counter[tuple[str | None, View]] = Counter()
        self._views_lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aggregator", daemon=True)
        self._tick = next_tick(now())
        self.frame: Frame | None = None
        """The latest frame, one reference."""
        self.sink_errors = 0

    def start(self) -> None:
        """Begin ticking."""
        self._thread.start()

    def stop(self, timeout_s: float) -> int:
        """Fold everything journalled, publish the last frame; returns the last tick taken."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return self._tick - FAST_NS

    def watch(self, run_id: str | None, view: View) -> None:
        """Register interest in a view of a run, `None` being the newest; raises `ValueError` beyond 32."""
        with self._views_lock:
            if (run_id, view) not in self._views and len(self._views) >= MAX_VIEWS:
                raise ValueError(
                    f"{MAX_VIEWS} different views are watched already; use one that is open, e.g. the default"
                )
            self._views[run_id, view] += 1

    def unwatch(self, run_id: str | None, view: View) -> None:
        """Withdraw one `watch`."""
        with self._views_lock:
            self._views[run_id, view] -= 1
            self._views += Counter()

    def _run(self) -> None:
        while not self._stopping.is_set():
            wait_s = (self._tick - self._now()) / 1e9
            if wait_s > 0:
                self._stopping.wait(wait_s)
                continue
            self._take_tick()
        self._finish()

    def _finish(self) -> None:
        """Reach past everything that was accepted, then one slow tick on, so that the end is logged."""
        slow_end = next_tick(self._now()) + 10 * FAST_NS
        while self._tick <= slow_end:
            self._take_tick()

    def _take_tick(self) -> None:
        batches = self._cursor.seal(self._tick)
        with self._views_lock:
            views = tuple(self._views)
        frame = self._fold.advance(self._tick, batches, views)
        self._tick += FAST_NS
        self.frame = frame
        for sink in self._sinks:
            self._publish(sink, frame)

    def _publish(self, sink: FrameSink, frame: Frame) -> None:
        try:
            sink.publish(frame)
        except Exception:  # noqa: BLE001 a named border: counted, said once, the others go on
            self.sink_errors += 1
            if self.sink_errors == 1:
                _log.exception("a snapshot exporter failed; its later failures are only counted")
