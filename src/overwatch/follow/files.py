"""The runs below a path, and the rows of each.

Rules: a folder with files of one format is a run, named by its path; of several formats the surest is read,
since a library writes the same numbers to each. Event files of one folder are one run; of other formats each
file is, but for the episodes of `monitor.csv`, which are of the run beside them. A row that was read is not
given again where a program writes its file anew, or renames a new one over it. Must not know events.
"""

import hashlib
import os
import re
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from overwatch.follow.base import Logged, Reader
from overwatch.follow.readers import READERS, Format, by_head, by_name
from overwatch.follow.readers.tensorboard import FIRST_BYTES, first_tag
from overwatch.follow.tail import Tail

_HEAD: Final = 4096
_SKIPPED: Final = frozenset(
    {".git", ".hg", ".svn", ".venv", ".tox", ".nox", ".cache", ".ipynb_checkpoints", "__pycache__",
     "node_modules", "site-packages"}
)  # fmt: skip
"""Folders that hold no runs, and many files."""
_LONGEST: Final = 120
"""Characters of a run's id."""
_SESSION: Final = re.compile(r"[0-9]{9,}\.[0-9]+")
"""How PyTorch's `add_hparams` names the folder that it makes below a run's."""
_MERGED: Final = frozenset({"wandb", "tensorboard"})
"""Formats of which all files of a folder are one run."""
_MONITOR: Final = "monitor.csv"
"""How names of files end that hold the episodes of one environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One run and its files."""

    run_id: str
    folder: Path
    kind: Format
    files: tuple[Path, ...]

    def open(self, path: Path) -> "File":
        """One of its files as rows."""
        main = "" if path.parent == self.folder or _SESSION.fullmatch(path.parent.name) else path.parent.name
        make = partial(self.kind.make, main) if main and self.kind.name == "tensorboard" else self.kind.make
        return File(path, make)


def find(path: Path, wanted: str | None = None) -> list[Place]:
    """The runs below a path, by their files' names; `wanted` is the only format that is read."""
    by_folder: dict[Path, list[tuple[Format, Path]]] = {}
    for file in _below(path):
        kind = by_name(file.name)
        if kind is not None and wanted in (None, kind.name):
            by_folder.setdefault(file.parent, []).append((kind, file))
    for folder in [one for one in by_folder if one.parent in by_folder and _is_part(by_folder[one])]:
        by_folder[folder.parent] += by_folder.pop(folder)
    return [place for folder in sorted(by_folder) for place in _places(path, folder, by_folder[folder])]


def _below(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in sorted(files):
            yield Path(folder, name)


def _is_part(files: list[tuple[Format, Path]]) -> bool:
    """Whether a folder is part of the run above it: of `add_hparams`, or of `add_scalars`, which names it.

    `add_scalars("loss", {"train": 1})` writes the tag `loss` into a folder `loss_train`.
    """
    kind, file = files[0]
    if _SESSION.fullmatch(file.parent.name):
        return True
    tag = first_tag(file, min(file.stat().st_size, FIRST_BYTES)) if kind.name == "tensorboard" else ""
    return bool(tag) and file.parent.name.startswith(tag.replace("/", "_") + "_")


def _places(path: Path, folder: Path, found: list[tuple[Format, Path]]) -> Iterator[Place]:
    kind = min((kind for kind, _ in found), key=READERS.index)
    files = tuple(file for one, file in found if one is kind)
    run_id = run_id_of(path, folder)
    beside = tuple(file for file in files if file.name.endswith(_MONITOR))
    runs = tuple(file for file in files if file not in beside)
    if kind.name in _MERGED or len(runs) <= 1:
        yield Place(run_id=run_id, folder=folder, kind=kind, files=files)
        return
    for file in runs:
        yield Place(run_id=f"{run_id}/{file.stem}", folder=folder, kind=kind, files=(file,))
    if beside:
        yield Place(run_id=f"{run_id}/monitor", folder=folder, kind=kind, files=beside)


def run_id_of(path: Path, folder: Path) -> str:
    """A folder's name, from that of the path that was given on."""
    return _id(path.resolve().name, *folder.relative_to(path).parts)


def run_id_of_file(path: Path, kind: Format | None) -> str:
    """A file with its folder; the folder alone where a library makes the name of the file."""
    folder = path.resolve().parent.name
    return _id(folder) if kind is not None and kind.name in _MERGED else _id(folder, path.stem)


def _id(*parts: str) -> str:
    return "/".join(part for part in parts if part)[-_LONGEST:] or "run"


_NEWEST: Final = 1024
"""Numbers by which the place is known in a file whose oldest rows are gone."""


class Reached(msgspec.Struct, frozen=True):
    """How far one file was read, by its numbers: a file that has them is the same, whatever became of it."""

    path: str
    numbers: int
    digest: str
    newest: tuple[int, ...] = ()
    """Checksums of the newest numbers."""


class File:
    """One file as rows."""

    def __init__(self, path: Path, make: Callable[[], Reader] | None = None) -> None:
        self.path = path
        self.make = make
        self.problems: Counter[str] = Counter()
        """Of the file itself."""
        self.reader = make() if make else None
        """`None` until the first bytes show the format."""
        self.waiting: deque[Logged] = deque()
        """Rows that were read, and not yet taken."""
        self._tail = Tail(path)
        self._marks = array("q")
        """A hash of each row that was read."""
        self._again: int | None = None
        """How many rows of a file that was written anew were met again; `None` outside of that."""
        self._is_anew = False
        self._numbers, self._digest = 0, hashlib.blake2b(digest_size=16)
        self._newest = deque[int](maxlen=_NEWEST)

    def look(self) -> bool:
        """Read on until rows wait; whether any do."""
        while not self.waiting and (data := self._read()):
            self.waiting.extend(row for row in self._fed(data) if self._is_new(row))
        return bool(self.waiting)

    def take(self) -> Logged:
        """The oldest row that waits."""
        row = self.waiting.popleft()
        self._note(row)
        return row

    def reached(self) -> Reached:
        """How far rows were taken."""
        return Reached(str(self.path), self._numbers, self._digest.hexdigest(), tuple(self._newest))

    def past(self, reached: Reached) -> list[Logged] | None:
        """Take the rows up to a place that was reached before; `None` where the file has other ones."""
        found: list[Logged] = []
        while self._numbers < reached.numbers and self.look():
            row, left = self.waiting[0], reached.numbers - self._numbers
            if len(row.values) > left:
                # A row of event files may end where a look ended.
                items = list(row.values.items())
                parts = [
                    msgspec.structs.replace(row, values=dict(part)) for part in (items[:left], items[left:])
                ]
                self.waiting[0] = parts[1]
                self.waiting.appendleft(parts[0])
            found.append(self.take())
        is_there = (self._numbers, self._digest.hexdigest()) == (reached.numbers, reached.digest)
        return found if is_there else None

    def find(self, newest: Sequence[int]) -> Reached | None:
        """Read the file for the place behind the newest numbers that were taken; `None` where there is none.

        Of a file that begins among them, those that it still has count.
        """
        place = None
        while self.look():
            self.take()
            known = [*self._newest][-len(newest) :] if newest and self._newest[-1] == newest[-1] else []
            if known and known == list(newest[-len(known) :]):
                place = self.reached()
        self._tail.close()
        return place

    def _note(self, row: Logged) -> None:
        self._numbers += len(row.values)
        for item in row.values.items():
            number = repr((row.step, item)).encode("utf-8", "replace")
            self._digest.update(number)
            self._newest.append(zlib.crc32(number))

    def _read(self) -> bytes:
        try:
            data, is_anew = self._tail.read()
        except OSError as error:
            self.problems[f"looks that failed ({error.strerror})"] += 1
            return b""
        if is_anew:
            self._is_anew = True
            self._numbers, self._digest = 0, hashlib.blake2b(digest_size=16)
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

    def end(self) -> None:
        """The file is not read on: what its reader holds are rows, or counted."""
        if self.reader is not None:
            self.waiting.extend(row for row in self.reader.end() if self._is_new(row))
        self._tail.close()

    def rest(self) -> None:
        """Hold no descriptor until it is read on: there may be thousands of files."""
        self._tail.close()

    def remarks(self) -> Iterator[str]:
        """What could not be used, in a line each."""
        known = self.reader.known.problems if self.reader else Counter[str]()
        for problem, count in (*self.problems.items(), *known.items()):
            yield f"{self.path}: {count:,} {problem}"

    def _is_new(self, row: Logged) -> bool:
        """Whether a row was not given before: of a file that was written anew, those that it had are known.

        Its first row may be a later one of those before, where a program writes the newest ones only.
        """
        mark = hash(repr(row))
        if self._is_anew:
            self._is_anew = False
            self._again = self._marks.index(mark) if mark in self._marks else 0
        if self._again is not None:
            if self._again < len(self._marks) and self._marks[self._again] == mark:
                self._again += 1
                self._note(row)
                return False
            del self._marks[self._again :]
            self._again = None
        self._marks.append(mark)
        return True


def newest(paths: Iterable[Path]) -> int:
    """When the newest of some files was written to; 0 where none is there."""
    return max((path.stat().st_mtime_ns for path in paths if path.exists()), default=0)
