"""Files held open for reading, a few at a time, so that reading many places of many files stays cheap."""

import contextlib
import os
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

_MOST_OPEN = 32


class Handles:
    """Descriptors by path; those used longest ago are closed. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path | str, int] = OrderedDict()
        weakref.finalize(self, _close_all, self._open)

    def __contains__(self, path: Path | str) -> bool:
        return path in self._open

    def of(self, path: Path | str) -> int:
        """A descriptor of a file, good until the next call. Raises `OSError`."""
        known = self._open.get(path)
        if known is None:
            known = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) > _MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(path)
        return known

    def forget(self, path: Path | str) -> None:
        """Open the file anew next time: another may have its name."""
        known = self._open.pop(path, None)
        if known is not None:
            os.close(known)


class Scratch:
    """A file without a name, which goes with this object. Raises `OSError` when the disk is full."""

    def __init__(self) -> None:
        self.fd, name = tempfile.mkstemp(prefix="overwatch-")
        os.unlink(name)  # noqa: PTH108 a name that was just made
        weakref.finalize(self, os.close, self.fd)
        self.size = 0

    def append(self, data: bytes) -> int:
        """Write at the end; returns the offset."""
        start = self.size
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        self.size += len(data)
        return start

    def extend(self, chunks: Iterable[bytes]) -> None:
        """Write all of them."""
        for chunk in chunks:
            self.append(chunk)


def _close_all(known: OrderedDict[Path | str, int]) -> None:
    for fd in known.values():
        with contextlib.suppress(OSError):
            os.close(fd)
