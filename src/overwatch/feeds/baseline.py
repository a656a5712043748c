"""What another run got done at its best, from its recording: what a run's throughput is compared with.

The last snapshot that was logged beside the recording tells it; where none was, the recording is folded.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from overwatch import codec
from overwatch.feeds.recording import RecordingError, open_recording
from overwatch.feeds.snapshotlog import log_files
from overwatch.recordings.stored import StoredFile
from overwatch.snapshot import Baseline, Snapshot

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
