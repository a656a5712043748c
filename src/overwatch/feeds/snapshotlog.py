"""A log of snapshots, `snapshots.jsonl`: what was shown, without what it was made of.

Owns which lines there are and when each was. A line is read when it is wanted; lines of another major
version of the schema, and what is no snapshot, are counted and passed over. Must not know who shows them.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from overwatch import codec
from overwatch.feeds.recording import RecordingError, open_recording
from overwatch.feeds.sources import Account
from overwatch.fold import DEFAULT_VIEW, FAST_NS, SLOW_NS, Frame, TowerStats
from overwatch.recordings.pieces import counting, rotated
from overwatch.recordings.stored import MOST_BYTES, Part, StoredFile
from overwatch.snapshot import SCHEMA_VERSION, Baseline, Snapshot

_STRETCH: Final = 64
"""Snapshots between two words on how many are read."""
_LAST_S: Final = (1 << 63) // SLOW_NS - 1


class _Run(msgspec.Struct):
    run_id: str


class _Line(msgspec.Struct):
    schema_version: str
    time: float
    run: _Run


_decoder: Final = msgspec.json.Decoder(_Line)


class SnapshotLog:
    """One log, or several whose lines are put in order of their times."""

    def __init__(self, path: Path, files: list[StoredFile]) -> None:
        self.folder = path
        """What a person named."""
        self.account = Account()
        self.advanced: Callable[[float], object] = lambda _: None
        """Is called now and then while many snapshots are read, with the part of them that is done."""
        self._files = files
        self._ticks, self._offsets, self._lengths = array("q"), array("q"), array("q")
        self._numbers = array("L")
        self._scan()

    def __len__(self) -> int:
        return len(self._ticks)

    def remarks(self) -> tuple[str, ...]:
        """What must be reported of what could not be read, and of what a log of snapshots is."""
        return self.account.lines()

    def ticks(self) -> list[int]:
        """The ticks at which something was logged, in order, each once."""
        return list(dict.fromkeys(self._ticks))

    def at(self, tick: int) -> Iterator[Snapshot]:
        """The snapshots of a tick; those that cannot be read any more are counted and left out."""
        for place in range(bisect_left(self._ticks, tick), bisect_right(self._ticks, tick)):
            snapshot = self._read(place)
            if snapshot is not None:
                yield snapshot

    def recorded(self) -> Iterator[Snapshot]:
        """Every snapshot that was logged, in order."""
        for place in range(len(self)):
            if place % _STRETCH == 0:
                self.advanced(place / len(self))
            snapshot = self._read(place)
            if snapshot is not None:
                yield snapshot

    def frames(self) -> Iterator[Frame]:
        """The snapshots of all runs at every tick at which there are any."""
        for tick in self.ticks():
            yield self.frame(tick)

    def frame(self, tick: int) -> Frame:
        """What was logged at a tick."""
        snapshots = tuple(self.at(tick))
        newest = max(snapshots, key=lambda one: -(one.link.data_age_s or 0.0), default=None)
        return Frame(
            tick=tick,
            slow=True,
            newest=None if newest is None else newest.run.run_id,
            snapshots={(one.run.run_id, DEFAULT_VIEW): one for one in snapshots},
            recorded=snapshots,
            tower=TowerStats(),
        )

    def _read(self, place: int) -> Snapshot | None:
        file = self._files[self._numbers[place]]
        try:
            return codec.decode(file.read(self._offsets[place], self._lengths[place]))
        except (OSError, msgspec.DecodeError, codec.SchemaVersionError) as error:
            is_gone = isinstance(error, OSError)
            reason = "not read any more" if is_gone else "no snapshot of this version"
            self.account.skip(str(file.path), reason)
            return None

    def _scan(self) -> None:
        found = []
        for number, file in enumerate(self._files):
            if file.unpacked_badly is not None:
                self.account.remark(
                    f"{file.path}: read as far as it could be unpacked: {file.unpacked_badly}"
                )
            for part in file.parts():
                tick = self._tick(file, part)
                if tick is not None:
                    found.append((tick, number, part.offset, part.length))
        found.sort()
        for tick, number, offset, length in found:
            self._ticks.append(tick)
            self._numbers.append(number)
            self._offsets.append(offset)
            self._lengths.append(length)

    def _tick(self, file: StoredFile, part: Part) -> int | None:
        """When a line was logged; `None`, and counted, where it is no snapshot."""
        if part.data is None:
            self.account.skip(str(file.path), f"longer than {MOST_BYTES >> 20} MiB, or cut off")
            return None
        try:
            line = _decoder.decode(part.data)
        except (msgspec.DecodeError, RecursionError):
            self.account.skip(str(file.path), "cut off at the end" if part.is_last else "no snapshot")
            return None
        if line.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
            reason = f"schema version {line.schema_version}, this build reads {SCHEMA_VERSION}"
            self.account.skip(str(file.path), reason)
            return None
        if not 0 < line.time < _LAST_S:
            self.account.skip(str(file.path), "a time that is none")
            return None
        return round(line.time * SLOW_NS / FAST_NS) * FAST_NS


def log_files(path: Path) -> list[Path]:
    """All files of the log that is written to at a path, those that were rotated first; none if none is."""
    folder = path.parent
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    older = [folder / one.name(path.name) for one in counting(rotated(path.name, names))]
    return [*older, path] if path.is_file() else older


def is_snapshot(line: bytes) -> bool:
    """Whether a line is a snapshot, of whatever version."""
    try:
        _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


SNAPSHOTS: Final = "snapshots.jsonl"
TAIL: Final = 1 << 20
"""Bytes at the end of a log of snapshots that are looked at first."""


def read_baseline(path: Path) -> Baseline:
    """The newest run of a recording, a folder or a file of snapshots, at its best.

    Raises `RecordingError` where no run in it was measured, or nothing can be read.
    """
    try:
        found = next((told for told in map(_told, _newest_first(path)) if told is not None), None)
    except OSError as error:
        raise RecordingError(f"baseline {path} cannot be read: {error.strerror or error}") from error
    if found is None:
        raise RecordingError(
            f"baseline {path} holds no run whose throughput was measured; it needs half a minute of updates"
        )
    return found


def _newest_first(path: Path) -> Iterator[Snapshot]:
    """Snapshots, from the end; those of a log where there is one."""
    if path.is_file():
        yield from _logged(path)
        return
    recording = open_recording(path)
    for log in (path / SNAPSHOTS, recording.folder.parent / SNAPSHOTS):
        if log_files(log):
            yield from _logged(log)
            return
    yield from reversed(list(recording.recorded()))


def _logged(log: Path) -> Iterator[Snapshot]:
    """Lines of a log from its end, the newest file first; those that cannot be read are passed over."""
    for path in reversed(log_files(log)):
        stored = StoredFile(path)
        start = max(0, stored.size() - TAIL)
        for line in reversed(stored.read(start, TAIL).split(b"\n")):
            try:
                yield codec.decode(line)
            except (msgspec.DecodeError, codec.SchemaVersionError):
                continue


def _told(snapshot: Snapshot) -> Baseline | None:
    told = snapshot.run.throughput
    if told is None:
        return None
    if told.best is not None:
        return msgspec.structs.replace(told.best, name=snapshot.run.run_id)
    return Baseline(name=snapshot.run.run_id, unit=told.unit, rate=told.now)
