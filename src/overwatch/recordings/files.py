"""The files of a recording: its index line by line over all pieces, and the bytes that a line points at.

Rules: a piece's lines name files as they were called while they were written; which file that is now is
decided here. A collector may rotate, pack, join and thin while the recording is read: what was read of the
index stays good, and a batch is found again by its sequence and stamp. Must not know what lines and batches
mean.
"""

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import msgspec

from overwatch.recordings.index import Located, RecordingError, read_entry
from overwatch.recordings.packed import PackedReader, lines_in, unpacked
from overwatch.recordings.pieces import INDEX, PACKED, Inventory, Piece, inventory
from overwatch.recordings.stored import Handles

LIVE: Final = "index.jsonl"
_KEPT_READERS: Final = 2
_KEPT_PLACES: Final = 2
_MOST_HELD: Final = 256
"""Pieces, the newest, whose index is open before the first line is given, and so stays readable."""
_TRIES: Final = 20
_CHUNK_BYTES: Final = 1 << 20

_Places: TypeAlias = dict[tuple[int, int], tuple[int, int]]
"""Offset and length by sequence and stamp."""


class RecordingFiles:
    """One folder; `lines` yields what `line` may be called with. Not safe for several threads at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._root = f"{folder}{os.sep}"
        self._handles = Handles()
        """Of plain files; what a descriptor was opened for stays readable whatever becomes of its name."""
        self._number = 1
        """Of the files that were written to when the index was read."""
        self._live: int | None = None
        """Descriptor of what was the live index then; open, so that no other file gets its inode."""
        self._let_go: Callable[[], object] = lambda: None
        self._readers: OrderedDict[str, PackedReader] = OrderedDict()
        self._places: OrderedDict[Piece, _Places] = OrderedDict()

    def list(self) -> Inventory:
        """What lies in the folder now. Raises `OSError`."""
        return inventory(os.listdir(self.folder))  # noqa: PTH208 names are all that is needed

    def lines(self) -> Iterator[tuple[Piece | None, bytes]]:
        """Every line of the index in order, with its piece; `None` is being written to. Raises `OSError`."""
        with ExitStack() as held:
            pieces, files = self._hold(held)
            for piece in pieces:
                for line in piece_lines(self.folder, piece, files.get(piece)):
                    yield piece, line
            if self._live is not None:
                for line in lines_in(_chunks_at(self._live), self.folder / LIVE):
                    yield None, line

    def stored(self, piece: Piece | None, file: str) -> str:
        """Where the bytes of a file that a line names lie. Raises `RecordingError` for one elsewhere."""
        if file != Path(file).name:
            raise RecordingError(f"{self.folder / LIVE} points outside of its folder: {file!r}")
        return file if piece is None else piece.name(file.removesuffix(".jsonl"))

    def line(self, entry: Located) -> bytes:
        """The line of a batch, newline excluded, wherever it lies by now; its `file` is as `stored` gave it.

        Raises `OSError`, `FileNotFoundError` too where nothing of the batch was kept.
        """
        try:
            return self.read(entry.file, entry.offset, entry.length)
        except FileNotFoundError:
            tried = None
        while (piece := self._holding(entry.file)) != tried:
            tried = piece
            with suppress(FileNotFoundError):
                return self._read_from(piece, entry)
        raise FileNotFoundError(f"{self.folder / entry.file}: batch {entry.sequence} is not there any more")

    def read(self, stored: str, offset: int, length: int) -> bytes:
        """Bytes of the plain stream of a stored file that has not moved. Raises `OSError`."""
        if stored.endswith(PACKED):
            return self._packed(stored).read(offset, length)
        path = self._root + stored
        is_new = path not in self._handles
        fd = self._handles.of(path)
        # A file that was written to when the index was read may have another name now.
        if is_new and "-" not in stored and self._live_then() != _identity(self.folder / LIVE):
            self._handles.forget(path)
            raise FileNotFoundError(f"{path} was rotated since the index was read")
        return os.pread(fd, length, offset)

    def _hold(self, held: ExitStack) -> tuple[tuple[Piece, ...], dict[Piece, BinaryIO]]:
        """The pieces that count, and the newest ones' index files; they belong to the live index of now."""
        for attempt in range(_TRIES):
            found = self._settle()
            files: dict[Piece, BinaryIO] = {}
            with ExitStack() as opening:
                try:
                    for piece in found.pieces[-_MOST_HELD:]:
                        path = self.folder / piece.name(INDEX)
                        files[piece] = opening.enter_context(path.open("rb"))
                except FileNotFoundError:
                    if attempt == _TRIES - 1:
                        raise
                    continue
                held.push(opening.pop_all())
                return found.pieces, files
        raise AssertionError("the last attempt returns or raises")

    def _settle(self) -> Inventory:
        """A listing and a live index that belong together, whatever is rotated meanwhile."""
        found = self.list()
        for _ in range(_TRIES):
            self._number = found.number
            self._take_live()
            again = self.list()
            if again.number == found.number and not again.rotating:
                return again
            found = again
        return found

    def _take_live(self) -> None:
        self._let_go()
        self._live = None
        self._handles = Handles()
        with suppress(FileNotFoundError):
            self._live = os.open(self.folder / LIVE, os.O_RDONLY | os.O_CLOEXEC)
            self._let_go = weakref.finalize(self, os.close, self._live)

    def _live_then(self) -> tuple[int, int] | None:
        if self._live is None:
            return None
        known = os.fstat(self._live)
        return known.st_dev, known.st_ino

    def _holding(self, stored: str) -> Piece:
        """The piece that holds by now what a file held when the index was read. Raises `OSError`."""
        numbers = stored.partition(".")[0].partition("-")[2]
        number = int(numbers.partition("-")[0]) if numbers else self._number
        there = (piece for piece in self.list().pieces if piece.first <= number <= piece.last)
        return next(there, Piece(first=number, last=number))

    def _read_from(self, piece: Piece, entry: Located) -> bytes:
        """A batch out of a piece. Raises `OSError`, `FileNotFoundError` where it was thinned."""
        name = piece.name(entry.signal.value)
        if piece.generation == 0:
            return self.read(name, entry.offset, entry.length)
        place = self._places_of(piece).get((entry.sequence, entry.stamp))
        if place is None:
            raise FileNotFoundError(name)
        return self.read(name, *place)

    def _places_of(self, piece: Piece) -> _Places:
        places = self._places.get(piece)
        if places is None:
            places = self._places[piece] = _placed(self.folder, piece)
            if len(self._places) > _KEPT_PLACES:
                self._places.popitem(last=False)
        self._places.move_to_end(piece)
        return places

    def _packed(self, stored: str) -> PackedReader:
        reader = self._readers.get(stored)
        if reader is None:
            reader = self._readers[stored] = PackedReader(self.folder / stored)
            if len(self._readers) > _KEPT_READERS:
                self._readers.popitem(last=False)
        self._readers.move_to_end(stored)
        return reader


def _chunks_at(fd: int) -> Iterator[bytes]:
    """What an open file holds, wherever it stands. Raises `OSError`."""
    at = 0
    while chunk := os.pread(fd, _CHUNK_BYTES, at):
        at += len(chunk)
        yield chunk


def _placed(folder: Path, piece: Piece) -> _Places:
    """Where the batches of a piece lie. Raises `OSError`."""
    places: _Places = {}
    for line in piece_lines(folder, piece):
        try:
            entry = read_entry(line)
        except msgspec.DecodeError:
            continue
        if isinstance(entry, Located):
            places[entry.sequence, entry.stamp] = entry.offset, entry.length
    return places


def live_lines(folder: Path) -> Iterator[bytes]:
    """The lines of the index that is written to; none where there is none. Raises `OSError`."""
    try:
        with (folder / LIVE).open("rb") as lines:
            yield from lines
    except FileNotFoundError:
        return


def piece_lines(folder: Path, piece: Piece, file: BinaryIO | None = None) -> Iterator[bytes]:
    """The lines of a piece's index, of which a file may be open. Raises `OSError`."""
    path = folder / piece.name(INDEX)
    if file is None:
        with path.open("rb") as opened:
            yield from piece_lines(folder, piece, opened)
    elif piece.is_packed:
        yield from unpacked(file, path)
    else:
        yield from file


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
