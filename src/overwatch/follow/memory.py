"""How far the files of a followed run were delivered, so that following that begins again goes on from there.

Owns a small file a run and collector. Rules: it states less than was delivered, never more; it holds for the
same file on disk (device, inode, its beginning) that is not shorter now. What cannot be read or written is
no memory. Must not know rows.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from overwatch.recordings.checkpoints import write_whole
from overwatch.regular import open_regular, read_regular

_HEAD: Final = 4096
"""Bytes by which a file is known beside its inode, which another one may get."""


class Reached(msgspec.Struct, frozen=True):
    """How far one file was delivered."""

    path: str
    position: int
    device: int
    inode: int
    head: str

    @property
    def holds(self) -> bool:
        """Whether the file is still the one that was read."""
        found = reached(Path(self.path), self.position)
        return found == self


class Remembered(msgspec.Struct, frozen=True):
    """How far a run was delivered."""

    files: tuple[Reached, ...]
    is_over: bool
    """Whether its end was delivered, too."""


_remembered: Final = msgspec.json.Decoder(Remembered).decode


def reached(path: Path, position: int) -> Reached | None:
    """The file as it is now; `None` where it cannot be read, or is shorter."""
    try:
        with open_regular(path) as file:
            state, head = os.fstat(file.fileno()), file.read(min(_HEAD, position))
    except OSError:
        return None
    if state.st_size < position:
        return None
    digest = hashlib.blake2b(head, digest_size=16).hexdigest()
    return Reached(str(path), position, state.st_dev, state.st_ino, digest)


class Memory:
    """What one collector has."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self._folder, self._endpoint = folder, endpoint

    def recall(self, run_id: str, files: Sequence[Path]) -> Remembered | None:
        """How far a run of these files was delivered; `None` where that is unknown, or not true any more."""
        try:
            found = _remembered(read_regular(self._file(run_id, files)))
        except (OSError, msgspec.MsgspecError):
            return None
        return found if all(one.holds for one in found.files) else None

    def keep(self, run_id: str, files: Sequence[Path], found: Remembered) -> None:
        """Remember it."""
        path = self._file(run_id, files)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(path, msgspec.json.encode(found))

    def _file(self, run_id: str, files: Sequence[Path]) -> Path:
        first = str(min(files, default=Path()).resolve())
        owner = hashlib.blake2b(repr((self._endpoint, run_id, first)).encode(), digest_size=16)
        return self._folder / f"{owner.hexdigest()}.json"
