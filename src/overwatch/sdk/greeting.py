"""What a trainer says of itself, left beside its rings for whoever reads them, also after its death.

Rules: made for this user only and never through a link. Must not know rings.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from overwatch.sdk.frames import Hello

SUFFIX: Final = ".hello"
_LONGEST: Final = 16 << 20


class GreetingError(ValueError):
    """A file that is no greeting."""


def write_hello(rings: Path, hello: Hello) -> None:
    """Leave a greeting; raises `OSError`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path_of(rings), flags, 0o600), "wb") as file:
        file.write(msgspec.msgpack.encode(hello))


def read_hello(rings: Path) -> Hello:
    """The greeting beside some rings; raises `OSError` or `GreetingError`."""
    with os.fdopen(os.open(path_of(rings), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        data = file.read(_LONGEST)
    try:
        return msgspec.msgpack.decode(data, type=Hello)
    except msgspec.MsgspecError as error:
        raise GreetingError(f"{path_of(rings)} is no greeting: {error}") from None


def forget_hello(rings: Path) -> None:
    """Remove a greeting, if it is there."""
    with contextlib.suppress(OSError):
        path_of(rings).unlink()


def path_of(rings: Path) -> Path:
    """Where the greeting of some rings lies."""
    return rings.with_name(f"{rings.name}{SUFFIX}")
