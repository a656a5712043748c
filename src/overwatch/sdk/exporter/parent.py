"""The trainer's process as its exporter sees it: whether it is gone, and how it went.

Linux gives a handle on a process (5.3), the wait status of one that is gone for as long as its parent has not
read it, and afterwards too (6.15). Where a system gives less, an end is seen and its reason is not.

Rules: waits no longer than it is asked to. Must not know what is exported.
"""

import contextlib
import fcntl
import os
import select
import struct
import time
from pathlib import Path
from typing import Final

from overwatch.platform import PROC, SYS

_INFO: Final = struct.Struct("<QQ11Ii")
"""`struct pidfd_info` of its first version: mask, control group, eleven ids, wait status."""
_GET_INFO: Final = 0xC000_FF0B | _INFO.size << 16
_EXITED: Final = 1 << 3
_LOOK_S: Final = 0.1
_CGROUPS: Final = SYS / "fs/cgroup"
_OF_SELF: Final = PROC / "self/cgroup"


class Parent:
    """The process that started this one."""

    def __init__(self, pid: int, handle: int | None = None) -> None:
        self._pid = pid
        self.handle = handle
        """Becomes readable when the process is gone; `None` where there are no such handles."""
        self._group = memory_group()
        self._kills = _kills(self._group)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for its end, so long or for ever; whether it has ended."""
        if self.handle is not None:
            poll = select.poll()
            poll.register(self.handle, select.POLLIN)
            return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while os.getppid() == self._pid:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    @property
    def status(self) -> int | None:
        """What `waitpid` gives of it once it has ended; `None` where that is not known."""
        if self.handle is None:
            return None
        for _ in range(2):  # its parent may read the status between the two looks for it
            for found in (_of_zombie(self._pid), _of_handle(self.handle)):
                if found is not None:
                    return found
        return None

    @property
    def out_of_memory(self) -> str | None:
        """The control group of both where it has killed for want of memory since this began."""
        kills = _kills(self._group)
        is_more = kills is not None and self._kills is not None and kills > self._kills
        return _shown(self._group) if is_more else None


def _of_zombie(pid: int) -> int | None:
    """The wait status of a process that its parent has not yet read."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[-1]) if fields and fields[0] in "ZX" else None


def _of_handle(handle: int) -> int | None:
    """The wait status of a process that its parent has read."""
    info = bytearray(_INFO.pack(_EXITED, *(0,) * 13))
    try:
        fcntl.ioctl(handle, _GET_INFO, info)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(info)
    return status if mask & _EXITED else None


def memory_group(of: Path = _OF_SELF, mounted: Path = _CGROUPS) -> Path | None:
    """The file that counts what the control group of this process killed for want of memory."""
    try:
        lines = of.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (mounted / "memory", "memory.oom_control") if controllers else (mounted, "memory.events")
        for found in (root / path.lstrip("/") / name, root / name):  # a container may not see the way to it
            if _kills(found) is not None:
                return found
    return None


def _kills(counter: Path | None) -> int | None:
    """Processes killed so far, by either version's file."""
    if counter is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        words = dict(line.split(maxsplit=1) for line in counter.read_text().splitlines())
        return int(words["oom_kill"]) if "oom_kill" in words else None
    return None


def _shown(counter: Path | None) -> str | None:
    return None if counter is None else str(counter.parent)
