"""`open_input`: whatever a person names, as something that replays.

One of: the folder that `otlp_file` wrote, or the one above it; OTLP files of any exporter, as JSON lines or
with lengths before the messages, packed or not; a collector's journal; a trainer's spool; a log of snapshots;
a folder with any of these; standard input as `-`. Rules: what a file is shows in what it holds, never in its
name; what is nothing of these is an error that names what was found. Must not know what is done with it.
"""

import os
import sys
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from overwatch.feeds.recording import Recording, RecordingError
from overwatch.feeds.snapshotlog import SnapshotLog, is_snapshot, log_files
from overwatch.feeds.sources import Indexed, OtlpFile, Rebuilt, Segments, Source
from overwatch.journal import LogVersionError
from overwatch.journal.scan import is_journal, is_spool
from overwatch.otlp.sniff import sniff
from overwatch.recordings.files import LIVE
from overwatch.recordings.pieces import INDEX, inventory, piece_of
from overwatch.recordings.stored import Handles, Scratch, StoredFile

STDIN: Final = Path("-")
Input: TypeAlias = Recording | SnapshotLog
"""Both have `recorded()`: a snapshot a second of each run; `frames()`: all snapshots at every tick; and
`remarks()`: what must be reported of what could not be read. A `Recording` also has `batches()` and
`reported()`: what was received, decoded, each with its receive time."""

_DEEPEST: Final = 4
_MOST_FILES: Final = 10_000
_MOST_NAMED: Final = 5
_CHUNK_BYTES: Final = 1 << 20
_MOST_TRIED: Final = 64
"""Parts of a file that are looked at to learn what it is."""
_KNOWN: Final = (
    "a folder that otlp_file, `overwatch demo` or `overwatch simulate` wrote to, OTLP files (JSON lines, or "
    "messages with their lengths; zstd and gzip too), a journal, a trainer's spool, or a snapshots.jsonl"
)


def open_input(path: Path) -> Input:
    """What a path holds, ready to be replayed; `-` is standard input, read to its end.

    Raises `RecordingError` where there is nothing that can be replayed, `OSError` where nothing can be read.
    """
    if path == STDIN:
        return _opened(path, _sorted_out([StoredFile(Path("standard input"), copy=_copied_stdin())]))
    if not path.exists() and not log_files(path):
        raise RecordingError(f"{path} is not there")
    if not path.is_dir():
        return _of_file(path)
    for folder in (path, path / "otlp", path / "journal"):
        source = _source_in(folder)
        if source is not None:
            return _opened(folder, _Found(sources=[source]))
    return _opened(path, _look_through(path))


@dataclass(slots=True)
class _Found:
    """What lies in a folder."""

    sources: list[Source] = field(default_factory=list)
    logs: list[StoredFile] = field(default_factory=list)
    """Logs of snapshots."""
    other: list[str] = field(default_factory=list)
    """What is nothing of these, and why where that is known."""


def _of_file(path: Path) -> Input:
    """What one file is; of a recording or a journal the folder that it lies in."""
    piece = piece_of(path.name)
    if path.name == LIVE or (piece is not None and piece[0] == INDEX):
        return Recording(path.parent)
    segments = _source_in(path.parent) if path.suffix == ".ow1" else None
    if isinstance(segments, Segments):
        return _opened(path.parent, _Found(sources=[segments]))
    if path.exists() and not path.is_file():
        raise RecordingError(f"{path} is neither a file nor a folder. Name {_KNOWN}, or - for standard input")
    if not path.exists():
        return _opened(path, _sorted_out([StoredFile(file) for file in log_files(path)]))
    found = _sorted_out([StoredFile(path)])
    if found.logs or not found.sources:
        # Rotated files beside it are of the same log, and it may be empty since.
        older = _sorted_out([StoredFile(file) for file in log_files(path) if file != path])
        found.logs = [*older.logs, *found.logs]
        found.other = [] if older.logs else found.other
    return _opened(path, found)


def _opened(path: Path, found: _Found) -> Input:
    """Batches before snapshots: those can be shown in every way."""
    others = f"{path}: not played, as nothing of it can be: {', '.join(found.other[:_MOST_NAMED])}"
    if found.sources:
        recording = Recording(path, _one(path, found.sources))
        remark = recording.source.account.remark
        for log in found.logs:
            remark(f"{log.path}: a log of snapshots is not played where there are batches")
    elif found.logs:
        snapshots = SnapshotLog(path, found.logs)
        if not len(snapshots):
            raise RecordingError(
                f"{path} holds no snapshot that can be shown: {'; '.join(snapshots.remarks())}"
            )
        if found.other:
            snapshots.account.remark(others)
        return snapshots
    else:
        seen = f"found {', '.join(found.other[:_MOST_NAMED])}" if found.other else "there is nothing in it"
        raise RecordingError(f"{path} holds nothing that can be replayed; {seen}. Name {_KNOWN}")
    if found.other:
        remark(others)
    return recording


def _one(path: Path, sources: list[Source]) -> Source:
    """Several in the order of their stamps; one that has an order of its own as it is."""
    first = sources[0]
    if len(sources) == 1 and (
        isinstance(first, Indexed) or (isinstance(first, Segments) and not first.is_spool)
    ):
        return first
    return Rebuilt(str(path), sources)


def _look_through(top: Path) -> _Found:
    """Everything below a folder: recordings and journals as they are, files by what they hold."""
    found, files = _Found(), []
    for at, folders, names in os.walk(top):
        here = Path(at)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(here.relative_to(top).parts) >= _DEEPEST:
            folders.clear()
        source = None if here == top else _source_in(here)
        if isinstance(source, Indexed):
            folders.clear()
        if source is not None:
            found.sources.append(source)
            continue
        files += [here / name for name in sorted(names)]
        if len(files) > _MOST_FILES:
            raise RecordingError(f"{top} holds more than {_MOST_FILES:,} files; name a folder further down")
    stored, handles = [], Handles()
    for file in files:
        try:
            if file.is_file():
                stored.append(StoredFile(file, handles))
        except OSError as error:
            found.other.append(f"{file} ({error.strerror or error})")
    return _sorted_out(stored, found)


def _sorted_out(files: list[StoredFile], found: _Found | None = None) -> _Found:
    """Each file to what it is; those that are nothing are closed and named."""
    found = found or _Found()
    for file in files:
        match _kind(file):
            case "batches":
                found.sources.append(OtlpFile(file))
            case "snapshots":
                found.logs.append(file)
            case why:
                found.other.append(f"{file.path} ({why})")
    return found


def _kind(file: StoredFile) -> str:
    """`batches`, `snapshots`, or why it is neither."""
    if file.size() == 0:
        return "empty"
    for part in islice(file.parts(), _MOST_TRIED):
        if part.data is None:
            continue
        try:
            if sniff(part.data):
                return "batches"
            if is_snapshot(part.data):
                return "snapshots"
        except ValueError:
            continue
    return "neither OTLP nor snapshots"


def _source_in(folder: Path) -> Indexed | Segments | None:
    """A folder as what `otlp_file` wrote, a journal or a spool; `None` where it is none of these."""
    if (folder / LIVE).is_file():
        return Indexed(folder)
    if not folder.is_dir():
        return None
    if inventory(os.listdir(folder)).pieces:  # noqa: PTH208 names are enough
        return Indexed(folder)
    try:
        if is_journal(folder):
            return Segments(folder)
        return Segments(folder, is_spool=True) if is_spool(folder) else None
    except LogVersionError as error:
        raise RecordingError(str(error)) from error


def _copied_stdin() -> Scratch:
    """All of standard input as a file that can be read anywhere."""
    copy = Scratch()
    while chunk := sys.stdin.buffer.read(_CHUNK_BYTES):
        copy.append(chunk)
    return copy
