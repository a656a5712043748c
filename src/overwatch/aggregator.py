"""The only loop: seal a tick, fold what was accepted before it, publish the frame by one reference.

Owns going on after a restart: the fold of a checkpoint, what was journalled since folded again without a
frame, then live ticks. Rules: every tick is taken, in order, so that a recording replays to the same frames;
a loop that falls behind takes its ticks late. It passes over those of a gap alone, in which this process did
not run: the journal holds the start record at which a replay goes on too. Sinks are called in this thread
and must return at once. Must not know what sinks do with a frame.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import msgspec

from overwatch.fold import FAST_NS, SLOW_NS, Fold, Frame, TowerStats, life_of, next_tick
from overwatch.journal import Batch, Cursor, Signal
from overwatch.runs import Tracked
from overwatch.snapshot import View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery

__all__ = ["Aggregator", "Checkpoint", "CheckpointSink", "Frame", "FrameSink", "Past", "Resumed"]

MAX_VIEWS: Final = 32

LONGEST_SILENCE_NS: Final = 300 * SLOW_NS
"""Ticks without a batch that are folded again after a restart; what is longer is passed over."""

_PATIENCE_S: Final = 0.05
"""How long who asks for the past of a run may wait for what is being written, in seconds."""

_GAP: Final = (
    "for %.1f s nothing was received or folded: this process was stopped, its machine slept, or it had no "
    "CPU or disk; the silence of runs counts from now"
)

_R = TypeVar("_R")

_log = logging.getLogger("overwatch.aggregator")


class FrameSink(Protocol):
    """A reader of frames."""

    def publish(self, frame: Frame) -> None:
        """Take one frame; returns at once."""

    def close(self) -> None:
        """Finish what was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that the next life needs to go on from here."""

    tick: int
    """The last tick in the fold, Unix nanoseconds."""
    position: int
    """Sequence of the first batch that is not in the fold."""
    batches: int
    """How many are in the fold..."""
    ticks: int
    """...and how many ticks it took, since it began empty."""
    fold: bytes
    """As of `Fold.dump`."""
    took_s: float = 0.0
    """How long that took."""


class CheckpointSink(Protocol):
    """Who keeps checkpoints."""

    def due(self, tick: int) -> bool:
        """Whether one should be taken after this tick."""

    def keep(self, checkpoint: Checkpoint) -> None:
        """Take one; returns at once."""


class Past(Protocol):
    """How much of what earlier lives journalled may be folded."""

    def has_room(self) -> bool:
        """Whether more of it can be folded; asked before each tick with batches."""

    def done(self, left_out: int) -> None:
        """It is folded, but for so many batches, the newest."""


@dataclass(slots=True, kw_only=True)
class Resumed:
    """Where a life begins: with nothing, or where an earlier one was."""

    fold: Fold = field(default_factory=Fold)
    tick: int = 0
    """Last tick in the fold, 0 for none."""
    past: Past | None = None
    """How much of what follows may be folded; all, if left out."""


class Aggregator:
    """The aggregator thread over one journal cursor."""

    def __init__(
        self,
        cursor: Cursor,
        now: Callable[[], int],
        sinks: Sequence[FrameSink] = (),
        resumed: Resumed | None = None,
        checkpoints: CheckpointSink | None = None,
        *,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """Its thread calls `settle` before it works."""
        resumed = resumed or Resumed()
        self._cursor = cursor
        self._now = now
        self._sinks = tuple(sinks)
        self._checkpoints = checkpoints
        self._settle = settle
        self.archive: Callable[[Tracked], None] = lambda _: None
        """Gets each run that made room; set before `start`."""
        self._fold = resumed.fold
        self._past = resumed.past
        self._taken = resumed.tick
        """The last tick in the fold."""
        self._views: Counter[tuple[str | None, View]] = Counter()
        self._views_lock = threading.Lock()
        self._requested: deque[Callable[[], None]] = deque()
        """What answers those who wait for the past of a run."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aggregator", daemon=True)
        self._tick = next_tick(now())
        self.frame: Frame | None = None
        """The latest frame, one reference."""
        self.sink_errors = 0
        self.checkpoint_errors = 0
        """Checkpoints that could not be made of the fold."""
        self.faults = 0
        """Ticks that met an error of ours, and what was to be folded at them is left out."""
        self._stated = 0
        """Troubles of the fold when one was last logged."""

    def start(self, stamp: int | None = None) -> None:
        """Begin ticking, at the first tick at or after `stamp`, or else after this aggregator was made."""
        if stamp is not None:
            self._tick = next_tick(stamp)
        self._thread.start()

    def stop(self, timeout_s: float) -> int:
        """Fold everything journalled, publish the last frame; returns the last tick taken."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return self._tick - FAST_NS

    @property
    def is_running(self) -> bool:
        """Whether its thread goes on."""
        return self._thread.is_alive()

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

    def behind_s(self) -> float:
        """How long ago the latest frame's tick was, seconds: a loop that falls behind shows the past."""
        frame = self.frame
        return 0.0 if frame is None else max(0.0, (self._now() - frame.tick) / 1e9)

    def history(self, run_id: str | None, query: HistoryQuery) -> "Future[History | None]":
        """The past of a run, `None` being the newest, as of the next tick; from any thread, returns at once.

        The result is `None` where there is no such run.
        """
        return self._request(lambda: self._fold.history(run_id, query))

    def heat(self, run_id: str | None, query: HeatQuery) -> "Future[HeatMap | None]":
        """Envs or lanes of a run over time, as `history`."""
        return self._request(lambda: self._fold.heat(run_id, query))

    def _request(self, read: Callable[[], _R]) -> "Future[_R]":
        coming: Future[_R] = Future()

        def answer() -> None:
            """Read, and hand over what comes of it."""
            if not coming.set_running_or_notify_cancel():
                return
            try:
                coming.set_result(read())
            except Exception as error:  # noqa: BLE001 a named border: who asked gets it
                coming.set_exception(error)

        self._requested.append(answer)
        return coming

    def _answer(self) -> None:
        while self._requested:
            self._requested.popleft()()

    def _run(self) -> None:
        self._settle()
        self._catch_up()
        self._tick = max(self._tick, self._taken + FAST_NS)
        while not self._stopping.is_set():
            wait_s = (self._tick - self._now()) / 1e9
            if wait_s > 0:
                self._stopping.wait(wait_s)
                continue
            self._take_tick()
        self._finish()

    def _finish(self) -> None:
        """Reach past everything that was accepted, to a slow tick, so that all of it is logged."""
        reached = self._now()
        while self._tick <= -(-next_tick(reached) // SLOW_NS) * SLOW_NS:
            tick = self._tick
            self._take_tick()
            if self._tick > tick + FAST_NS:
                reached = self._now()
        self._checkpoint(self._cursor.position)

    def _catch_up(self) -> None:
        """Fold what earlier lives journalled after the checkpoint, at the ticks that a replay takes.

        Where there is no more room for it, the rest is passed over, so that the start is not killed for it.
        """
        due: list[Batch] = []
        tick = left_out = 0
        for batch in self._cursor.earlier():
            if due and (batch.signal is Signal.START or next_tick(batch.stamp) > tick):
                self._take_again(tick, due)
                due = []
                if self._checkpoints is not None and self._checkpoints.due(self._taken):
                    self._checkpoint(batch.sequence)
            if left_out or not (due or self._has_room()):
                left_out += 1
                continue
            if batch.signal is Signal.START:
                self._enter_life(batch)
            elif self._taken == 0:
                self._taken = next_tick(batch.stamp) - FAST_NS
            tick = max(next_tick(batch.stamp), self._taken + FAST_NS)
            due.append(batch)
        if due:
            self._take_again(tick, due)
        if due or left_out:
            # Lives shorter than the time between two checkpoints must not make the next start longer.
            self._checkpoint(self._cursor.position)
        if self._past is not None:
            self._past.done(left_out)

    def _has_room(self) -> bool:
        return self._past is None or self._past.has_room()

    def _enter_life(self, start: Batch) -> None:
        """Go to the first tick of a life, as its own aggregator did."""
        try:
            life = life_of(start.body)
            after = life.after if life.version else 0
        except msgspec.DecodeError:
            after = 0
        if after is None:
            self._fold = Fold(self._fold.read)
        elif after > self._taken > 0:
            self._take_again(after, [])
        self._taken = max(self._taken, next_tick(start.stamp) - FAST_NS)

    def _take_again(self, tick: int, batches: list[Batch]) -> None:
        """Take every tick up to this one, without frames: they were published before."""
        self._taken = max(self._taken, tick - LONGEST_SILENCE_NS)
        for passed in range(self._taken + FAST_NS, tick, FAST_NS):
            self._fold_again(passed, [])
        self._fold_again(tick, batches)
        self._taken = tick

    def _fold_again(self, tick: int, batches: list[Batch]) -> None:
        """A border: what met an error of ours in an earlier life does not keep this one from going on."""
        try:
            self._fold.take(tick, batches)
            self._put_away()
        except Exception as error:  # noqa: BLE001 as named
            self._fault(tick, error)

    def _put_away(self) -> None:
        for run in self._fold.evicted:
            self.archive(run)

    def _fault(self, tick: int, error: Exception) -> None:
        """Log what the fold did not outlive: the first time, and whenever it has become twice as often."""
        self.faults += 1
        if self.faults & (self.faults - 1) == 0:
            _log.error("tick %d is left out, the %d. so far", tick, self.faults, exc_info=error)

    def _checkpoint(self, position: int) -> None:
        """A border: a fold that cannot be written makes the next start longer, and this life goes on."""
        if self._checkpoints is None:
            return
        began = time.perf_counter()
        try:
            data = self._fold.dump()
        except Exception:  # noqa: BLE001 as named
            self.checkpoint_errors += 1
            if self.checkpoint_errors == 1:
                _log.exception("the fold cannot be written; a restart folds the journal again instead")
            return
        tower = self._fold.tower
        self._checkpoints.keep(
            Checkpoint(
                tick=self._taken,
                position=position,
                batches=tower.batches,
                ticks=tower.ticks,
                fold=data,
                took_s=time.perf_counter() - began,
            )
        )

    def _take_tick(self) -> None:
        """The border of the thread: an error of ours takes one tick.

        Of a gap no tick is taken: the fold goes on at the start record that ends it, as after a restart.
        """
        try:
            gap = self._cursor.reach(self._tick)
            if gap is not None and self._tick > next_tick(gap.before):
                self._tick = next_tick(gap.stamp) - FAST_NS
                _log.warning(_GAP, (gap.stamp - gap.before) / 1e9)
                return
            while not self._cursor.settled(self._tick, _PATIENCE_S):
                # The disk of the journal is slow: what was folded before is shown meanwhile.
                self._answer()
            batches = self._cursor.seal(self._tick)
            with self._views_lock:
                views = tuple(self._views)
            frame = self._fold.advance(self._tick, batches, views)
        except Exception as error:  # noqa: BLE001 as named
            self._fault(self._tick, error)
            return
        finally:
            self._taken = self._tick
            self._tick += FAST_NS
        self.frame = frame
        self._put_away()
        self._answer()
        self._emit(frame.tower)
        for sink in self._sinks:
            self._publish(sink, frame)
        if self._checkpoints is not None and self._checkpoints.due(self._taken):
            self._checkpoint(self._cursor.position)

    def _emit(self, tower: TowerStats) -> None:
        """Log what the fold left out: the first time, and whenever it has become twice as often."""
        troubles = tower.problems + tower.unjudged
        if troubles >= max(1, 2 * self._stated):
            _log.warning("the fold left out %d so far, at last: %s", troubles, tower.last_problem)
            self._stated = troubles

    def _publish(self, sink: FrameSink, frame: Frame) -> None:
        try:
            sink.publish(frame)
        except Exception:  # noqa: BLE001 a named border: counted, logged once, the others go on
            self.sink_errors += 1
            if self.sink_errors == 1:
                _log.exception("a snapshot exporter failed; its later failures are only counted")
