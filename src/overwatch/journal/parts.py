"""The files that a log lies in: their names, their order, which of them holds a record.

A file's name is `<log>-<number>-<first sequence>-<salt>.ow1`: numbers rise from file to file, the salt is
that of its checks, `ow1` is the version of the layout. Must not know how records are laid out.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from overwatch.journal.folder import Folder

_VERSION: Final = 1


class LogVersionError(RuntimeError):
    """The log was written by a newer version; it is left as it is."""


@dataclass(slots=True, kw_only=True)
class Part:
    """One file of a log."""

    name: str
    number: int
    first: int
    """Sequence of its first record, if it has one."""
    salt: int
    end: int
    """Bytes of whole records; others may follow where a write failed."""


class Parts:
    """A log's files, oldest first."""

    def __init__(self, folder: Folder, log: str) -> None:
        """List them, sizes taken for ends. Raises `LogVersionError`, or `OSError`."""
        self._log = log
        sizes = {name: folder.stat(name).st_size for name in folder.names() if name.startswith(f"{log}-")}
        self.all = parts_in(sizes, log, folder.path)
        self._last_number = self.all[-1].number if self.all else 0

    @property
    def newest(self) -> Part:
        """The one that is written to; there must be one."""
        return self.all[-1]

    def begin(self, first: int) -> Part:
        """Name a new file, not yet part of the log."""
        self._last_number += 1
        salt = secrets.randbits(32)
        name = f"{self._log}-{self._last_number:010d}-{first:020d}-{salt:08x}.ow{_VERSION}"
        return Part(name=name, number=self._last_number, first=first, salt=salt, end=0)

    def following(self, number: int) -> Part | None:
        """The oldest file after file `number`."""
        return next((part for part in self.all if part.number > number), None)

    def holding(self, sequence: int) -> Part | None:
        """The file that a record would lie in, or else the oldest."""
        held = [part for part in self.all if part.first <= sequence]
        return held[-1] if held else self.following(0)

    def bytes_after(self, number: int, offset: int) -> int:
        """Bytes of records after a place in file `number`."""
        return sum(
            part.end - (offset if part.number == number else 0) for part in self.all if part.number >= number
        )


def parts_in(sizes: Mapping[str, int], log: str, where: Path) -> list[Part]:
    """The files of a log among these names, oldest first; sizes are taken for ends.

    Raises `LogVersionError`; `where` is what it names.
    """
    shape = re.compile(rf"{re.escape(log)}-(\d{{10}})-(\d{{20}})-([0-9a-f]{{8}})\.ow(\d+)")
    found = []
    for name, size in sizes.items():
        match = shape.fullmatch(name)
        if match is None:
            continue
        number, first, salt, version = match.groups()
        if int(version) > _VERSION:
            raise LogVersionError(f"{where / name} was written by a newer version of Overwatch")
        found.append(Part(name=name, number=int(number), first=int(first), salt=int(salt, 16), end=size))
    return sorted(found, key=lambda part: part.number)
