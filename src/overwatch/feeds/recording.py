"""Reading a recording: the index and the OTLP files beside it, back into batches and frames.

Owns the shape of `index.jsonl` on the reading side and the order of replay. A recording replays to the
frames that were live: same batches, same ticks, same fold. What cannot be read is counted and passed over.
Must not know who shows the frames.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from overwatch.fold import FAST_NS, Fold, Frame, next_tick
from overwatch.journal import INDEX_VERSION, Batch, Signal
from overwatch.otlp.jsonl import MalformedJson, from_json
from overwatch.snapshot import Snapshot

Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Time: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=(1 << 63) - 1)]


class RecordingError(ValueError):
    """The folder is not a recording that this build can read."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of an index."""

    overwatch_index: int
    version: str
    fast_ms: int
    slow_ms: int


class Located(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one batch lies."""

    sequence: int
    stamp: Time
    signal: Signal
    file: str
    offset: Place
    length: Place


class StartBody(msgspec.Struct, frozen=True):
    """What is read of a start record's body."""

    after: int | None = None
    """As of `LifeStarted`."""


class Started(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collector started here, and its clock jumps to this stamp.

    Its fold began empty, or, where the body says `after`, went on from the life before.
    """

    sequence: int
    stamp: Time
    signal: Signal
    body: StartBody


class Ended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collector stopped cleanly after this tick."""

    end: Time


Entry: TypeAlias = Header | Located | Started | Ended


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
        self.index = folder / "index.jsonl"
        if not self.index.is_file():
            raise RecordingError(f"{folder} has no index.jsonl; name the folder that `otlp_file` wrote to")
        self.bad_lines = 0
        """Index lines that could not be read, e.g. a tail cut by a crash."""
        self._unreadable: set[tuple[str, int]] = set()

    @property
    def bad_batches(self) -> int:
        """Batches met so far that the index names and the files do not hold."""
        return len(self._unreadable)

    def entries(self) -> Iterator[Entry]:
        """The index in order; lines that cannot be read are counted and passed over."""
        self.bad_lines = 0
        with self.index.open("rb") as lines:
            for line in lines:
                try:
                    yield _entry(line)
                except msgspec.DecodeError:
                    self.bad_lines += 1

    def segments(self) -> list[Segment]:
        """The index as lives of a collector, in order; those in which nothing was folded are left out."""
        segments: list[Segment] = []
        for entry in self.entries():
            if isinstance(entry, Header):
                continue
            if isinstance(entry, Started):
                segments.append(_entered(entry, segments[-1] if segments else None))
            elif isinstance(entry, Located):
                if not segments:
                    first = next_tick(entry.stamp)
                    segments.append(Segment(first=first, last=first - FAST_NS))
                segments[-1].add(entry)
            elif segments:
                segments[-1].last = max(segments[-1].last, entry.end // FAST_NS * FAST_NS)
        return [segment for segment in segments if segment.last >= segment.first]

    def frames(self) -> Iterator[Frame]:
        """Every frame that was live, in order."""
        for fold, tick, batches in self._ticks():
            yield fold.advance(tick, batches, ())

    def recorded(self) -> Iterator[Snapshot]:
        """Every snapshot that was recorded, in order; quicker than `frames`."""
        for fold, tick, batches in self._ticks():
            yield from fold.skip(tick, batches)

    def _ticks(self) -> Iterator[tuple[Fold, int, list[Batch]]]:
        fold, root = Fold(), None
        for segment in self.segments():
            if segment.root is not root:
                fold, root = Fold(), segment.root
            for tick in range(segment.first, segment.last + 1, FAST_NS):
                yield fold, tick, self.read(segment.at(tick))

    def read(self, entries: Sequence[Located | Started]) -> list[Batch]:
        """The batches of these entries; those that the files do not hold are counted and left out."""
        batches = []
        for entry in entries:
            if isinstance(entry, Started):
                start = Batch(sequence=entry.sequence, stamp=entry.stamp, signal=Signal.START, body=b"")
                batches.append(start)
                continue
            try:
                batches.append(self._batch(entry))
            except (OSError, MalformedJson):
                self._unreadable.add((entry.file, entry.offset))
        return batches

    def _batch(self, entry: Located) -> Batch:
        if entry.file != Path(entry.file).name:
            raise RecordingError(f"{self.index} points outside of its folder: {entry.file!r}")
        with (self.folder / entry.file).open("rb") as data:
            data.seek(entry.offset)
            line = data.read(entry.length)
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


def _entered(start: Started, before: Segment | None) -> Segment:
    """The life that begins with a start record."""
    first = next_tick(start.stamp)
    if before is None or start.body.after is None:
        return Segment(first=first, last=first - FAST_NS)
    before.last = max(before.last, start.body.after)
    first = max(first, before.last + FAST_NS)
    segment = Segment(first=first, last=first - FAST_NS, before=before)
    segment.add(start)
    return segment


def _entry(line: bytes) -> Entry:
    raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    kind: type[Entry] = Located
    if "overwatch_index" in raw:
        kind = Header
    elif "end" in raw:
        kind = Ended
    elif "body" in raw:
        kind = Started
    entry: Entry = msgspec.json.decode(line, type=kind)
    if isinstance(entry, Header) and entry.overwatch_index != INDEX_VERSION:
        raise RecordingError(f"index version {entry.overwatch_index} is not {INDEX_VERSION}; record again")
    return entry
