"""A file that is there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from overwatch.analyse.source import AnalyseError


@contextmanager
def whole(out: Path) -> Iterator[Path]:
    """Where to write; what was written takes its name at the end, or goes. Raises `AnalyseError`."""
    if out.is_dir():
        raise AnalyseError(f"{out} is a folder; name a file")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(out)
    except OSError as error:
        raise AnalyseError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
