"""Reading a recording: the index and the OTLP files beside it, back into batches and frames.

Owns where batches lie, in plain files and in packed pieces, and the order of replay. A recording replays to
the frames that were live: same batches, same ticks, same fold; where its numbers were thinned, to what is
left of them. What cannot be read is counted and passed over. Must not know who shows the frames.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

import msgspec

from overwatch.fold import FAST_NS, Fold, Frame, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.jsonl import MalformedJson, from_json
from overwatch.recordings.files import LIVE, RecordingFiles
from overwatch.recordings.index import (
    Ended,
    Entry,
    Gone,
    Header,
    Located,
    Raised,
    RecordingError,
    Started,
    read_entry,
)
from overwatch.recordings.notes import Notes
from overwatch.recordings.pieces import Piece
from overwatch.snapshot import Baseline, Snapshot

__all__ = ["Recording", "RecordingError", "Segment", "open_recording"]


@dataclass(slots=True, kw_only=True)
class Segment:
    """One life of a collector: every tick from `first` to `last`, and what is folded at which."""

    first: int
    """First tick, Unix nanoseconds."""
    last: int
    """Last tick; before `first` when nothing was folded."""
    before: "Segment | None" = None
    """The life whose fold this one went on with; `None` when it began empty."""
    entries: list[Located | Started] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    """The tick at which each entry is folded; never falls."""

    @property
    def root(self) -> "Segment":
        """The life in which this one's fold began."""
        life = self
        while life.before is not None:
            life = life.before
        return life

    def ticks(self, after: int) -> Iterator[tuple["Segment", int]]:
        """Every tick of this fold after one of them, up to the last of this life."""
        lives = [self]
        while lives[-1].before is not None and lives[-1].first > after + FAST_NS:
            lives.append(lives[-1].before)
        for life in reversed(lives):
            for tick in range(max(life.first, after + FAST_NS), life.last + 1, FAST_NS):
                yield life, tick

    def at(self, tick: int) -> list[Located | Started]:
        """The entries that are folded at a tick."""
        return self.entries[bisect_left(self.due, tick) : bisect_right(self.due, tick)]

    def add(self, entry: Located | Started) -> None:
        """Append an entry; it is folded at the first tick at or after its stamp that is still to come."""
        floor = self.due[-1] if self.due else self.first
        if not self.due or self.due[-1] < self.last:
            floor = max(floor, self.last + FAST_NS)
        self.entries.append(entry)
        self.due.append(max(next_tick(entry.stamp), floor))
        self.last = max(self.last, self.due[-1])


class Recording:
    """A folder with `index.jsonl` and the OTLP JSON files it points into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / LIVE
        if not self.index.is_file():
            raise RecordingError(f"{folder} has no index.jsonl; name the folder that `otlp_file` wrote to")
        self.baseline: Baseline | None = None
        """What throughput is compared with, instead of what was when it was recorded."""
        self.bad_lines = 0
        """Index lines that could not be read, e.g. a tail cut by a crash."""
        self.notes = Notes()
        """What the index tells beside batches; known once `segments` was asked."""
        self._files = RecordingFiles(folder)
        self._unreadable: set[tuple[str, int]] = set()

    @property
    def bad_batches(self) -> int:
        """Batches met so far that the index names and the files do not hold."""
        return len(self._unreadable)

    def entries(self) -> Iterator[Entry]:
        """The index in order; lines that cannot be read are counted and passed over."""
        self.bad_lines = 0
        stored: dict[tuple[Piece | None, str], str] = {}
        for piece, line in self._files.lines():
            try:
                entry = read_entry(line)
            except msgspec.DecodeError:
                self.bad_lines += 1
                continue
            if isinstance(entry, Located):
                key = piece, entry.file
                if key not in stored:
                    stored[key] = self._files.stored(piece, entry.file)
                entry = msgspec.structs.replace(entry, file=stored[key])
            yield entry

    def segments(self) -> list[Segment]:
        """The index as lives of a collector, in order; those in which nothing was folded are left out."""
        lives, notes = _Lives(), Notes()
        for entry in self.entries():
            match entry:
                case Header():
                    lives.piece()
                    notes.piece(entry)
                case Located() | Started():
                    lives.add(entry)
                    notes.told(entry)
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
        return [segment for segment in lives.segments if segment.last >= segment.first]

    def fold(self, saved: bytes | None = None) -> Fold:
        """A fold to replay this with: an empty one, or that of a checkpoint."""
        return Fold(baseline=self.baseline) if saved is None else Fold.load(saved, self.baseline)

    def frames(self) -> Iterator[Frame]:
        """Every frame that was live, in order."""
        for fold, tick, batches in self._ticks():
            yield fold.advance(tick, batches, (), self.notes.hushed(tick))

    def recorded(self) -> Iterator[Snapshot]:
        """Every snapshot that was recorded, in order; quicker than `frames`."""
        for fold, tick, batches in self._ticks():
            yield from fold.skip(tick, batches, self.notes.hushed(tick))

    def _ticks(self) -> Iterator[tuple[Fold, int, list[Batch]]]:
        fold, root = self.fold(), None
        for segment in self.segments():
            if segment.root is not root:
                fold, root = self.fold(), segment.root
            for tick in range(segment.first, segment.last + 1, FAST_NS):
                yield fold, tick, self.read(segment.at(tick))

    def read(self, entries: Sequence[Located | Started]) -> list[Batch]:
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
                batches.append(self._batch(entry))
            except (OSError, MalformedJson):
                self._unreadable.add((entry.file, entry.offset))
        return batches

    def _batch(self, entry: Located) -> Batch:
        line = self._files.read(entry.file, entry.offset, entry.length)
        body = from_json(entry.signal, line.rstrip(b"\n"))
        return Batch(sequence=entry.sequence, stamp=entry.stamp, signal=entry.signal, body=body)


def open_recording(path: Path) -> Recording:
    """The recording in a folder, or in its folder `otlp`; raises `RecordingError` where neither is one."""
    for folder in (path, path / "otlp"):
        if (folder / "index.jsonl").is_file():
            return Recording(folder)
    raise RecordingError(
        f"{path} is no recording: it holds neither index.jsonl nor otlp/index.jsonl; "
        "name the folder that the collector's otlp_file, `overwatch demo` or `overwatch simulate` wrote to"
    )


class _Lives:
    """Lives of a collector, as the lines of an index tell them."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._is_over = False
        """What comes next has nothing to go on with: what was before it is gone."""
        self._is_gone = self._is_there = False
        """What is known of the piece that is read: something went from it, something is in it."""

    def piece(self) -> None:
        """A piece begins."""
        self._is_over = self._is_over or (self._is_gone and not self._is_there)
        self._is_gone = self._is_there = False

    def gone(self) -> None:
        """Something went from this piece."""
        self._is_gone = True

    def add(self, entry: Located | Started) -> None:
        """Take a line that is folded."""
        self._is_there = True
        before = self.segments[-1] if self.segments and not self._is_over else None
        if isinstance(entry, Started):
            self.segments.append(_entered(entry, before))
        else:
            if before is None:
                first = next_tick(entry.stamp)
                self.segments.append(Segment(first=first, last=first - FAST_NS))
            self.segments[-1].add(entry)
        self._is_over = False

    def end(self, entry: Ended) -> None:
        """A life ended."""
        if self.segments:
            self.segments[-1].last = max(self.segments[-1].last, entry.end // FAST_NS * FAST_NS)


def _entered(start: Started, before: Segment | None) -> Segment:
    """The life that begins with a start record."""
    first = next_tick(start.stamp)
    if before is None or start.body.after is None:
        segment = Segment(first=first, last=first - FAST_NS)
        if start.body.baseline is not None:
            segment.add(start)
        return segment
    before.last = max(before.last, start.body.after)
    first = max(first, before.last + FAST_NS)
    segment = Segment(first=first, last=first - FAST_NS, before=before)
    segment.add(start)
    return segment
