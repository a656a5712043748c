"""Writing a recording: every batch as one line of OTLP JSON, beside an index of their order.

Owns the writing of `index.jsonl`: a header, start lines, one line a batch, findings, an end line, and
rotation: what was written becomes a piece of the recording under other names, and new files begin. Rules: a
batch is in its file before its line is in the index; one signal a file, as other tools expect; marks hold
how far all of them had come, so that a later life goes on from there without a line doubled or missing.
Used from one thread at a time; every disk error is the caller's. Must not know what the batches mean.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from overwatch.journal import Batch, Signal
from overwatch.otlp import jsonl
from overwatch.platform import sync_folder
from overwatch.recordings.index import Located, RecordingError, Started, new_header, read_entry
from overwatch.recordings.pieces import INDEX, Inventory, Piece, inventory
from overwatch.serve.files import LineFile, Mark

_DATA: Final = tuple(signal.value for signal in Signal if signal is not Signal.START)


class RecordingWriter:
    """Writes `<signal>.jsonl` and `index.jsonl` in a folder, which it makes when needed."""

    def __init__(self, folder: Path, signals: Iterable[Signal]) -> None:
        self._folder = folder
        self._files = {signal: LineFile(folder / f"{signal.value}.jsonl") for signal in signals}
        self._index = LineFile(folder / f"{INDEX}.jsonl")
        self._is_settled = False
        """No rotation of an earlier life is half done."""
        self.number = 1
        """Of the piece that is written to."""
        self.size = 0
        """Bytes written to all files since they were opened or rotated."""
        self.began: int | None = None
        """Stamp of the first batch since then."""

    @property
    def index(self) -> Path:
        """Where the index lies."""
        return self._index.path

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What is written; batches of other signals must not be given."""
        return tuple(self._files)

    def start(self, batch: Batch) -> None:
        """Note that a collector started; the body is JSON. Raises `OSError`."""
        body = msgspec.Raw(batch.body)
        line = {"sequence": batch.sequence, "stamp": batch.stamp, "signal": "start", "body": body}
        self._note(line)

    def write(self, batch: Batch) -> None:
        """Write one batch, then its place. Raises `OSError`; then neither is there."""
        self._settle()
        file = self._files[batch.signal]
        line = jsonl.to_json(batch.signal, batch.body) + b"\n"
        mark = file.mark()
        file.append(line)
        entry = Located(
            sequence=batch.sequence, stamp=batch.stamp, signal=batch.signal,
            file=file.path.name, offset=mark.length, length=len(line) - 1,
        )  # fmt: skip
        try:
            self._note(entry)
        except OSError:
            with suppress(OSError):
                file.cut(mark)
            raise
        self.size += len(line)
        self.began = self.began or batch.stamp

    def raised(self, finding: Mapping[str, Any]) -> None:
        """Note that a finding was seen open; keys are those of the index. Raises `OSError`."""
        self._note(finding)

    def rotate(self) -> None:
        """Make a piece of what was written, and begin new files. Raises `OSError`.

        The index moves last: until it has, what was moved before is moved back or along by the next life.
        """
        self._settle()
        if self._index.open() == 0:
            return
        for file in self._all:
            file.sync()
        self._is_settled = False
        self._move(inventory(()))
        self._begin()
        self._is_settled = True

    def end(self, tick: int) -> None:
        """Note the last tick that was taken, in Unix nanoseconds. Raises `OSError`."""
        self._note({"end": tick})

    def marks(self) -> dict[str, Mark]:
        """How far every file has come; what is there survives a power loss. Raises `OSError`."""
        self._settle()
        marks = {file.path.name: file.mark() for file in self._all}
        for file in self._all:
            file.sync()
        return marks

    def go_back(self, marks: Mapping[str, Mark], position: int) -> None:
        """Forget what was written since, from batch `position` on, as it will be written again.

        What other writers have added to the files stays. Raises `OSError`.
        """
        self._settle()
        mark = marks.get(self._index.path.name)
        if mark is None:
            return
        found = self._marked(mark)
        if found is None or _is_foreign(found.after(mark), position):
            return
        if found is not self._index and not self._forget_live(position):
            return
        for name, file in self._like(found).items():
            if name in marks:
                file.cut(marks[name])
            file.close()
        self._resume()

    def close(self) -> None:
        """Let go of the files."""
        for file in self._all:
            file.close()

    @property
    def _all(self) -> tuple[LineFile, ...]:
        return (*self._files.values(), self._index)

    def _note(self, entry: Mapping[str, Any] | Located) -> None:
        self._settle()
        line = msgspec.json.encode(entry) + b"\n"
        if self._index.open() == 0:
            line = _header() + line
        self._index.append(line)
        self.size += len(line)

    def _begin(self) -> None:
        self.number += 1
        self.size, self.began = 0, None
        self._index.append(_header())

    def _settle(self) -> None:
        """Learn which piece this is, and finish a rotation that was cut short. Raises `OSError`."""
        if self._is_settled:
            return
        found = _listed(self._folder)
        self.number = found.number
        self._resume()
        if found.rotating:
            self._move(found)
            self.number += 1
        self._is_settled = True

    def _resume(self) -> None:
        """Take up the size and the age of files that an earlier life wrote to."""
        paths = [self._folder / f"{kind}.jsonl" for kind in (*_DATA, INDEX)]
        self.size = sum(path.stat().st_size for path in paths if path.exists())
        first = _first_in(self._index.head()) if self._index.path.exists() else None
        self.began = None if first is None else first.stamp

    def _move(self, found: Inventory) -> None:
        """Give every live file the name of its piece, but for those that have been moved."""
        piece = Piece(first=self.number, last=self.number)
        for kind in (*_DATA, INDEX):
            path = self._folder / f"{kind}.jsonl"
            if piece.name(kind) not in found.rotating:
                with suppress(FileNotFoundError):
                    path.rename(self._folder / piece.name(kind))
                sync_folder(self._folder)
        self.close()

    def _marked(self, mark: Mark) -> LineFile | None:
        """The index that a mark is of: the live one, or that of a piece which was rotated since."""
        if self._index.mark().inode == mark.inode:
            return self._index
        for piece in reversed(_listed(self._folder).pieces):
            path = self._folder / piece.name(INDEX)
            if piece.generation == 0 and path.stat().st_ino == mark.inode:
                return LineFile(path)
        return None

    def _like(self, index: LineFile) -> dict[str, LineFile]:
        """The files beside an index, by the names that they had while they were written to."""
        if index is self._index:
            return {file.path.name: file for file in self._all}
        stem = index.path.name.removeprefix(INDEX)
        data = {f"{kind}.jsonl": self._folder / f"{kind}{stem}" for kind in _DATA}
        there = {name: LineFile(path) for name, path in data.items() if path.exists()}
        return {**there, index.path.name.partition("-")[0] + ".jsonl": index}

    def _forget_live(self, position: int) -> bool:
        """Empty the live files where they hold nothing but batches from `position` on."""
        if _is_foreign(self._index.head(), position):
            return False
        self.close()
        for file in self._all:
            file.path.unlink(missing_ok=True)
        return True


def _listed(folder: Path) -> Inventory:
    try:
        return inventory(os.listdir(folder))  # noqa: PTH208 names are all that is needed
    except FileNotFoundError:
        return inventory(())


def _header() -> bytes:
    return msgspec.json.encode(new_header()) + b"\n"


def _first_in(lines: bytes) -> Located | Started | None:
    """The first batch or start that lines of an index name."""
    for line in lines.splitlines():
        try:
            entry = read_entry(line)
        except RecordingError:
            continue
        except msgspec.DecodeError:
            return None
        if isinstance(entry, Located | Started):
            return entry
    return None


def _is_foreign(lines: bytes, position: int) -> bool:
    """Whether lines of an index name a batch before `position` first: they are of another journal."""
    first = _first_in(lines)
    return first is not None and first.sequence < position
