"""A file that a user names for output: replaced whole, or written through where it is no regular file.

Rules: a regular file has its old content or all of the new, and keeps its mode and owner; a symbolic link is
followed; a device, a FIFO and an open descriptor (`/dev/stdout`, `/dev/fd/63`) take the bytes and stay what
they are. Nothing else is left behind, whatever fails. Must not know what is written.
"""

import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from overwatch.platform import sync, sync_folder

_MOST_LINKS: Final = 40
_NOT_REPLACEABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)
"""What the system answers where a file can be written, and its name cannot be given to another one."""


class OutputError(OSError):
    """A file cannot be written; the message names it and the cause."""


@contextmanager
def output(out: Path) -> Iterator[BinaryIO]:
    """Yield the stream that becomes a file when the block ends; `-` is standard output.

    Folders above a new file are created. Raises `OutputError`, also for an `OSError` of the block.
    """
    try:
        with _stream(out) as stream:
            yield stream
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror or error}") from error


def write_output(out: Path, content: bytes) -> None:
    """Write a file. Raises `OutputError`."""
    with output(out) as stream:
        stream.write(content)


def _stream(out: Path) -> AbstractContextManager[BinaryIO]:
    number = _descriptor(out)
    if str(out) == "-" or number is not None:
        return _open(number)
    try:
        status = out.stat()
    except FileNotFoundError:
        return _whole(Path(os.path.realpath(out)), None)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file")
    if stat.S_ISSOCK(status.st_mode):
        raise OSError(errno.ENXIO, "it is a socket; name a file")
    if stat.S_ISREG(status.st_mode):
        return _whole(Path(os.path.realpath(out)), status)
    return out.open("wb")


def _descriptor(out: Path) -> int | None:
    """Return which descriptor of this process a path names, through any links; `None` for other paths."""
    descriptors, place = os.path.realpath("/dev/fd"), os.fspath(out)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(place)
        if name.isdecimal() and os.path.realpath(folder or ".") == descriptors:
            return int(name)
        try:
            place = str(Path(folder, Path(place).readlink()))
        except OSError:
            return None
    return None


@contextmanager
def _open(number: int | None) -> Iterator[BinaryIO]:
    """Yield a stream into a descriptor, or into standard output."""
    sys.stdout.flush()
    if number is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # A copy and no new opening: that would truncate a file that the shell opened to append to.
    with os.fdopen(os.dup(number), "wb") as stream:
        yield stream


@contextmanager
def _whole(target: Path, status: os.stat_result | None) -> Iterator[BinaryIO]:
    """Yield a file beside the target, which takes its place at the end, or goes."""
    if status is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    elif not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is write-protected")
    part = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with _beside(part, status) as stream:
            yield stream
            stream.flush()
            try:
                if status is not None:
                    _keep_owner_and_mode(stream.fileno(), status)
                sync(stream.fileno())
                part.replace(target)
            except OSError as error:
                if status is None or error.errno not in (*_NOT_REPLACEABLE, errno.ENOENT):
                    raise
                stream.seek(0)
                with target.open("wb") as file:
                    shutil.copyfileobj(stream, file)
                    file.flush()
                    sync(file.fileno())
        # The file is whole by its name already: a folder that cannot be synced is no failure.
        with suppress(OSError):
            sync_folder(target.parent)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _beside(part: Path, status: os.stat_result | None) -> AbstractContextManager[BinaryIO]:
    """Open a new file; one without a name where its folder takes none and the target is there."""
    try:
        mode = 0o666 if status is None else stat.S_IMODE(status.st_mode)
        return os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "w+b")
    except OSError as error:
        if status is None or error.errno not in _NOT_REPLACEABLE:
            raise
        return tempfile.TemporaryFile()


def _keep_owner_and_mode(fd: int, status: os.stat_result) -> None:
    made = os.fstat(fd)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(fd, status.st_uid, status.st_gid)
    os.fchmod(fd, stat.S_IMODE(status.st_mode))
