"""Where trainers find the exporter that they share: a socket of this user, and the lock beside it.

Its name follows from all that one process cannot have twice: user, namespaces, control group, limits, code,
and the environment that libraries read by themselves. Rules: an exporter is started, joined and left under
the lock alone, so a run never comes to one that is leaving; a folder that is another user's, or a link, is
not used; nothing waits for the lock longer than `LOCK_S`. Must not know runs.
"""

import contextlib
import hashlib
import json
import os
import resource
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import overwatch
from overwatch import discovery, platform
from overwatch.file_lock import try_lock, unlock
from overwatch.sdk.trainer_env import common_env, exporter_env

LOCK_S: Final = 5.0
_LOOK_S: Final = 0.005
_QUEUE: Final = 1024
"""Runs that may wait for an exporter to take them, as many as the system allows."""
_SELF: Final = platform.PROC / "self"
_LIMITS: Final = ("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_CPU", "RLIMIT_NPROC")
_PF_EXITING: Final = 0x4
Start = Callable[[int, int, tuple[str, ...], dict[str, str]], int]
"""Starts an exporter with a socket to listen at, a file for its errors, arguments and environment."""


class Meeting:
    """The place of one exporter. Raises `OSError` where there can be none."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._at = _own_folder(folder)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._at)

    def join(self, data: bytes, handles: list[int], start: Start) -> int:
        """Send a run to the exporter, which is started where there is none; its process id.

        Raises `OSError` where the run cannot be sent.
        """
        with self._locked() as lock, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.setblocking(False)
            pid = self._pid(lock)
            try:
                if _is_ending(pid):
                    raise ConnectionRefusedError  # noqa: TRY301 as its socket does in a moment
                line.connect(self._path(".sock"))
            except (FileNotFoundError, ConnectionRefusedError):
                pid = self._start(lock, start)
                line.connect(self._path(".sock"))
            socket.send_fds(line, [data], handles, platform.NO_SIGNAL)
            return pid

    def leave(self, is_waited_for: Callable[[], bool]) -> bool:
        """Take the exporter that this process is out of its place, unless a run waits for it.

        A place that is gone, with its folder or otherwise, is left: no run can come any more.
        """
        try:
            with self._locked() as lock:
                if is_waited_for():
                    return False
                if self._pid(lock) == os.getpid():  # else its place was tidied away, and is another's now
                    self._remove()
                return True
        except TimeoutError:
            return False
        except OSError:
            return True

    def _start(self, lock: int, start: Start) -> int:
        os.ftruncate(lock, 0)
        self._unlink(".sock")
        errors = self._open(".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(self._path(".sock"))
                listener.listen(_QUEUE)
                pid = start(listener.fileno(), errors, (str(self.folder), self.name), exporter_env())
        except BaseException:
            self._remove()
            raise
        finally:
            os.close(errors)
        os.pwrite(lock, str(pid).encode(), 0)
        return pid

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        deadline = time.monotonic() + LOCK_S
        while (lock := self._try_lock()) is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self.folder / self.name}.lock is held by another process")
            time.sleep(_LOOK_S)
        try:
            yield lock
        finally:
            unlock(lock)
            os.close(lock)

    def _try_lock(self) -> int | None:
        """The lock, where it is free and was not tidied away by its last holder."""
        lock = self._open(".lock", os.O_RDWR | os.O_CREAT)
        if try_lock(lock) and os.fstat(lock).st_nlink:
            return lock
        os.close(lock)
        return None

    def _open(self, ending: str, flags: int) -> int:
        return os.open(
            self.name + ending, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600, dir_fd=self._at
        )

    def _path(self, ending: str) -> str:
        """Short enough for a socket, and below the very folder that was checked."""
        return str(_SELF / "fd" / str(self._at) / f"{self.name}{ending}")

    def _pid(self, lock: int) -> int:
        word = os.pread(lock, 32, 0)
        return int(word) if word.isdigit() else 0

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            if not os.stat(f"{self.name}.log", dir_fd=self._at, follow_symlinks=False).st_size:
                self._unlink(".log")
        self._unlink(".sock")
        self._unlink(".lock")

    def _unlink(self, ending: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name + ending, dir_fd=self._at)


def here() -> Meeting:
    """Where the trainers meet that are as this process is; raises `OSError`.

    A launcher may hand on a runtime folder that is not on this machine: then in a folder below TMPDIR.
    """
    name, folder = f"exporter-{common_name()}", discovery.path().parent
    try:
        return Meeting(folder, name)
    except OSError:
        below_tmp = discovery.path({"TMPDIR": tempfile.gettempdir()}).parent
        if folder == below_tmp:
            raise
        return Meeting(below_tmp, name)


def _is_ending(pid: int) -> bool:
    """Whether a process was killed and has only files left to close, its socket perhaps the last."""
    try:
        fields = (platform.PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return bool(int(fields[6]) & _PF_EXITING)


def common_name() -> str:
    """A digest of what trainers must have in common; raises `OSError` where the system does not show it."""
    root = Path("/").stat()
    limits = [resource.getrlimit(getattr(resource, name)) for name in _LIMITS]
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)  # an exporter takes all that it may
    parts = [
        os.getuid(), os.geteuid(), os.getgid(), os.getegid(), root.st_dev, root.st_ino, limits, files,
        sorted(f"{one.name} {one.readlink()}" for one in (_SELF / "ns").iterdir()),
        os.fsdecode((_SELF / "cgroup").read_bytes()), sys.executable, sys.version, _code(), common_env(),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _code() -> tuple[str, str, int]:
    """Which code an exporter would run: of an installation that is edited its newest file counts."""
    package = Path(str(overwatch.__file__)).parent
    files = [file for part in ("sdk", "delivery") for file in (package / part).rglob("*.py")]
    return overwatch.__version__, str(package), max((one.stat().st_mtime_ns for one in files), default=0)


def _own_folder(folder: Path) -> int:
    """The folder, made where it is not there, open; raises `OSError` where it is not this user's alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(at)
    if found.st_uid == os.geteuid():
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(at, 0o700)
        return at
    os.close(at)
    raise PermissionError(f"{folder} is not this user's own folder; remove it or set XDG_RUNTIME_DIR")
