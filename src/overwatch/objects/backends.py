"""What a store stands on: a folder here, or a bucket in `buckets`. Each operation once, without retries.

Rules: a file is whole or not there, and on the disk when `write` returns. `write` with a tag, or with `None`
for "not there", is refused with `TakenError` when the file is another. `PermanentError` is for what no
repetition mends; any other exception may pass. Must not know what the files mean.
"""

import errno
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from overwatch.file_lock import locked
from overwatch.objects.digests import Bytes, sha256_of
from overwatch.platform import sync, sync_folder
from overwatch.regular import open_regular

_CHUNK: Final = 1 << 20
_AT_ONCE: Final = 64 << 20
"""A file of at most so many bytes is read once, for its tag and its content."""
_LOCK: Final = ".replace"


class PermanentError(Exception):
    """What no repetition mends."""


class TakenError(Exception):
    """The file is another than the writer expected."""


class Tag(msgspec.Struct, frozen=True):
    """Which content of a file; another write gives another."""

    e_tag: str | None
    version: str | None = None


class Held(msgspec.Struct, frozen=True):
    """A file that was read."""

    data: bytes
    tag: Tag


class Entry(msgspec.Struct, frozen=True):
    """A file that was listed."""

    key: str
    size: int


Expected: TypeAlias = Tag | Literal["any"] | None
Opened: TypeAlias = tuple[Tag, Iterable[bytes]]


class Backend(Protocol):
    """One place for files."""

    base: str
    """Its URI."""

    def open(self, key: str, most_bytes: int | None = None) -> Opened | None:
        """Tag and content, in pieces; `None` where there is none.

        Raises `PermanentError` for a file of more bytes, before it is read.
        """
        ...

    def write(self, key: str, data: Bytes, expected: Expected) -> Tag:
        """Write whole; the new tag."""
        ...

    def names(self, prefix: str) -> list[Entry]:
        """Files below a prefix."""
        ...

    def remove(self, key: str) -> None:
        """Remove a file, if it is there."""
        ...


class Folder:
    """Files below a folder; a tag is the SHA-256 of a file: it separates two contents, and guards nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.base = self._folder.as_uri()

    def open(self, key: str, most_bytes: int | None = None) -> Opened | None:
        """Tag and content. Raises `PermanentError` for what is no regular file."""
        path = self._path(key)
        try:
            file = open_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ELOOP):
                raise
            raise PermanentError(str(error)) from error
        size = os.fstat(file.fileno()).st_size
        if most_bytes is not None and size > most_bytes:
            file.close()
        check_size(size, most_bytes)
        if size <= _AT_ONCE:
            with file:
                data = file.read()
            return Tag(sha256_of(data)), [data]
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return Tag(sha256_of(content)), _pieces(file)

    def write(self, key: str, data: Bytes, expected: Expected) -> Tag:
        """Write beside, force to the disk, rename, force the name to the disk."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o666 & ~_umask())
                file.write(data)
                file.flush()
                sync(fd)
            tag = Tag(sha256_of(data))
            if expected == "any":
                Path(partial).replace(path)
            else:
                with self._alone():
                    self._expect(path, expected)
                    Path(partial).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(partial).unlink()
            raise
        sync_folder(path.parent)
        return tag

    def names(self, prefix: str) -> list[Entry]:
        """Without those that are being written."""
        top = self._path(prefix) if prefix else self._folder
        return [
            Entry(str(Path(where, name).relative_to(self._folder)), Path(where, name).stat().st_size)
            for where, _, files in os.walk(top)
            for name in files
            if not name.startswith(".")
        ]

    def remove(self, key: str) -> None:
        """And the folder that it leaves empty."""
        path = self._path(key)
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        if path.parent != self._folder:
            with suppress(OSError):
                path.parent.rmdir()

    def _expect(self, path: Path, expected: Tag | None) -> None:
        try:
            with open_regular(path) as file:
                held = Tag(sha256_of(file.read()))
        except FileNotFoundError:
            held = None
        if held != expected:
            raise TakenError(f"{path} is another than expected")

    def _alone(self) -> AbstractContextManager[None]:
        """For a rename only."""
        return locked(self._folder / _LOCK, 0o644)

    def _path(self, key: str) -> Path:
        if not key or key.startswith("/") or "\0" in key or ".." in key.split("/"):
            raise PermanentError(f"{key!r} is no key; use relative names joined by /")
        return self._folder / key


def check_size(size: int, most_bytes: int | None) -> None:
    """Raise `PermanentError` for a file of more bytes than it may have."""
    if most_bytes is not None and size > most_bytes:
        raise PermanentError(f"{size} bytes, {most_bytes} may be there; name another place, or replace it")


def _pieces(file: Any) -> Iterator[bytes]:
    with file:
        while piece := file.read(_CHUNK):
            yield piece


def _umask() -> int:
    hidden = os.umask(0o077)
    os.umask(hidden)
    return hidden
