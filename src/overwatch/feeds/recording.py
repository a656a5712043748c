"""A recording: batches in order from any source, and the ticks and frames that they come to.

Owns what is folded when. What `otlp_file` recorded replays to the frames that were live: same batches, same
ticks, same fold; where its numbers were thinned, to what is left of them. What cannot be read is counted and
passed over. Must not know who shows the frames.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, assert_never

import msgspec

from overwatch.feeds.checkpoints import Lasting, LeftBehind, cache_folder
from overwatch.feeds.segments import Lives, Segment
from overwatch.feeds.sources import Indexed, Source
from overwatch.fold import FAST_NS, SLOW_NS, Fold, Folded, Frame
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import Decoded, decode_batch
from overwatch.otlp.jsonl import MalformedJson
from overwatch.otlp.origin import begins_run
from overwatch.otlp.result import timed
from overwatch.otlp.wire import MalformedBody
from overwatch.recordings.checkpoints import build
from overwatch.recordings.index import (
    Ended,
    Gone,
    Header,
    Located,
    Notes,
    Raised,
    RecordingError,
    Started,
)
from overwatch.snapshot import Baseline, Snapshot

__all__ = ["Recording", "RecordingError", "Segment", "open_recording"]


_MARKED: Final = 8
"""Batches before a checkpoint that it is known by."""
_TOGETHER: Final = 64
"""Batches that are read at once where all are wanted."""


class Recording:
    """Batches of a source; without one, of the index in a folder."""

    def __init__(self, folder: Path, source: Source | None = None) -> None:
        self.folder = folder
        """Where it lies; of a single file, that file."""
        self.source: Source = Indexed(folder) if source is None else source
        self.baseline: Baseline | None = None
        """What throughput is compared with, instead of what was when it was recorded."""
        self.advanced: Callable[[float], object] = lambda _: None
        """Is called now and then while many ticks are folded, with the part of them that is done."""
        self.folded: Folded = lambda *_: None
        """Is called by `recorded` with each record, once it is in its run's state, and with its stamp."""
        self.keeps = True
        """Whether checkpoints are kept for later replays, in the user's cache."""
        self.notes = Notes()
        """What the index holds beside batches; known once `segments` was called."""
        self.reached: Fold | None = None
        """The fold of `recorded`, as far as that was read."""
        self.ends: frozenset[int] = frozenset()
        """Last ticks of the folds that end here; known once `segments` was called."""
        self._unreadable: set[tuple[str, int]] = set()

    @property
    def bad_lines(self) -> int:
        """Lines, of an index or of files without one, that could not be read."""
        source = self.source
        return source.bad_lines if isinstance(source, Indexed) else source.account.skipped

    @property
    def bad_batches(self) -> int:
        """Batches met so far that the index names and the files do not hold."""
        return len(self._unreadable)

    def remarks(self) -> tuple[str, ...]:
        """What must be reported of what could not be read so far, and of how the rest was put in order."""
        reported = list(self.source.account.lines())
        if isinstance(self.source, Indexed) and (self.bad_lines or self.bad_batches):
            reported.append(
                f"{self.source.index}: {self.bad_lines} index lines and {self.bad_batches} batches "
                "could not be read and were left out"
            )
        elif self.bad_batches:
            reported.append(
                f"{self.source.name}: {self.bad_batches} batches could not be read and were left out"
            )
        return tuple(reported)

    def segments(self) -> list[Segment]:
        """The recording as lives of a collector, in order; those in which nothing was folded are left out."""
        lives, notes = Lives(), Notes()
        for entry in self.source.entries():
            match entry:
                case Header():
                    lives.piece()
                    notes.piece(entry)
                case Located() | Started():
                    lives.add(entry)
                    notes.reported(entry)
                case Ended():
                    lives.end(entry)
                case Raised():
                    notes.findings.append(entry)
                case Gone():
                    lives.gone()
                    notes.gone.append(entry)
                case _:
                    assert_never(entry)
        self.notes = notes
        segments = [segment for segment in lives.segments if segment.last >= segment.first]
        self.ends = frozenset(self._ended(segments))
        return segments

    def _ended(self, segments: Sequence[Segment]) -> Iterator[int]:
        """Yield the last tick of each fold: one at which a finding was seen open was live, and silent."""
        for segment, following in zip(segments, [*segments[1:], None], strict=False):
            if following is None or following.root is not segment.root:
                until = sys.maxsize if following is None else following.first
                seen = (raised.tick for raised in self.notes.findings if segment.last < raised.tick < until)
                segment.last = max(seen, default=segment.last)
                yield segment.last

    def late(self, fold: Fold, tick: int) -> tuple[Snapshot, ...]:
        """Return what came, or was found, since the whole second before a fold's last tick."""
        if tick not in self.ends:
            return ()
        second = tick // SLOW_NS * SLOW_NS
        return fold.late(second, {raised.run for raised in self.notes.findings if raised.tick > second})

    def fold(self, saved: bytes | None = None) -> Fold:
        """A fold to replay this with: an empty one, or that of a checkpoint."""
        return Fold(baseline=self.baseline) if saved is None else Fold.load(saved, self.baseline)

    def batches(self) -> Iterator[Batch]:
        """Every batch that can be read, with its receive time as `stamp`, in the order of replay."""
        for segment in self.segments():
            for place in range(0, len(segment.entries), _TOGETHER):
                yield from self.read(segment.entries[place : place + _TOGETHER])

    def reported(self) -> Iterator[tuple[int, Decoded]]:
        """Receive time in Unix nanoseconds and records of every batch, in the order of replay."""
        for batch in self.batches():
            try:
                yield batch.stamp, timed(decode_batch(batch), batch.stamp)
            except MalformedBody:
                self._unreadable.add((batch.signal.value, batch.sequence))

    def frames(self) -> Iterator[Frame]:
        """Every frame that was live, in order: the snapshots of all runs at every tick."""
        for fold, tick, batches in self.ticks():
            yield fold.advance(tick, batches, (), self.notes.muted(tick))

    def recorded(self, run_id: str | None = None) -> Iterator[Snapshot]:
        """Every snapshot that was recorded, in order, one a second of each run; quicker than `frames`.

        Where a fold ends within a second, what came in that second is in a last one. Of others than the run
        that is named, if one is, some at the begin are left out.
        """
        for fold, tick, batches in self.ticks(run_id):
            self.reached, fold.folded = fold, self.folded
            yield from fold.skip(tick, batches, self.notes.muted(tick))
            yield from self.late(fold, tick)

    def left(self) -> LeftBehind:
        """The checkpoints that the collector left here; `look` for them."""
        return LeftBehind(self.folder, self.fold)

    def look_for(self, left: LeftBehind, segments: Sequence[Segment], after: int = 0) -> None:
        """Learn which of them fit these lives, of which all up to `after` was folded before."""
        # What is compared with another baseline than it was live is another fold.
        if isinstance(self.source, Indexed) and self.baseline is None:
            left.look(segments, build(), self.notes.is_whole, after)

    def lasting(self, segments: Sequence[Segment], left: LeftBehind) -> Lasting:
        """The checkpoints of an earlier replay of these."""
        # Standard input has no place at which it could be found again.
        folder = cache_folder(self.folder) if self.keeps and self.folder.exists() else None
        return Lasting(folder, lambda tick: self._mark(segments, left, tick), left)

    def _mark(self, segments: Sequence[Segment], left: LeftBehind, tick: int) -> str:
        """A mark of all that a fold depends on which took everything up to a tick."""
        reported = hashlib.blake2b(build().encode(), digest_size=16)
        reported.update(repr((self.baseline, self.notes.reported_thinning, left.adopted(tick))).encode())
        for segment in segments:
            if segment.first > tick:
                break
            count, last = segment.last_up_to(tick, _MARKED)
            places = [(one.sequence, one.stamp, one.signal.value) for one in last]
            reported.update(repr((segment.first, segment.before is None, count, places)).encode())
            for batch in self.read(last):
                reported.update(batch.body)
        return reported.hexdigest()

    def ticks(self, run_id: str | None = None) -> Iterator[tuple[Fold, int, list[Batch]]]:
        """Every tick that was live, in order, with the fold that is to take it and what came up to it.

        Where a run is named those may be left out that were before it.
        """
        segments = self.segments()
        left = self.left()
        self.look_for(left, segments)
        lasting = self.lasting(segments, left)
        root, fold, taken = None, self.fold(), 0
        if run_id is not None:
            root, fold, taken = self._before(run_id, segments, left, lasting)
        began = taken
        for segment in segments:
            if segment.last <= began:
                continue
            if segment.root is not root:
                fold, root, taken = self.fold(), segment.root, 0
            for tick in range(max(segment.first, began + FAST_NS), segment.last + 1, FAST_NS):
                fold, taken = left.going_on(fold, taken), tick
                yield fold, tick, self.read(segment.at(tick))
                if lasting.is_due(tick):
                    lasting.keep(tick, fold.dump())
                if tick % SLOW_NS == 0:
                    self.advanced((tick - segments[0].first) / (segments[-1].last + 1 - segments[0].first))

    def _before(
        self, run_id: str, segments: Sequence[Segment], left: LeftBehind, lasting: Lasting
    ) -> tuple[Segment | None, Fold, int]:
        """The newest place before a run was in any fold: a life, its fold, and the last tick in that."""
        first = self._first_of(run_id, segments)
        if first is None:
            return None, self.fold(), 0
        for adopted in left.adopted(first - 1):
            # A collector may have known it when it left this one, and what it emitted has gone since.
            fold = left.fold(adopted)
            if fold is not None and fold.knows(run_id):
                first = adopted
                break
        begun = [segment.root for segment in segments if segment.first <= first]
        root = begun[-1] if begun else None
        while root is not None:
            tick = lasting.nearest(first, root.first)
            if tick is None:
                return root, self.fold(), root.first - FAST_NS
            kept = lasting.fold(tick)
            if kept is not None and not kept.knows(run_id):
                return root, kept, tick
            first = tick
        return None, self.fold(), 0

    def _first_of(self, run_id: str, segments: Sequence[Segment]) -> int | None:
        """No batch of a run was folded before this tick; `None` where that is not known."""
        source, first = self.source, self.notes.first_of(run_id)
        is_in_order = all(one.last < following.first for one, following in pairwise(segments))
        if not isinstance(source, Indexed) or first is None or not is_in_order:
            return None
        for segment in segments:
            for tick, entry in segment.since(first):
                if isinstance(entry, Located) and source.may_name(run_id, entry):
                    return tick
        return None

    def read(self, entries: Iterable[Located | Started]) -> list[Batch]:
        """The batches of these entries; those that the files do not hold are counted and left out."""
        batches = []
        for entry in entries:
            if isinstance(entry, Started):
                body = msgspec.json.encode(entry.body)
                batches.append(
                    Batch(sequence=entry.sequence, stamp=entry.stamp, signal=Signal.START, body=body)
                )
                continue
            try:
                body = self.source.body(entry)
            except (OSError, MalformedJson):
                self._unreadable.add((entry.file, entry.offset))
                continue
            batches.append(Batch(sequence=entry.sequence, stamp=entry.stamp, signal=entry.signal, body=body))
        return batches


def open_recording(path: Path) -> Recording:
    """The recording in a folder, or in its folder `otlp`; raises `RecordingError` where neither is one.

    `feeds.inputs.open_input` opens everything else too.
    """
    for folder in (path, path / "otlp"):
        if (folder / "index.jsonl").is_file():
            return Recording(folder)
    raise RecordingError(
        f"{path} is no recording: it holds neither index.jsonl nor otlp/index.jsonl; "
        "name the folder that the collector's otlp_file, `overwatch demo` or `overwatch simulate` wrote to"
    )


def unshown(recording: Recording) -> tuple[str, ...]:
    """One line for the whole, then one a reason, the most frequent first."""
    counts, requests, items = Counter[str](), 0, 0
    for batch in recording.batches():
        if batch.signal is Signal.START:
            continue
        requests += 1
        try:
            decoded = decode_batch(batch)
        except MalformedBody:
            counts["requests that are no protobuf of their signal"] += 1
            continue
        items += decoded.items
        counts.update(_reasons(batch.signal, decoded))
    reported = [f"  {count:,} {reason}" for reason, count in counts.most_common() if count]
    return (
        f"{recording.folder}: {items:,} items in {requests:,} requests, of which no run is made:",
        *reported,
    )


def _reasons(signal: Signal, decoded: Decoded) -> Counter[str]:
    found = Counter[str]()
    if signal is Signal.TRACES:
        found["spans, which are recorded and not shown"] = decoded.items
        return found
    idle = sum(one.origin.is_implied and not begins_run(one.event) for one in decoded.records)
    found["name no run (rl.run.id), and no run begins with them"] = decoded.unattributed + idle
    found["metric points that no row of the catalogue knows"] = decoded.unmapped
    found.update(f"rejected, {problem.reason}: {problem.detail}" for problem in decoded.problems)
    if decoded.items and not (decoded.records or decoded.series or decoded.alive or found.total()):
        found["metric points of Overwatch's own SDK, whose events hold the same"] = decoded.items
    return found
