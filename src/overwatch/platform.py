"""What only some systems have, with what stands in for it on the others: macOS, Linux without `/proc`.

Rules: this is the only module that asks for such a thing, each by its name when it is used and not by the
system's; what cannot be replaced is `None` or is not done, and nothing raises for want of it. Must not know
what it is used for.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import resource
import socket
import struct
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

PROC: Final = Path("/proc")
"""What the kernel of Linux shows of processes; elsewhere there is nothing below it."""
SYS: Final = Path("/sys")
"""As `PROC`, of devices and control groups."""
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 files in it are made exclusively, for this user only
"""A folder in memory that processes share; there may be none."""
NO_SIGNAL: Final[int] = getattr(socket, "MSG_NOSIGNAL", 0)
"""Flag of a send into a closed socket that is to be an error only; elsewhere Python ignores the signal."""
_OPEN_MAX: Final = 10240
"""Most open files of a process that macOS takes where it names no limit."""
_ZEROS: Final = bytes(1 << 16)
_PEER: Final = struct.Struct("3i")
_INT: Final = struct.Struct("i")
_MALLOPT: Final = {-3: 2 << 20, -1: 16 << 20, -8: 2}
"""M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX of glibc: as shipped, a thread keeps what it once had.

Bodies of the usual size are put where others were: new pages from the kernel cost more than to read them.
"""
_MALLOPT_KEPT: Final = {-3: 32 << 20, -1: 64 << 20, -8: 2}
"""The same, for messages of megabytes: each would be mapped, zeroed by the kernel and unmapped again."""
_CLOSED: Final = 7
"""The state TCP_CLOSE of Linux."""


def sync(fd: int) -> None:
    """Return when a file survives a power loss. Raises `OSError`."""
    # macOS returns from `fsync` once the disk has it in a cache of its own; some volumes can no more.
    if (whole := getattr(fcntl, "F_FULLFSYNC", None)) is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, whole)
            return
    os.fsync(fd)


def sync_data(fd: int) -> None:
    """As `sync`, but for its times where the system can leave them out."""
    getattr(os, "fdatasync", sync)(fd)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder survive a power loss. Raises `OSError`."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def write_parts(fd: int, parts: Sequence[bytes], offset: int) -> int:
    """Write at a place, in one call; how many bytes were. Raises `OSError`."""
    if (write := getattr(os, "pwritev", None)) is not None:
        written: int = write(fd, parts, offset)
        return written
    return os.pwrite(fd, b"".join(parts), offset)


def allocate(fd: int, size: int) -> None:
    """Take the room for a file of `size` bytes now; raises `OSError` where there is none."""
    if (take := getattr(os, "posix_fallocate", None)) is not None:
        take(fd, 0, size)
        return
    for start in range(0, size, len(_ZEROS)):
        part = _ZEROS[: size - start]
        if os.pwrite(fd, part, start) != len(part):
            raise OSError(f"no room for a file of {size} bytes")


def begin_writing(fd: int, start: int, end: int) -> None:
    """Have the disk begin with what lies between, and wait for nothing; elsewhere it begins by itself."""
    if (advise := getattr(os, "posix_fadvise", None)) is not None:
        with contextlib.suppress(OSError):
            advise(fd, start, end - start, getattr(os, "POSIX_FADV_DONTNEED", 0))


def memory_file(name: str) -> IO[bytes]:
    """An open file without a path, in memory if it can be. Raises `OSError`."""
    if (make := getattr(os, "memfd_create", None)) is not None:
        return os.fdopen(make(name), "r+b", 0)
    return tempfile.TemporaryFile(buffering=0)


def message_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep apart what is sent with files, one message a read. Raises `OSError`.

    macOS has streams only, of which a read ends with the files that were sent first.
    """
    if (kind := getattr(socket, "SOCK_SEQPACKET", None)) is not None:
        with contextlib.suppress(OSError):
            return socket.socketpair(socket.AF_UNIX, kind)
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def unacknowledged(line: socket.socket) -> int | None:
    """Bytes written to a TCP connection not acknowledged by the other end; `None` where that is unknown."""
    waiting = bytearray(_INT.size)
    try:
        fcntl.ioctl(line.fileno(), termios.TIOCOUTQ, waiting)
    except OSError:
        return None
    return int(_INT.unpack(waiting)[0])


def is_cut(line: socket.socket) -> bool:
    """Whether a TCP connection was given up or reset; false where that is unknown."""
    option = getattr(socket, "TCP_INFO", None)
    return option is not None and line.getsockopt(socket.IPPROTO_TCP, option, 1)[0] == _CLOSED


def give_up_after(line: socket.socket, seconds: float) -> None:
    """Have the kernel end a TCP connection whose other end vanished, where it can."""
    if (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
        line.setsockopt(socket.IPPROTO_TCP, option, round(seconds * 1000))


def peer_of(line: socket.socket) -> tuple[int, int]:
    """Process and user at the other end of a socket. Raises `OSError`, also where that is not shown."""
    if (requested := getattr(socket, "SO_PEERCRED", None)) is None:
        raise OSError("this system does not show who is at the other end of a socket")
    pid, user, _ = _PEER.unpack(line.getsockopt(socket.SOL_SOCKET, requested, _PEER.size))
    return pid, user


def own_handle() -> int | None:
    """A descriptor that becomes readable when this process is gone; `None` where there is none."""
    return handle_of(os.getpid())


def handle_of(pid: int) -> int | None:
    """A descriptor that becomes readable when a process is gone; `None` where there is none."""
    if (open_handle := getattr(os, "pidfd_open", None)) is not None:
        with contextlib.suppress(OSError):
            handle: int = open_handle(pid)
            return handle
    return None


def since_boot_ns() -> int:
    """Goes on while the machine sleeps, where there is such a clock: macOS's monotonic one does so."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if (clock := getattr(time, name, None)) is not None:
            return time.clock_gettime_ns(clock)
    return time.monotonic_ns()


def resident_file() -> int | None:
    """A descriptor for `resident_in`, kept for when no file can be opened; `None` where there is none."""
    try:
        return os.open(PROC / "self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def resident_in(fd: int | None) -> int | None:
    """Bytes of memory that this process holds now; `None` where that cannot be read."""
    if fd is not None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(os.pread(fd, 128, 0).split()[1]) * mmap.PAGESIZE
    import psutil

    try:
        return int(psutil.Process().memory_info().rss)
    except (OSError, psutil.Error):
        return None


def machine_memory() -> int:
    """Bytes of memory that this machine has."""
    import psutil

    try:
        return int(psutil.virtual_memory().total)
    except (OSError, psutil.Error):
        return os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE


def return_memory_soon() -> None:
    """Have the C library give large blocks back once they are free, whichever thread had them."""
    _set_mallopt(_MALLOPT)


def keep_large_blocks() -> None:
    """Have the C library keep up to 64 MiB for the next large message, instead of asking the kernel anew."""
    _set_mallopt(_MALLOPT_KEPT)


def _set_mallopt(options: Mapping[int, int]) -> None:
    with contextlib.suppress(OSError, AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        for option, value in options.items():
            set_option(option, value)


def working_folder(pid: int) -> Path:
    """The folder that a process works in; this one's where that cannot be seen."""
    import psutil

    try:
        return Path(psutil.Process(pid).cwd())
    except (OSError, psutil.Error):
        return Path(os.curdir).absolute()


def process_began(pid: int) -> tuple[str, ...]:
    """What no other process of this number shares: when it began, and after which boot, if that is known."""
    try:
        began = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
        return began, (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        pass
    import psutil

    try:
        return (repr(psutil.Process(pid).create_time()),)
    except (OSError, psutil.Error):
        return ()


def work_as_batch(pid: int) -> None:
    """Have a process wait for the core of those that are at work, where the scheduler knows such."""
    if (put := getattr(os, "sched_setscheduler", None)) is not None:
        with contextlib.suppress(OSError):
            put(pid, getattr(os, "SCHED_BATCH", 0), getattr(os, "sched_param", int)(0))


def cores() -> frozenset[int]:
    """Numbers of the cores that this process may use; none where that cannot be asked, nor kept to."""
    if (query := getattr(os, "sched_getaffinity", None)) is not None:
        with contextlib.suppress(OSError):
            return frozenset(query(os.getpid()))
    return frozenset()


def keep_to(wanted: frozenset[int]) -> None:
    """Keep this thread, and what it starts, to some of `cores()`."""
    if (keep := getattr(os, "sched_setaffinity", None)) is not None:
        with contextlib.suppress(OSError):
            keep(0, wanted)


def raise_file_limit(wanted: int) -> None:
    """Let this process open so many files, or as many as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names no limit and has a smaller one.
    for most in (wanted if hard == resource.RLIM_INFINITY else min(hard, wanted), min(wanted, _OPEN_MAX)):
        if soft == resource.RLIM_INFINITY or soft >= most:
            return
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return
