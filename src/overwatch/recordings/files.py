"""The files of a recording: its index line by line over all pieces, and the bytes that a line points at.

Rules: a piece's lines name files as they were called while they were written; which file that is now is
decided here. A collector may rotate and pack while the recording is read: what was read of the index stays
good until its piece is thinned. Must not know what lines and batches mean.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from overwatch.otlp.grain import Grain
from overwatch.recordings.index import Header, RecordingError, read_entry
from overwatch.recordings.packed import PackedReader, unpacked_lines
from overwatch.recordings.pieces import INDEX, PACKED, Inventory, Piece, inventory

LIVE: Final = "index.jsonl"
_KEPT_READERS: Final = 2
_TRIES: Final = 5


class RecordingFiles:
    """One folder; `lines` says what `read` may be asked for. Not safe for several threads at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 1
        """Of the files that were written to when the index was read."""
        self._live: tuple[int, int] | None = None
        """Which file the live index was then."""
        self._readers: OrderedDict[str, PackedReader] = OrderedDict()

    def list(self) -> Inventory:
        """What lies in the folder now. Raises `OSError`."""
        return inventory(os.listdir(self.folder))  # noqa: PTH208 names are all that is needed

    def lines(self) -> Iterator[tuple[Piece | None, bytes]]:
        """Every line of the index in order, with its piece; `None` is being written to. Raises `OSError`."""
        found = self._settle()
        for piece in found.pieces:
            for line in piece_lines(self.folder, piece):
                yield piece, line
        for line in live_lines(self.folder):
            yield None, line

    def stored(self, piece: Piece | None, file: str) -> str:
        """Where the bytes of a file that a line names lie. Raises `RecordingError` for one elsewhere."""
        if file != Path(file).name:
            raise RecordingError(f"{self.folder / LIVE} points outside of its folder: {file!r}")
        return file if piece is None else piece.name(file.removesuffix(".jsonl"))

    def read(self, stored: str, offset: int, length: int) -> bytes:
        """Bytes of a stored file's plain stream. Raises `OSError`."""
        if stored.endswith(PACKED):
            return self._packed(stored).read(offset, length)
        try:
            with (self.folder / stored).open("rb") as file:
                moved = "-" not in stored and self._live != _identity(self.folder / LIVE)
                if not moved:
                    return os.pread(file.fileno(), length, offset)
        except FileNotFoundError:
            if "-" not in stored and self._live == _identity(self.folder / LIVE):
                raise
        return self._packed(self._moved(stored)).read(offset, length)

    def _settle(self) -> Inventory:
        """A listing and a live index that belong together, whatever is rotated meanwhile."""
        found = self.list()
        for _ in range(_TRIES):
            self._number, self._live = found.number, _identity(self.folder / LIVE)
            again = self.list()
            if again.number == found.number and not again.rotating:
                return again
            found = again
        return found

    def _moved(self, stored: str) -> str:
        """The packed file that has the bytes of one that was rotated since. Raises `OSError`."""
        kind, _, numbers = stored.removesuffix(".jsonl").partition("-")
        number = int(numbers.partition("-")[0]) if numbers else self._number
        for piece in self.list().pieces:
            if piece.first <= number <= piece.last:
                if not piece.is_packed:
                    return piece.name(kind)
                shares = header_of(self.folder, piece).runs.values()
                if piece.first == piece.last and all(share.grain is Grain.WHOLE for share in shares):
                    return piece.name(kind)
        raise FileNotFoundError(f"{stored} was thinned since the index was read")

    def _packed(self, stored: str) -> PackedReader:
        reader = self._readers.get(stored)
        if reader is None:
            reader = self._readers[stored] = PackedReader(self.folder / stored)
            if len(self._readers) > _KEPT_READERS:
                self._readers.popitem(last=False)
        self._readers.move_to_end(stored)
        return reader


def live_lines(folder: Path) -> Iterator[bytes]:
    """The lines of the index that is written to; none where there is none. Raises `OSError`."""
    try:
        with (folder / LIVE).open("rb") as lines:
            yield from lines
    except FileNotFoundError:
        return


def piece_lines(folder: Path, piece: Piece) -> Iterator[bytes]:
    """The lines of a piece's index. Raises `OSError`."""
    path = folder / piece.name(INDEX)
    if piece.is_packed:
        yield from unpacked_lines(path)
        return
    with path.open("rb") as lines:
        yield from lines


def header_of(folder: Path, piece: Piece) -> Header:
    """The first line of a piece's index. Raises `OSError`, also where it is none."""
    for line in piece_lines(folder, piece):
        try:
            entry = read_entry(line)
        except msgspec.DecodeError:
            break
        if isinstance(entry, Header):
            return entry
        break
    raise OSError(f"{folder / piece.name(INDEX)} has no header")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
