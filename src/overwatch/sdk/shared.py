"""One exporter process for all runs of this process, as each of its runs holds it.

Rules: runs share a process only where environment and working folder are the same, since the process reads
both. Each run has a socket of its own: it carries the farewell, and its end says that the exporter let go.
A process that died or left is followed by another. Must not know rings.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from overwatch.sdk.frames import Close, encode
from overwatch.sdk.process import AccountFile, own_handle

VARIABLE: Final = "OVERWATCH_EXPORTER"
SHARED: Final = "shared"
OPTION: Final = "--shared"
_COMMAND: Final = ("-P", "-m", "overwatch.sdk.exporter", OPTION)


class SharedExporter:
    """One run's part of a shared exporter process. Raises `OSError` when there can be none."""

    def __init__(self, rings: Path, account: AccountFile) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs, own_handle() as handles:
                self.pid = _join(rings, [theirs.fileno(), account.fileno(), *handles])
        except BaseException:
            self._line.close()
            raise
        self._line.setblocking(False)
        self._ended = threading.Event()
        self._is_released = False

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, as far as `watch` or `finish` saw."""
        return not self._ended.is_set()

    def watch(self) -> None:
        """Wait for its end, however long that takes."""
        self._await_end(None)
        if self._is_released:
            self._line.close()

    def say_close(self, deadline: float, *, at_exit: bool) -> None:
        """Ask it to deliver what there is until `deadline` (monotonic seconds) and end: see `Close`."""
        with contextlib.suppress(OSError):
            self._line.send(encode(Close(deadline=deadline, at_exit=at_exit)), socket.MSG_NOSIGNAL)
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    def finish(self, timeout_s: float) -> bool:
        """Wait for its end; one that takes longer ends by the deadline that it was given."""
        return self._await_end(max(timeout_s, 0.0))

    def release(self) -> None:
        """Let go of it; the process sees that."""
        self._is_released = True
        if self._ended.is_set():
            self._line.close()
        else:  # the thread that watches closes it at the end
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        """Let it live: it is another process's, or outlives this one."""
        self._line.close()

    def _await_end(self, timeout_s: float | None) -> bool:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poll = select.poll()
        with contextlib.suppress(OSError, ValueError):
            poll.register(self._line, select.POLLIN)
            while not self._ended.is_set():
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0) * 1000
                if poll.poll(left):
                    self._ended.set()
                elif deadline is not None and time.monotonic() >= deadline:
                    return False
        self._ended.set()
        return True


class _Process:
    """The process, as all of its runs see it."""

    def __init__(self) -> None:
        if not sys.executable:
            raise FileNotFoundError("this interpreter does not know where its executable is")
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, *_COMMAND, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
        except BaseException:
            self._door.close()
            raise
        self._door.setblocking(False)
        self.pid = self._process.pid
        threading.Thread(target=self._process.wait, name="overwatch-reaper", daemon=True).start()

    def join(self, rings: Path, handles: list[int]) -> None:
        """Send one run; raises `OSError` where nobody takes it."""
        socket.send_fds(self._door, [os.fsencode(rings)], handles, socket.MSG_NOSIGNAL)

    def release(self) -> None:
        """Let go; it ends with its last run."""
        self._process.returncode = self._process.returncode or 0
        self._door.close()


_joining = threading.Lock()
_process: dict[tuple[object, ...], _Process] = {}


def _join(rings: Path, handles: list[int]) -> int:
    """Send a run to the process that suits this one, which is started where there is none; its id."""
    key = (os.getpid(), Path.cwd(), frozenset(os.environ.items()))
    with _joining:
        process = _process.get(key)
        if process is not None:
            with contextlib.suppress(OSError):
                process.join(rings, handles)
                return process.pid
        for one in _process.values():
            one.release()
        _process.clear()
        process = _process[key] = _Process()
        process.join(rings, handles)
        return process.pid


def _in_child() -> None:
    """A forked child starts a process of its own."""
    global _joining  # noqa: PLW0603 the lock may have been held by a thread that the child has not
    _joining = threading.Lock()
    for one in _process.values():
        one.release()
    _process.clear()


os.register_at_fork(after_in_child=_in_child)


def starter() -> Callable[[Path, AccountFile], SharedExporter] | None:
    """What starts a shared exporter, where the environment asks for one."""
    return SharedExporter if os.environ.get(VARIABLE, "").strip().lower() == SHARED else None
