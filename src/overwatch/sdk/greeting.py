"""What a trainer declares, left beside its rings for their reader, also after its death.

Rules: made for this user only and never through a link; it is whole and locked before it can be found;
its writer holds the lock for as long as it lives, which shows also from containers that share nothing
but the folder. Must not know rings.
"""

import contextlib
import os
from pathlib import Path
from typing import IO, Final

import msgspec

from overwatch.file_lock import try_lock
from overwatch.sdk.frames import Hello

SUFFIX: Final = ".hello"
_LONGEST: Final = 16 << 20
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_hello: Final = msgspec.msgpack.Decoder(Hello).decode


class GreetingError(ValueError):
    """A file that is no greeting."""


def write_hello(rings: Path, hello: Hello) -> IO[bytes]:
    """Leave a greeting, which is meant until the file is closed; raises `OSError`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    unread = path_of(rings).with_suffix(f"{SUFFIX}.new")
    file = os.fdopen(os.open(unread, flags, 0o600), "wb")
    try:
        with contextlib.suppress(OSError):  # a place without locks: see `is_meant`
            try_lock(file.fileno())
        file.write(msgspec.msgpack.encode(hello))
        file.flush()
        unread.rename(path_of(rings))
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):
            unread.unlink()
        raise
    return file


def is_meant(rings: Path) -> bool:
    """Whether the process that left a greeting here lives; where that cannot be known, yes."""
    try:
        fd = os.open(path_of(rings), _READ)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return not try_lock(fd, shared=True)
    except OSError:
        return True
    finally:
        os.close(fd)


def read_hello(rings: Path) -> Hello:
    """The greeting beside some rings; raises `OSError` or `GreetingError`."""
    with os.fdopen(os.open(path_of(rings), _READ), "rb") as file:
        data = file.read(_LONGEST)
    try:
        return _hello(data)
    except msgspec.MsgspecError as error:
        raise GreetingError(f"{path_of(rings)} is no greeting: {error}") from None


def forget_hello(rings: Path) -> None:
    """Remove a greeting, if it is there."""
    with contextlib.suppress(OSError):
        path_of(rings).unlink()


def path_of(rings: Path) -> Path:
    """Where the greeting of some rings lies."""
    return rings.with_name(f"{rings.name}{SUFFIX}")
