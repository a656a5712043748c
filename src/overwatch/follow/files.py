"""The runs below a path, and the rows of each.

Rules: a folder with files of one format is a run, named by its path; of several formats the surest is read,
since a library writes the same numbers to each. Event files of one folder are one run; of other formats each
file is. A row that was read is not given again where a program writes its file anew. Must not know events.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from overwatch.follow.base import Logged, Reader
from overwatch.follow.readers import READERS, Format, by_head, by_name
from overwatch.follow.tail import Begins, Tail

_HEAD: Final = 4096
_MOST_FILES: Final = 4096
"""Below one path."""
_LONGEST: Final = 120
"""Characters of a run's id."""
_SESSION: Final = re.compile(r"[0-9]{9,}\.[0-9]+")
"""How PyTorch's `add_hparams` names the folder that it makes below a run's."""
_MERGED: Final = frozenset({"wandb", "tensorboard"})
"""Formats of which all files of a folder are one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One run and its files."""

    run_id: str
    kind: Format
    files: tuple[Path, ...]


def find(path: Path, wanted: str | None = None) -> list[Place]:
    """The runs below a path, by their files' names; `wanted` is the only format that is read."""
    by_folder: dict[Path, list[tuple[Format, Path]]] = {}
    for file in _below(path):
        kind = by_name(file.name)
        if kind is not None and wanted in (None, kind.name):
            by_folder.setdefault(file.parent, []).append((kind, file))
    for folder in [one for one in by_folder if _SESSION.fullmatch(one.name) and one.parent in by_folder]:
        by_folder[folder.parent] += by_folder.pop(folder)
    return [place for folder in sorted(by_folder) for place in _places(path, folder, by_folder[folder])]


def _below(path: Path) -> Iterator[Path]:
    count = 0
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            count += 1
            if count > _MOST_FILES:
                return
            yield Path(folder, name)


def _places(path: Path, folder: Path, found: list[tuple[Format, Path]]) -> Iterator[Place]:
    kind = min((kind for kind, _ in found), key=READERS.index)
    files = tuple(file for one, file in found if one is kind)
    run_id = run_id_of(path, folder)
    if kind.name in _MERGED or len(files) == 1:
        yield Place(run_id=run_id, kind=kind, files=files)
        return
    for file in files:
        yield Place(run_id=f"{run_id}/{file.stem}", kind=kind, files=(file,))


def run_id_of(path: Path, folder: Path) -> str:
    """A folder's name, from that of the path that was given on."""
    return _id(path.resolve().name, *folder.relative_to(path).parts)


def run_id_of_file(path: Path, kind: Format | None) -> str:
    """A file with its folder; the folder alone where a library makes the name of the file."""
    folder = path.resolve().parent.name
    return _id(folder) if kind is not None and kind.name in _MERGED else _id(folder, path.stem)


def _id(*parts: str) -> str:
    return "/".join(part for part in parts if part)[-_LONGEST:] or "run"


class File:
    """One file as rows."""

    def __init__(self, path: Path, make: Callable[[], Reader] | None = None) -> None:
        self.path = path
        self.problems: Counter[str] = Counter()
        """Of the file itself."""
        self.reader = make() if make else None
        """`None` until the first bytes show the format."""
        self._tail = Tail(path)
        self._rows: list[int] = []
        """A hash of each row that was given."""
        self._again: int | None = None
        """How many rows of a file that was written anew were met again; `None` outside of that."""

    def rows(self) -> list[Logged]:
        """What was added since the last look, at most a few MiB; empty where nothing was."""
        while data := self._read():
            rows = [row for row in self._fed(data) if self._is_new(row)]
            if rows:
                return rows
        return []

    @property
    def position(self) -> int:
        """Bytes whose rows were given, or wait in the reader."""
        return self._tail.position

    def past(self, position: int) -> list[Logged]:
        """The rows up to a place, of a file that was read up to there before."""
        self._tail.until, found = position, list[Logged]()
        while self._tail.position < position and (data := self._read()):
            found += [row for row in self._fed(data) if self._is_new(row)]
        self._tail.until = None
        return found

    def _read(self) -> bytes:
        try:
            data, begins = self._tail.read()
        except OSError as error:
            self.problems[f"looks that failed ({error.strerror})"] += 1
            return b""
        if begins is not Begins.ON:
            self._again = 0 if begins is Begins.REWRITTEN else None
            if self.reader is not None:
                self.reader.restart()
        return data

    def _fed(self, data: bytes) -> Iterable[Logged]:
        """Rows of these bytes; the first ones show the format where none was named."""
        if self.reader is None:
            kind = by_head(data[:_HEAD])
            if kind is None:
                known = ", ".join(one.name for one in READERS)
                self.problems[f"bytes in no format that is read ({known})"] += len(data)
                return ()
            self.reader = kind.make()
        return self.reader.feed(data)

    def all(self) -> Iterator[Logged]:
        """Every row, and the file's end."""
        size = -1
        while size != self._tail.position:
            size = self._tail.position
            yield from self.rows()
        self.end()

    def end(self) -> None:
        """The file is not read on."""
        if self.reader is not None:
            self.reader.end()
        self._tail.close()

    def remarks(self) -> Iterator[str]:
        """What could not be used, in a line each."""
        known = self.reader.known.problems if self.reader else Counter[str]()
        for problem, count in (*self.problems.items(), *known.items()):
            yield f"{self.path}: {count:,} {problem}"

    def _is_new(self, row: Logged) -> bool:
        mark = hash(repr(row))
        if self._again is not None:
            if self._again < len(self._rows) and self._rows[self._again] == mark:
                self._again += 1
                return False
            del self._rows[self._again :]
            self._again = None
        self._rows.append(mark)
        return True


def newest(paths: Iterable[Path]) -> int:
    """When the newest of some files was written to; 0 where none is there."""
    return max((path.stat().st_mtime_ns for path in paths if path.exists()), default=0)
