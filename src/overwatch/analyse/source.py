"""Where runs are read from: a recording, or a log of snapshots; all that is asked of both is in one protocol.

What cannot be read is passed over and counted. Must not know what is made of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from overwatch import codec
from overwatch.events import Record
from overwatch.feeds.recording import Recording, RecordingError, open_recording
from overwatch.journal import Signal
from overwatch.otlp.decode import MalformedBody, decode
from overwatch.snapshot import Snapshot
from overwatch.state.joins import Joins

AT_ONCE = 64
"""Batches read from a recording at a time."""


class AnalyseError(ValueError):
    """What was asked cannot be answered from what was given; the message says what to give instead."""


class Source(Protocol):
    """Runs that can be read more than once."""

    path: Path

    def snapshots(self) -> Iterator[Snapshot]:
        """All recorded snapshots of all runs, in order of time."""
        ...

    def records(self) -> Iterator[Record]:
        """All that producers told, in order; nothing where only snapshots were kept."""
        ...

    def unread(self) -> str | None:
        """What could not be read so far, in words; `None` where all could."""
        ...


class Recorded:
    """A folder with an index."""

    def __init__(self, path: Path, recording: Recording) -> None:
        self.path = path
        self._recording = recording

    def snapshots(self) -> Iterator[Snapshot]:
        """Derived anew, those that were recorded live."""
        return self._recording.recorded()

    def records(self) -> Iterator[Record]:
        """Decoded from the batches; of ranks that had to wait for their run's id, under that id."""
        joins = Joins()
        for segment in self._recording.segments():
            for first in range(0, len(segment.entries), AT_ONCE):
                for batch in self._recording.read(segment.entries[first : first + AT_ONCE]):
                    if batch.signal is Signal.START:
                        continue
                    try:
                        told = decode(batch.signal, batch.body).records
                    except MalformedBody:
                        continue
                    for record in told:
                        resolved = joins.resolve(record, batch.stamp)
                        yield from (waited for waited, _ in resolved.released)
                        yield resolved.record

    def unread(self) -> str | None:
        """Index lines and batches."""
        lines, batches = self._recording.bad_lines, self._recording.bad_batches
        return f"{lines} index lines and {batches} batches" if lines or batches else None


class Logged:
    """A file of snapshots, a line each, as the `snapshots` exporter writes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bad = 0

    def snapshots(self) -> Iterator[Snapshot]:
        """Those lines that are snapshots."""
        self._bad = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.strip():
                    continue
                try:
                    yield codec.decode(line.lstrip(b"\xef\xbb\xbf"))
                except (msgspec.DecodeError, codec.SchemaVersionError, UnicodeDecodeError):
                    self._bad += 1

    def records(self) -> Iterator[Record]:
        """Snapshots hold none."""
        return iter(())

    def unread(self) -> str | None:
        """Lines."""
        return f"{self._bad} lines" if self._bad else None


def open_source(path: Path) -> Source:
    """What lies at a path; raises `AnalyseError` where that is no recording."""
    try:
        if path.is_file():
            return Logged(path)
        if not path.is_dir():
            raise AnalyseError(f"{path} is not there; name a recording's folder or its snapshots.jsonl")
        return Recorded(path, open_recording(path))
    except (RecordingError, OSError) as error:
        raise AnalyseError(str(error)) from error
