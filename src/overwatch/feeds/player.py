"""Playing a recording: seek, step, pause, play on. The same tick is the same frame, however it was reached.

Owns the place in the recording and the checkpoints that make stepping back cheap. Reads the recording and
nothing else: no clock, no thread; who plays says how much time went by. Must not know who shows the frames.
"""

from bisect import bisect_right
from dataclasses import dataclass

from overwatch.feeds.recording import Recording, RecordingError, Segment
from overwatch.fold import FAST_NS, SLOW_NS, Fold, Frame
from overwatch.snapshot import Snapshot, View


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerConfig:
    """What stepping back may cost."""

    checkpoint_ns: int = 30 * SLOW_NS
    """Recording time between two checkpoints; a multiple of the fast tick."""
    most_bytes: int = 256 << 20
    """Beyond this every second checkpoint is let go and the time between them doubles."""
    recent: int = 10
    """Recorded ticks just before the current one that are one tick away, for stepping back."""

    def __post_init__(self) -> None:
        if self.checkpoint_ns < FAST_NS or self.checkpoint_ns % FAST_NS:
            raise ValueError(f"checkpoint_ns is {self.checkpoint_ns}; use a multiple of {FAST_NS}")
        if self.most_bytes < 0 or self.recent < 0:
            raise ValueError(f"most_bytes is {self.most_bytes}, recent is {self.recent}; use 0 or more")


class Player:
    """A place in a recording, and the frame there. Raises `RecordingError` when nothing can be shown."""

    def __init__(self, recording: Recording, config: PlayerConfig | None = None) -> None:
        config = config or PlayerConfig()
        self._recording = recording
        self._segments = recording.segments()
        if not self._segments:
            raise RecordingError(f"{recording.folder} names nothing that can be replayed; record again")
        self._every = config.checkpoint_ns
        self._config = config
        self._checkpoints: dict[int, bytes] = {}
        """Folds by the last tick that they took, every so often."""
        self._recent: dict[int, bytes] = {}
        """The same for the recorded ticks that were passed last, oldest first."""
        self._fold: Fold | None = None
        self._clock = self.first
        self.folded = 0
        """Ticks folded so far: what seeking cost."""
        self.paused = True
        self.speed = 1.0
        """Recording seconds a second while playing."""
        self.frame = self.seek(self.first)
        """The frame at the current place."""

    @property
    def first(self) -> int:
        """First tick of the recording, Unix nanoseconds."""
        return self._segments[0].first

    @property
    def last(self) -> int:
        """Last tick of the recording, Unix nanoseconds."""
        return self._segments[-1].last

    @property
    def position(self) -> int:
        """The current tick."""
        return self.frame.tick

    @property
    def recording(self) -> Recording:
        """What is played; says how much of it could not be read."""
        return self._recording

    def seek(self, time: int) -> Frame:
        """Go to the last tick at or before a Unix time in nanoseconds; beyond the ends, to the end."""
        segment, tick = self._settle(time)
        self._clock = max(time, self.first)
        if self._fold is None or self.frame.tick != tick:
            self.frame = self._go(segment, tick)
        return self.frame

    def step(self, by: int = 1) -> Frame:
        """Go `by` recorded ticks (whole seconds) on, or back when negative; stays at the ends."""
        tick = self.position
        for _ in range(abs(by)):
            tick = self._recorded_after(tick) if by > 0 else self._recorded_before(tick)
        return self.seek(tick)

    def advance(self, elapsed_ns: int) -> Frame:
        """Play on for so long, gaps left out; stands still while paused and pauses at the end."""
        if self.paused:
            return self.frame
        clock = self._clock + int(elapsed_ns * self.speed)
        segment, _ = self._settle(clock)
        if clock > segment.last:
            later = [other.first for other in self._segments if other.first > segment.last]
            clock = later[0] if later else self.last
            self.paused = not later
        return self.seek(clock)

    def look(self, run_id: str | None, view: View) -> Snapshot | None:
        """Another view of the current tick, of a run or of the newest; `None` where there is no such run."""
        seen = self._fold.look([(run_id, view)]) if self._fold is not None else {}
        return next(iter(seen.values()), None)

    def _settle(self, time: int) -> tuple[Segment, int]:
        firsts = [segment.first for segment in self._segments]
        segment = self._segments[max(0, bisect_right(firsts, time) - 1)]
        return segment, min(max(time // FAST_NS * FAST_NS, segment.first), segment.last)

    def _recorded_after(self, tick: int) -> int:
        for segment in self._segments:
            following = -(-max(tick + 1, segment.first) // SLOW_NS) * SLOW_NS
            if following <= segment.last:
                return following
        return tick

    def _recorded_before(self, tick: int) -> int:
        for segment in reversed(self._segments):
            preceding = min(tick - 1, segment.last) // SLOW_NS * SLOW_NS
            if preceding >= segment.first:
                return preceding
        return tick

    def _go(self, segment: Segment, tick: int) -> Frame:
        """Fold up to a tick from the nearest place before it that is known."""
        fold, taken = self._nearest(segment.root, tick)
        self._fold = None
        for life, passed in segment.ticks(taken):
            if passed >= tick:
                break
            fold.skip(passed, self._recording.read(life.at(passed)), self._recording.notes.hushed(passed))
            self.folded += 1
            self._keep(fold, passed, recent=tick - passed <= self._config.recent * SLOW_NS)
        self.folded += 1
        hushed = self._recording.notes.hushed(tick)
        frame = fold.advance(tick, self._recording.read(segment.at(tick)), (), hushed)
        self._keep(fold, tick, recent=True)
        self._fold = fold
        return frame

    def _nearest(self, root: Segment, tick: int) -> tuple[Fold, int]:
        """A fold that began in a life and the last tick it took, before `tick`."""
        known = {**self._checkpoints, **self._recent}
        kept = [taken for taken in known if root.first <= taken < tick]
        best = max(kept, default=root.first - FAST_NS)
        if self._fold is not None and max(best, root.first) <= self.position < tick:
            return self._fold, self.position
        return self._recording.fold(known[best] if kept else None), best

    def _keep(self, fold: Fold, taken: int, *, recent: bool) -> None:
        """Keep a checkpoint just before each round time, so that a round time itself is one tick away."""
        following = taken + FAST_NS
        lasting = following % self._every == 0 and taken not in self._checkpoints
        passing = recent and following % SLOW_NS == 0 and taken not in self._recent
        if not lasting and not passing:
            return
        data = fold.dump()
        if passing:
            self._recent[taken] = data
            if len(self._recent) > self._config.recent:
                del self._recent[next(iter(self._recent))]
        if lasting:
            self._checkpoints[taken] = data
            self._thin()

    def _thin(self) -> None:
        while sum(map(len, self._checkpoints.values())) > self._config.most_bytes:
            self._every *= 2
            kept = {at: data for at, data in self._checkpoints.items() if (at + FAST_NS) % self._every == 0}
            self._checkpoints = kept
