"""A disk that fails on demand: refused calls, short writes, calls that fail or do not end, lost power."""

import errno
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from overwatch.journal import File, Files


@dataclass
class Fault:
    """What goes wrong, shared by all that was opened through one `FaultyFiles`."""

    room: int | None = None
    """Bytes that can still be written before the disk is full; `None`: it never is."""
    refused: set[str] = field(default_factory=set)
    """Calls that fail with `error`, by name."""
    error: int = errno.EIO
    fail_at: int | None = None
    """The number of the call that fails, counted from 1."""
    forever: bool = False
    """All calls after it fail too."""
    late: bool = False
    """Writes are done and fail all the same."""
    stalled: set[str] = field(default_factory=set)
    """Calls that end only once `answers` is set, by name."""
    answers: threading.Event = field(default_factory=threading.Event)
    calls: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    """Bytes of each file that were written."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each file that survive a power loss."""
    names: dict[str, bytes | None] = field(default_factory=dict)
    """Names changed since the folder was synced: what the disk still has under them."""

    def meet(self, call: str) -> None:
        """Fail if this call is to fail."""
        self.calls += 1
        if call in self.stalled:
            self.answers.wait()
        due = self.fail_at is not None and (
            self.calls >= self.fail_at if self.forever else self.calls == self.fail_at
        )
        if due or call in self.refused:
            raise OSError(self.error, os.strerror(self.error))

    def lose_power(self, path: Path) -> None:
        """Take from the folder at `path` all that no sync covered."""
        for name, old in self.names.items():
            if old is None:
                (path / name).unlink(missing_ok=True)
            else:
                (path / name).write_bytes(old)
        for name, size in self.sizes.items():
            if (path / name).exists() and (path / name).stat().st_size > size:
                os.truncate(path / name, size)
        (path / "lock").unlink()


class FaultyFile:
    """A real file behind a fault."""

    def __init__(self, file: File, name: str, fault: Fault) -> None:
        self._file, self._name, self._fault = file, name, fault
        fault.ends.setdefault(name, 0)
        fault.sizes.setdefault(name, 0)

    def write(self, parts: Sequence[bytes], offset: int) -> int:
        """Write as much as there is room for."""
        self._fault.meet("write")
        data = b"".join(parts)
        if self._fault.room is not None:
            if self._fault.room == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self._fault.room]
            self._fault.room -= len(data)
        self._fault.ends[self._name] = max(self._fault.ends[self._name], offset + len(data))
        written = self._file.write((data,), offset)
        if self._fault.late:
            raise OSError(self._fault.error, os.strerror(self._fault.error))
        return written

    def cut(self, size: int) -> None:
        """Cut."""
        self._fault.meet("cut")
        self._file.cut(size)
        self._fault.ends[self._name] = min(self._fault.ends[self._name], size)

    def sync(self) -> None:
        """What is there survives from now on."""
        self._fault.meet("sync")
        self._fault.sizes[self._name] = self._fault.ends[self._name]

    def close(self) -> None:
        """Let go."""
        self._file.close()


class FaultyFiles:
    """A real folder behind a fault."""

    def __init__(self, fd: int, fault: Fault) -> None:
        self._files: Files = Files(fd)
        self._fd, self._fault = fd, fault

    def open(self, name: str) -> File:
        """Open; a new name is not on the disk before a sync."""
        self._fault.meet("open")
        if name not in self._fault.sizes:
            self._fault.names.setdefault(name, None)
        return FaultyFile(self._files.open(name), name, self._fault)

    def rename(self, old: str, new: str) -> None:
        """Rename; the disk still has what was there before a sync."""
        self._fault.meet("rename")
        self._fault.names.setdefault(new, self._held(new))
        self._files.rename(old, new)
        for table in (self._fault.ends, self._fault.sizes):
            if old in table:
                table[new] = table.pop(old)

    def remove(self, name: str) -> None:
        """Remove; the disk still has it until a sync."""
        self._fault.meet("remove")
        self._fault.names.setdefault(name, self._held(name))
        self._files.remove(name)

    def sync(self) -> None:
        """What is there survives from now on."""
        self._fault.meet("sync")
        self._fault.names.clear()

    def _held(self, name: str) -> bytes | None:
        """What lies under a name, `None` for nothing."""
        try:
            fd = os.open(name, os.O_RDONLY, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read()
