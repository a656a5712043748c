"""Takes what only Linux has away from every process that has this folder on `PYTHONPATH`.

What is left is what macOS has too; psutil reads `/proc` still, as it asks the kernel on other systems. With
`OVERWATCH_BARE=psutil` it may not either, as in a container that has no `/proc`.
"""

import builtins
import errno
import io
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

GONE = {
    os: ("fdatasync", "memfd_create", "pidfd_open", "posix_fallocate", "posix_fadvise", "POSIX_FADV_DONTNEED",
         "sched_setscheduler", "sched_getscheduler", "SCHED_BATCH", "sched_param", "sched_getaffinity",
         "sched_setaffinity", "O_PATH", "O_TMPFILE", "eventfd", "copy_file_range", "splice", "getrandom",
         "pwritev", "preadv", "setns", "unshare", "getxattr", "setxattr", "waitid", "P_PIDFD", "pipe2"),
    socket: ("MSG_NOSIGNAL", "SO_PEERCRED", "SO_DOMAIN", "SO_PROTOCOL", "AF_NETLINK", "AF_VSOCK",
             "TCP_KEEPIDLE", "TCP_USER_TIMEOUT"),
    time: ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
    select: ("epoll", "POLLRDHUP"),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGSTKFLT"),
}  # fmt: skip
HIDDEN = ("/proc", "/sys", "/dev/shm")
SEEN_BY = () if os.environ.get("OVERWATCH_BARE") == "psutil" else ("psutil",)


def is_hidden(place: object) -> bool:
    """Whether a path is one of Linux's own, for the module that asks."""
    if not isinstance(place, str | bytes | os.PathLike):
        return False
    path = os.fsdecode(place)
    asks = sys._getframe(2).f_globals.get("__name__", "")
    return any(path == one or path.startswith(f"{one}/") for one in HIDDEN) and not asks.startswith(SEEN_BY)


def hiding(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call for every path that is not hidden; the others are not there."""

    def requested(place: Any, *more: Any, **named: Any) -> Any:
        if is_hidden(place):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
        return call(place, *more, **named)

    return requested


def streams_only(family: int = socket.AF_UNIX, kind: int = socket.SOCK_STREAM, proto: int = 0) -> Any:
    """As macOS answers."""
    if kind == socket.SOCK_SEQPACKET:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
    return pair(family, kind, proto)


for module, names in GONE.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for name in ("open", "stat", "lstat", "readlink", "listdir", "scandir", "access", "mkdir", "chdir", "unlink"):
    setattr(os, name, hiding(getattr(os, name)))
builtins.open = io.open = hiding(open)  # type: ignore[misc]
pair, socket.socketpair = socket.socketpair, streams_only
