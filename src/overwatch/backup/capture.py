"""Files of a data folder that belong to one moment, while a collector writes to them.

Rules, in order: the journal's files are opened first, so that nothing that a reader still needs is dropped
under the copy; then each recording as long as its place in the journal states, so that a restored collector
writes no batch twice; then checkpoints, places and notes; the journal's ends last, so that it holds all that
any of them has seen. What is open stays readable when it is dropped, rotated or replaced. Nothing is locked
and nothing is written. Snapshots are left out: a recording makes them again. Must not know where copies go.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from overwatch.backup.manifest import BackupError
from overwatch.journal.cursors import Place, place_in
from overwatch.recordings.checkpoints import FOLDER
from overwatch.recordings.files import LIVE
from overwatch.recordings.pieces import INDEX, inventory, piece_of
from overwatch.regular import read_regular
from overwatch.serve.files import Mark

JOURNAL: Final = "journal"
ENDED: Final = "ended"
_SEGMENT: Final = ".ow"
_CURSOR: Final = ".cursor"
_TRIES: Final = 100
_WAIT_S: Final = 0.05
"""A collector keeps its place in the journal every two seconds."""
_SKIPPED: Final = ("lock", "tidy.lock")


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was at the moment."""

    path: str
    """Below the data folder."""
    fd: int
    size: int
    """Bytes from its begin on that belong to the moment."""
    modified_ns: int
    data: bytes | None = None
    """What it held, of a small file that is written to in place."""

    def read(self) -> bytes:
        """Its bytes of the moment. Raises `OSError`."""
        if self.data is not None:
            return self.data
        parts, at = [], 0
        while at < self.size and (part := os.pread(self.fd, self.size - at, at)):
            parts.append(part)
            at += len(part)
        return b"".join(parts)


class _Note(msgspec.Struct, frozen=True):
    """What `otlp_file` keeps with its place."""

    folder: str
    marks: dict[str, Mark]


_noted: Final = msgspec.json.Decoder(_Note).decode


class _MovingError(Exception):
    """Files changed while they were opened; another try finds them at rest."""


@contextmanager
def captured(data: Path) -> Iterator[list[Open]]:
    """The files of a data folder at one moment, open; raises `BackupError` naming what is in the way."""
    with ExitStack() as held:
        journal = _Opening(data, held)
        journal.segments()
        rest = _Opening(data, held)
        rest.folder(ENDED, _plain)
        for name in _recordings(data):
            _settled(data, name, rest)
        rest.folder(JOURNAL, lambda name: _plain(name) and not _is_segment(name))
        journal.segments()
        found = [*rest.found.values(), *(as_now(one) for one in journal.found.values())]
        if not found:
            raise BackupError(f"{data} holds no journal and no recording; name a collector's data folder")
        yield sorted(found, key=lambda one: one.path)


class _Opening:
    """Opens files and keeps them open."""

    def __init__(self, data: Path, held: ExitStack) -> None:
        self._data, self._held = data, held
        self.found: dict[str, Open] = {}

    def segments(self) -> None:
        """Those of the journal that were not opened before."""
        self.folder(JOURNAL, _is_segment)

    def folder(self, below: str, is_wanted: Callable[[str], bool]) -> None:
        """Files of a folder that were not opened before; one that is gone by now is not needed."""
        for name in _names(self._data / below):
            if is_wanted(name) and f"{below}/{name}" not in self.found:
                with suppress(FileNotFoundError):
                    self.file(f"{below}/{name}")

    def file(self, path: str, size: int | None = None) -> Open:
        """One file, up to `size`. Raises `OSError`."""
        fd = os.open(self._data / path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._held.callback(os.close, fd)
        one = as_now(Open(path=path, fd=fd, size=0, modified_ns=0))
        if size is not None:
            one = msgspec.structs.replace(one, size=size)
        if path.endswith(_CURSOR):
            one = msgspec.structs.replace(one, data=one.read())
        self.found[path] = one
        return one

    def adopt(self, other: "_Opening", held: ExitStack) -> None:
        """Keep what another has opened."""
        self._held.push(held.pop_all())
        self.found.update(other.found)


def as_now(one: Open) -> Open:
    """The same file with the size that it has by now."""
    state = os.fstat(one.fd)
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "no regular file; move it away", one.path)
    return msgspec.structs.replace(one, size=state.st_size, modified_ns=state.st_mtime_ns)


def _recordings(data: Path) -> list[str]:
    """Folders directly below the data folder that hold a recording."""
    names = [name for name in _names(data, folders=True) if name not in (JOURNAL, ENDED)]
    return [
        name for name in names if any(one == LIVE or piece_of(one) is not None for one in _names(data / name))
    ]


def _settled(data: Path, name: str, into: _Opening) -> None:
    """Open a recording that agrees with its place in the journal. Raises `BackupError` where none does."""
    for _ in range(_TRIES):
        with ExitStack() as held:
            opening = _Opening(data, held)
            try:
                _open_recording(data, name, opening)
            except (_MovingError, FileNotFoundError):
                time.sleep(_WAIT_S)
                continue
            into.adopt(opening, held)
            return
    raise BackupError(
        f"{data / name} does not agree with its place in the journal: a rotation was cut short, or its disk "
        "refuses; let the collector run for some seconds, then try again"
    )


def _open_recording(data: Path, name: str, opening: _Opening) -> None:
    folder = data / name
    marks = _marks(data, name, opening)
    before = inventory(_names(folder))
    for file in (*_live(folder), *_counting(folder)):
        # Without a place the index is opened first: what it points at is there.
        mark = None if marks is None or piece_of(file) is not None else marks.get(file)
        opening.file(f"{name}/{file}", None if mark is None else mark.length)
    if marks is not None:
        _agree(name, marks, opening)
    after = inventory(_names(folder))
    if before.rotating or after.rotating or before.pieces != after.pieces or _is_moved(data, opening):
        raise _MovingError
    opening.folder(f"{name}/{FOLDER}", _plain)


def _live(folder: Path) -> list[str]:
    return [one for one in _names(folder) if one.endswith(".jsonl") and piece_of(one) is None]


def _counting(folder: Path) -> list[str]:
    pieces = set(inventory(_names(folder)).pieces)
    return [one for one in _names(folder) if (found := piece_of(one)) is not None and found[1] in pieces]


def _marks(data: Path, name: str, opening: _Opening) -> dict[str, Mark] | None:
    """How far the recording's files had come at its place in the journal; `None` where it has none.

    The place is opened, so that a later one is not taken in its stead.
    """
    here = str((data / name).absolute())
    notes = {file: note for file in _names(data / JOURNAL) if (note := _note(data / JOURNAL / file))}
    exact = [file for file, note in notes.items() if note.folder == here]
    # A folder that was moved, or is mounted elsewhere by now.
    alike = [file for file, note in notes.items() if Path(note.folder).name == name]
    for file in (exact or alike)[:1]:
        place = opening.file(f"{JOURNAL}/{file}")
        note = _noted_in(place_in(place.read()))
        return None if note is None else note.marks
    return None


def _note(path: Path) -> _Note | None:
    """The note of a recording's place, `None` for any other file."""
    if path.suffix != _CURSOR:
        return None
    with suppress(OSError):
        return _noted_in(place_in(read_regular(path)))
    return None


def _noted_in(place: Place | None) -> _Note | None:
    if place is None or not place.note:
        return None
    with suppress(msgspec.DecodeError):
        return _noted(place.note)
    return None


def _is_moved(data: Path, opening: _Opening) -> bool:
    """Whether a place that was opened was kept again since: what lay behind the older one may be gone."""
    places = ((path, one.data) for path, one in opening.found.items() if one.data is not None)
    return any(read_regular(data / path) != then for path, then in places)


def _agree(name: str, marks: dict[str, Mark], opening: _Opening) -> None:
    """Raise `_MovingError` unless the live files are those that the marks are of.

    In a restored folder the inodes are others, and only lengths are compared. New live files can be as long
    as the marks where those that the marks are of were rotated: then a piece has their index.
    """
    rotated = (one for path, one in opening.found.items() if _is_rotated_index(Path(path).name))
    if LIVE in marks and any(os.fstat(one.fd).st_ino == marks[LIVE].inode for one in rotated):
        raise _MovingError
    for file, mark in marks.items():
        live = opening.found.get(f"{name}/{file}")
        if live is None:
            raise _MovingError
        state = os.fstat(live.fd)
        is_same = state.st_ino == mark.inode and state.st_size >= mark.length
        if not is_same and state.st_size != mark.length:
            raise _MovingError


def _is_rotated_index(file: str) -> bool:
    """Whether a file is the index of a piece that was not rewritten, and so the file that was written to."""
    found = piece_of(file)
    return found is not None and found[0] == INDEX and found[1].generation == 0


def _names(folder: Path, *, folders: bool = False) -> list[str]:
    """Names of files, or of folders; none where there is no folder."""
    try:
        with os.scandir(folder) as found:
            return sorted(
                one.name
                for one in found
                if (one.is_dir(follow_symlinks=False) if folders else one.is_file(follow_symlinks=False))
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def _plain(name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED


def _is_segment(name: str) -> bool:
    return name.rpartition(".")[2].startswith(_SEGMENT[1:])
