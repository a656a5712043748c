"""Playing a recording: seek, step, pause, play on. The same tick is the same frame, however it was reached.

Owns the fold at the place where it stands, and the checkpoints that make every place near. Reads the
recording and nothing else: no clock, no thread. Must not know who shows the frames.
"""

import contextlib
from collections import OrderedDict
from dataclasses import dataclass

from overwatch.feeds.checkpoints import Checkpoints
from overwatch.feeds.recording import Recording, RecordingError, Segment
from overwatch.feeds.survey import Survey
from overwatch.feeds.timeline import Timeline
from overwatch.fold import FAST_NS, SLOW_NS, Fold, Frame
from overwatch.recordings.index import Located
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.history import Ask, History


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerConfig:
    """What stepping back may cost."""

    checkpoint_ns: int = 2 * SLOW_NS
    """Recording time between two checkpoints; a multiple of the fast tick."""
    most_bytes: int = 1 << 30
    """Of checkpoints on disk; beyond this every second one is let go and the time between them doubles."""
    recent: int = 10
    """Recorded ticks just before the current one that are one tick away, for stepping back."""

    def __post_init__(self) -> None:
        if self.checkpoint_ns < FAST_NS or self.checkpoint_ns % FAST_NS:
            raise ValueError(f"checkpoint_ns is {self.checkpoint_ns}; use a multiple of {FAST_NS}")
        if self.most_bytes < 0 or self.recent < 0:
            raise ValueError(f"most_bytes is {self.most_bytes}, recent is {self.recent}; use 0 or more")


class Player(Timeline):
    """A place in a recording, and the frame there. Raises `RecordingError` when nothing can be shown."""

    def __init__(self, recording: Recording, config: PlayerConfig | None = None) -> None:
        config = config or PlayerConfig()
        self._recording = recording
        self._segments = _segments(recording)
        super().__init__(self._segments)
        self._most_recent = config.recent
        self._checkpoints = Checkpoints(config.checkpoint_ns, config.most_bytes)
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
    def recording(self) -> Recording:
        """What is played; says how much of it could not be read."""
        return self._recording

    @property
    def looked(self) -> float:
        """By the last tick that was looked at ahead."""
        taken = self.first if self._ahead is None else self._ahead[1]
        return min(1.0, max(0.0, (taken - self.first) / max(1, self.last - self.first)))

    @property
    def begun(self) -> int:
        """By the first batch of the first life: it may have waited long for a run."""
        return next((one.stamp for one in self._segments[0].entries if isinstance(one, Located)), self.first)

    def look(self, run_id: str | None, view: View) -> Snapshot | None:
        """Another view of the current tick, of a run or of the newest; `None` where there is no such run."""
        seen = self._fold.look([(run_id, view)]) if self._fold is not None else {}
        return next(iter(seen.values()), None)

    def history(self, run_id: str | None, ask: Ask) -> History | None:
        """The past of a run, or of the newest, up to the current tick; `None` where there is no such run."""
        return None if self._fold is None else self._fold.history(run_id, ask)

    def look_ahead(self, ticks: int) -> bool:
        """Look through the next so many ticks that were not seen yet; `False` when all were.

        So the timeline fills, and every place comes to be near a checkpoint.
        """
        fold, taken = self._ahead or self._nearest(self._segments[0].root, self.first)
        for segment in self._segments:
            if segment.last <= taken:
                continue
            if segment.before is None and taken < segment.first - FAST_NS:
                fold, taken = self._recording.fold(), segment.first - FAST_NS
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
        segments = _segments(self._recording)
        if segments == before:
            return False
        after = before[-1].last
        if not _continues(before, segments):
            # What was told later belongs before what was folded: nothing kept holds any more.
            self._checkpoints.forget()
            self._recent.clear()
            self._fold = self._ahead = None
            self._left, after = self._recording.left(), 0
        elif self._ahead is not None and self._ahead[1] > before[-1].last:
            self._ahead = None
        self._spans = self._segments = segments
        self._recording.look_for(self._left, segments, after)
        self._lasting = self._recording.lasting(segments, self._left)
        self.survey.raised(self._recording.notes.findings)
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
                self._recording.advanced((passed - begun) / (tick - begun))
            self._pass(fold, life, passed, recent=tick - passed <= self._most_recent * SLOW_NS)
            taken = passed
        self.folded += 1
        hushed = self._recording.notes.hushed(tick)
        frame = fold.advance(tick, self._recording.read(segment.at(tick)), (), hushed)
        for snapshot in frame.recorded:
            self.survey.take(snapshot)
        self._keep(fold, tick, recent=True)
        self._fold = fold
        return frame

    def _pass(self, fold: Fold, life: Segment, tick: int, *, recent: bool) -> None:
        """Take one tick of which no frame is wanted."""
        hushed = self._recording.notes.hushed(tick)
        for snapshot in fold.skip(tick, self._recording.read(life.at(tick)), hushed):
            self.survey.take(snapshot)
        self.folded += 1
        self._keep(fold, tick, recent=recent)

    def _segment(self, tick: int) -> Segment:
        return next(segment for segment in reversed(self._segments) if segment.first <= tick)

    def _nearest(self, root: Segment, tick: int) -> tuple[Fold, int]:
        """A fold that began in a life and the last tick it took, before `tick`."""
        best = self._known_before(root, tick)
        if self._fold is not None and max(best, root.first) <= self.position < tick:
            return self._fold, self.position
        if best < root.first:
            return self._recording.fold(), best
        if best == self._left.nearest(tick, root.first):
            left = self._left.fold(best)
            return (left, best) if left is not None else self._nearest(root, tick)
        saved = self._recent.get(best) or self._read(best)
        if saved is not None:
            # Whatever is wrong with it, another one or the begin will do.
            with contextlib.suppress(Exception):
                return self._recording.fold(saved), best
            self._lasting.forget(best)
        return self._nearest(root, tick)

    def _read(self, tick: int) -> bytes | None:
        return self._checkpoints.read(tick) if tick in self._checkpoints else self._lasting.read(tick)

    def _known_before(self, root: Segment, tick: int) -> int:
        """The last tick before one at which a fold is kept, or else the one before the life began."""
        kept = self._checkpoints.nearest(tick, root.first)
        lasting = self._lasting.nearest(tick, root.first)
        left = self._left.nearest(tick, root.first)
        recent = max((at for at in self._recent if root.first <= at < tick), default=None)
        return max(root.first - FAST_NS, kept or 0, lasting or 0, left or 0, recent or 0)

    def _reachable(self, time: int, most_ticks: int) -> int:
        segment = self._segment(self._settle(time)[1])
        known = max(self._known_before(segment.root, time), self.position)
        return min(time, known + most_ticks * FAST_NS)

    def _keep(self, fold: Fold, taken: int, *, recent: bool) -> None:
        """Keep a checkpoint just before each round time, so that a round time itself is one tick away."""
        kept, lasting = self._checkpoints.is_due(taken, FAST_NS), self._lasting.is_due(taken)
        passing = recent and (taken + FAST_NS) % SLOW_NS == 0 and taken not in self._recent
        if not kept and not lasting and not passing:
            return
        data = fold.dump()
        if passing:
            self._recent[taken] = data
            if len(self._recent) > self._most_recent:
                self._recent.popitem(last=False)
        if kept:
            self._checkpoints.keep(taken, data, FAST_NS)
        if lasting:
            self._lasting.keep(taken, data)


def _segments(recording: Recording) -> list[Segment]:
    found = recording.segments()
    if not found:
        raise RecordingError(f"{recording.folder} holds nothing that can be replayed; record again")
    return found


def _continues(before: list[Segment], now: list[Segment]) -> bool:
    """Whether all that was known is the beginning of what is there now."""
    together = list(zip(before, now, strict=False))
    return len(together) == len(before) and all(
        old.first == new.first and new.entries.begins_with(old.entries) for old, new in together
    )
