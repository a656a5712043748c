"""Playing a recording or a log of snapshots: seek, step, pause, play on.

The same tick is the same frame, however it was reached. Owns the arithmetic of ticks, gaps and speeds
(`Timeline`); of a recording the fold at the place where it stands, and the checkpoints that make every place
near (`Player`). In a log there is nothing to fold, so every place costs the same, and a view can only cut
what was logged (`LogPlayer`). No clock, no thread: who plays passes how much time went by. Must not know who
shows the frames.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec

from overwatch.feeds.checkpoints import Checkpoints
from overwatch.feeds.inputs import Input
from overwatch.feeds.recording import Recording, RecordingError, Segment
from overwatch.feeds.snapshotlog import SnapshotLog
from overwatch.feeds.survey import Survey
from overwatch.fold import DEFAULT_VIEW, FAST_NS, SLOW_NS, Fold, Frame
from overwatch.projection.heat import of_log, record
from overwatch.projection.history import of_snapshot, remember, with_closer
from overwatch.recordings.index import Located
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import CLOSE_S, History, HistoryQuery
from overwatch.state.heat import Heat
from overwatch.state.past import Past

_GAP_NS: Final = 60 * SLOW_NS
_A_TICK: Final = 10
"""Snapshots that take about as long to read as a tick takes to fold."""
CHECKPOINT_NS: Final = 2 * SLOW_NS
"""Recording time between two checkpoints of a player; a multiple of the fast tick."""
MOST_BYTES: Final = 1 << 30
"""Of its checkpoints on disk; beyond this every second one is let go and the time between them doubles."""
RECENT: Final = 10
"""Recorded ticks just before the current one that are one tick away, for stepping back."""
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
        """Go `by` recorded ticks (whole seconds, last ticks) on, or back if negative; stays at the ends."""
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

    @abstractmethod
    def far(self, time: int) -> int:
        """How many ticks have to be folded to be there, at most."""

    @abstractmethod
    def approach(self, time: int, ticks: int) -> bool:
        """Come nearer by about so many ticks, and stay at the current place; whether the way is short now."""

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
    def history(self, run_id: str | None, query: HistoryQuery) -> History | None:
        """The past of a run, or of the newest, up to the current tick; `None` where there is no such run."""

    @abstractmethod
    def heat(self, run_id: str | None, query: HeatQuery) -> HeatMap | None:
        """Envs or lanes of a run over time, as `history`."""

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
            if tick < span.last:
                return min(-(-max(tick + 1, span.first) // SLOW_NS) * SLOW_NS, span.last)
        return tick

    def _recorded_before(self, tick: int) -> int:
        for span in reversed(self._spans):
            preceding = span.last if span.last < tick else (tick - 1) // SLOW_NS * SLOW_NS
            if preceding >= span.first:
                return preceding
        return tick


class Player(Timeline):
    """A place in a recording, and the frame there. Raises `RecordingError` when nothing can be shown."""

    def __init__(
        self,
        recording: Recording,
        *,
        checkpoint_ns: int = CHECKPOINT_NS,
        most_bytes: int = MOST_BYTES,
        recent: int = RECENT,
    ) -> None:
        self.recording = recording
        """What is played; reports how much of it could not be read."""
        self._segments = _segments(recording)
        super().__init__(self._segments)
        self._most_recent = recent
        self._checkpoints = Checkpoints(checkpoint_ns, most_bytes)
        self._left = recording.left()
        recording.look_for(self._left, self._segments)
        self._lasting = recording.lasting(self._segments, self._left)
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        """Folds at the recorded ticks that were passed last, oldest first."""
        self._fold: Fold | None = None
        self._ahead: tuple[Fold, int] | None = None
        """The fold that looks through what was not seen yet, and the last tick it took."""
        self.survey = Survey()
        """What is known of the whole recording."""
        self.survey.raised(recording.notes.findings)
        self.seek(self.first)

    @property
    def looked(self) -> float:
        """By the last tick that was looked at ahead."""
        taken = self.first if self._ahead is None else self._ahead[1]
        return min(1.0, max(0.0, (taken - self.first) / max(1, self.last - self.first)))

    @property
    def begun(self) -> int:
        """By the first batch of the first life: it may have waited long for a run."""
        return next((one.stamp for one in self._segments[0].entries if isinstance(one, Located)), self.first)

    def far(self, time: int) -> int:
        """From the nearest place before that is known; more than it is where the way leads over a gap."""
        tick = self._settle(time)[1]
        if self._frame is not None and self._frame.tick == tick:
            return 0
        root = self._segment(tick).root
        known = self._known_before(root, tick)
        if self._fold is not None and max(known, root.first) <= self.position < tick:
            known = self.position
        return (tick - known) // FAST_NS

    def approach(self, time: int, ticks: int) -> bool:
        """By a checkpoint after that many."""
        tick = self._settle(time)[1]
        segment = self._segment(tick)
        fold, taken = self._kept_before(segment.root, tick)
        for life, passed in segment.ticks(taken):
            fold = self._left.going_on(fold, taken)
            if passed >= tick:
                break
            self._pass(fold, life, passed, recent=False)
            taken, ticks = passed, ticks - 1
            if ticks <= 0 and passed in self._checkpoints:
                return False
        return True

    def look(self, run_id: str | None, view: View) -> Snapshot | None:
        """Another view of the current tick, of a run or of the newest; `None` where there is no such run."""
        seen = self._fold.look([(run_id, view)]) if self._fold is not None else {}
        return next(iter(seen.values()), None)

    def history(self, run_id: str | None, query: HistoryQuery) -> History | None:
        """The past of a run, or of the newest, up to the current tick; `None` where there is no such run."""
        found = None if self._fold is None else self._fold.history(run_id, query)
        if found is None or query.since is None or all(curve.each in (None, 1) for curve in found.curves):
            return found
        until = self.position if query.until is None else min(self.position, int(query.until * 1e9) + SLOW_NS)
        since = int(query.since * 1e9)
        if not 0 <= until - since <= CLOSE_S * SLOW_NS:
            return found
        closer = self._fold_anew(found.run_id, since, until).history(found.run_id, query)
        return found if closer is None else with_closer(found, closer)

    def heat(self, run_id: str | None, query: HeatQuery) -> HeatMap | None:
        """Envs or lanes of a run over time, up to the current tick; `None` where there is no such run."""
        return None if self._fold is None else self._fold.heat(run_id, query)

    def look_ahead(self, ticks: int) -> bool:
        """Look through the next so many ticks that were not seen yet; `False` when all were.

        So the timeline fills, and every place comes to be near a checkpoint.
        """
        fold, taken = self._ahead or self._nearest(self._segments[0].root, self.first)
        for segment in self._segments:
            if segment.last <= taken:
                continue
            if segment.before is None and taken < segment.first - FAST_NS:
                fold, taken = self.recording.fold(), segment.first - FAST_NS
            for life, tick in segment.ticks(taken):
                fold = self._left.going_on(fold, taken)
                self._pass(fold, life, tick, recent=False)
                taken, ticks = tick, ticks - 1
                if ticks <= 0:
                    self._ahead = fold, taken
                    return True
        self._ahead = fold, taken
        return False

    def refresh(self) -> bool:
        """Read what was recorded since; whether there was anything. Raises `OSError`, `RecordingError`."""
        before = self._segments
        segments = _segments(self.recording)
        if segments == before:
            return False
        after = _unchanged(before, segments)
        self._checkpoints.forget(after)
        for tick in [tick for tick in self._recent if tick > after]:
            del self._recent[tick]
        if self._ahead is not None and self._ahead[1] > after:
            self._ahead = None
        if not after:
            self._left = self.recording.left()
        self._spans = self._segments = segments
        self.recording.look_for(self._left, segments, after)
        self._lasting = self.recording.lasting(segments, self._left)
        self.survey.raised(self.recording.notes.findings)
        if self._frame is not None and self._frame.tick > after:
            self._fold = None
            self._frame = self._show(self._frame.tick)
        return True

    def _show(self, tick: int) -> Frame:
        """Fold up to a tick from the nearest place before it that is known."""
        segment = self._segment(tick)
        fold, begun = self._nearest(segment.root, tick)
        self._fold, taken = None, begun
        for life, passed in segment.ticks(begun):
            fold = self._left.going_on(fold, taken)
            if passed >= tick:
                break
            if passed % SLOW_NS == 0:
                self.recording.advanced((passed - begun) / (tick - begun))
            self._pass(fold, life, passed, recent=tick - passed <= self._most_recent * SLOW_NS)
            taken = passed
        self.folded += 1
        muted = self.recording.notes.muted(tick)
        frame = fold.advance(tick, self.recording.read(segment.at(tick)), (), muted)
        self._survey(fold, tick, frame.recorded)
        self._keep(fold, tick, recent=True)
        self._fold = fold
        return frame

    def _fold_anew(self, run_id: str, since: int, until: int) -> Fold:
        """A fold at a time whose past of a run begins at another one, or somewhat before it."""
        tick = self._settle(until)[1]
        segment = self._segment(tick)
        fold, taken = self._kept_before(segment.root, min(tick, max(since, segment.root.first)))
        run = fold.tracked(run_id)
        if run is not None:
            run.past.begin_anew()
        for life, passed in segment.ticks(taken):
            if passed > tick:
                break
            fold = self._left.going_on(fold, taken)
            fold.take(passed, self.recording.read(life.at(passed)), self.recording.notes.muted(passed))
            taken = passed
        return fold

    def _pass(self, fold: Fold, life: Segment, tick: int, *, recent: bool) -> None:
        """Take one tick of which no frame is wanted."""
        muted = self.recording.notes.muted(tick)
        self._survey(fold, tick, fold.skip(tick, self.recording.read(life.at(tick)), muted))
        self.folded += 1
        self._keep(fold, tick, recent=recent)

    def _survey(self, fold: Fold, tick: int, logged: Sequence[Snapshot]) -> None:
        for snapshot in (*logged, *self.recording.late(fold, tick)):
            self.survey.take(snapshot)

    def _segment(self, tick: int) -> Segment:
        return next(segment for segment in reversed(self._segments) if segment.first <= tick)

    def _nearest(self, root: Segment, tick: int) -> tuple[Fold, int]:
        """A fold that began in a life and the last tick it took, before `tick`."""
        if self._fold is not None and max(self._known_before(root, tick), root.first) <= self.position < tick:
            return self._fold, self.position
        return self._kept_before(root, tick)

    def _kept_before(self, root: Segment, tick: int) -> tuple[Fold, int]:
        """As `_nearest`, and never the fold of the current place."""
        best = self._known_before(root, tick)
        if best < root.first:
            return self.recording.fold(), best
        saved = self._recent.get(best)
        if saved is None and best in self._checkpoints:
            saved = self._checkpoints.read(best)
        fold = self._lasting.fold(best) if saved is None else self.recording.fold(saved)
        return (fold, best) if fold is not None else self._kept_before(root, tick)

    def _known_before(self, root: Segment, tick: int) -> int:
        """The last tick before one at which a fold is kept, or else the one before the life began."""
        kept = self._checkpoints.nearest(tick, root.first)
        lasting = self._lasting.nearest(tick, root.first)
        recent = max((at for at in self._recent if root.first <= at < tick), default=None)
        return max(root.first - FAST_NS, kept or 0, lasting or 0, recent or 0)

    def _reachable(self, time: int, most_ticks: int) -> int:
        segment = self._segment(self._settle(time)[1])
        known = max(self._known_before(segment.root, time), self.position)
        return min(time, known + most_ticks * FAST_NS)

    def _keep(self, fold: Fold, taken: int, *, recent: bool) -> None:
        """Keep a checkpoint just before each round time, so that a round time itself is one tick away."""
        kept, lasting = self._checkpoints.is_due(taken), self._lasting.is_due(taken)
        passing = recent and (taken + FAST_NS) % SLOW_NS == 0 and taken not in self._recent
        if not kept and not lasting and not passing:
            return
        data = fold.dump()
        if passing:
            self._recent[taken] = data
            if len(self._recent) > self._most_recent:
                self._recent.popitem(last=False)
        if kept:
            self._checkpoints.keep(taken, data)
        if lasting:
            self._lasting.keep(taken, data)


def _segments(recording: Recording) -> list[Segment]:
    found = recording.segments()
    if not found:
        raise RecordingError(f"{recording.folder} holds nothing that can be replayed; record again")
    return found


def _unchanged(before: list[Segment], now: list[Segment]) -> int:
    """Return the last tick up to which all that was folded stays as it is; 0 where nothing does.

    A batch may come later for the tick that was the last: its index was read between two of them.
    """
    together = list(zip(before, now, strict=False))
    if len(together) < len(before) or not all(
        old.first == new.first and new.entries.begins_with(old.entries) for old, new in together
    ):
        return 0
    more = (new.due[len(old.due)] for old, new in together if len(new.due) > len(old.due))
    return min([before[-1].last, *(due - FAST_NS for due in more)])


@dataclass(frozen=True, slots=True)
class _Stretch:
    first: int
    last: int


class LogPlayer(Timeline):
    """A place in a log. Raises `RecordingError` where there is nothing in it."""

    def __init__(self, log: SnapshotLog) -> None:
        self._ticks = log.ticks()
        if not self._ticks:
            raise RecordingError(f"{log.folder} holds no snapshot that can be shown")
        self.recording = log
        """What is played."""
        self._looked = 0
        self._pasts: dict[str, Past] = {}
        """Of what was looked through so far, by run."""
        self._heats: dict[str, Heat] = {}
        self.survey = Survey()
        super().__init__(_stretches(self._ticks))
        self.seek(self.first)

    @property
    def looked(self) -> float:
        """By what was read for the survey."""
        return self._looked / len(self._ticks)

    @property
    def known(self) -> float:
        """By what was read for the survey, which the past comes with."""
        return min(1.0, self._looked / max(1, bisect_right(self._ticks, self.position)))

    def far(self, _: int) -> int:
        """Nothing is folded."""
        return 0

    def approach(self, _: int, __: int) -> bool:
        """Every place costs the same."""
        return True

    def look(self, run_id: str | None, view: View) -> Snapshot | None:
        """The snapshot of the current tick, with the envs of the view's window; `None` without one."""
        frame = self.frame
        wanted = frame.newest if run_id is None else run_id
        found = None if wanted is None else frame.snapshots.get((wanted, DEFAULT_VIEW))
        begin = view.offset or 0
        return found and msgspec.structs.replace(found, envs=found.envs[begin : begin + view.rows])

    def history(self, run_id: str | None, query: HistoryQuery) -> History | None:
        """As far as the log was looked through, up to the current tick."""
        found = self.look(run_id, View())
        past = None if found is None else self._pasts.get(found.run.run_id)
        if found is None or past is None:
            return None
        until = found.time if query.until is None else min(query.until, found.time)
        return of_snapshot(found, past, msgspec.structs.replace(query, until=until))

    def heat(self, run_id: str | None, query: HeatQuery) -> HeatMap | None:
        """As `history`; of the envs that were logged, whatever the filter."""
        found = self.look(run_id, View())
        heat = None if found is None else self._heats.get(found.run.run_id)
        if found is None or heat is None:
            return None
        until = found.time if query.until is None else min(query.until, found.time)
        return of_log(found.run.run_id, heat, msgspec.structs.replace(query, until=until, filter=""))

    def look_ahead(self, ticks: int) -> bool:
        """Read the next snapshots for the survey; `False` when all were."""
        for tick in self._ticks[self._looked : self._looked + ticks * _A_TICK]:
            for snapshot in self.recording.at(tick):
                self.survey.take(snapshot)
                remember(self._pasts.setdefault(snapshot.run.run_id, Past()), snapshot)
                record(self._heats.setdefault(snapshot.run.run_id, Heat()), snapshot)
            self._looked += 1
        return self._looked < len(self._ticks)

    def refresh(self) -> bool:
        """A log is read once; what is added later is not followed."""
        return False

    def _show(self, tick: int) -> Frame:
        self.folded += 1
        logged = self._ticks[max(0, bisect_right(self._ticks, tick) - 1)]
        frame = self.recording.frame(logged)
        for snapshot in frame.recorded:
            self.survey.take(snapshot)
        return Frame(
            tick=tick, slow=frame.slow, newest=frame.newest, snapshots=frame.snapshots,
            recorded=frame.recorded, tower=frame.tower,
        )  # fmt: skip


def _stretches(ticks: list[int]) -> list[_Stretch]:
    """The log without its gaps of more than a minute."""
    found: list[_Stretch] = []
    for tick in ticks:
        if found and tick - found[-1].last <= _GAP_NS:
            found[-1] = _Stretch(found[-1].first, tick)
        else:
            found.append(_Stretch(tick, tick))
    return found


AnyPlayer: TypeAlias = Player | LogPlayer


def player_of(opened: Input) -> AnyPlayer:
    """Stand at its beginning. Raises `RecordingError` where there is nothing to show."""
    return Player(opened) if isinstance(opened, Recording) else LogPlayer(opened)
