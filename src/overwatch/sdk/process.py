"""The exporter process as the trainer's runs hold it: its life, one run's line to it, and the run's account.

One process serves the runs of all processes that meet: see `meeting`. Where a system cannot show how a
process ended that is not the exporter's parent, or has no place to meet, it serves those of this process
alone; with `OVERWATCH_EXPORTER=own` one run. Rules: a process that works for others is not killed. Each run
has a socket of its own: it carries the close, and its end means that the exporter let go of the run. The
account is an anonymous file, so it can be read at any time, even after the process died. Nothing here waits
longer than it is asked to, but `watch`, which has a thread to itself. Must not know rings.
"""

import atexit
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from overwatch import platform
from overwatch.sdk import meeting
from overwatch.sdk.frames import Arrival, Close, Progress, progress_of
from overwatch.sdk.trainer_env import common_env, exporter_env

log: Final = logging.getLogger("overwatch.sdk")

VARIABLE: Final = "OVERWATCH_EXPORTER"
SHARED: Final = "shared"
OWN: Final = "own"
_STDERR: Final = 2
_COMMAND: Final = ("-P", "-m", "overwatch.sdk.exporter")


class AccountFile:
    """Where the exporters of some rings, one after the other, leave their account: memory, if it can be.

    Raises `OSError`.
    """

    def __init__(self) -> None:
        self._length = 0
        self._file: IO[bytes] = platform.memory_file("overwatch-account")

    def fileno(self) -> int:
        """The open file."""
        return self._file.fileno()

    def read(self) -> Progress:
        """What was last written."""
        try:
            data = os.pread(self._file.fileno(), 1 << 16, 0)
            return progress_of(data.strip(b" \0") or b"{}")
        except (OSError, ValueError):
            return Progress()

    def write(self, progress: Progress) -> None:
        """Write it, where the exporter is a thread of this process."""
        data = msgspec.json.encode(progress)
        self._length = max(self._length, len(data))
        with contextlib.suppress(OSError, ValueError):
            os.pwrite(self._file.fileno(), data.ljust(self._length), 0)

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class ExporterProcess:
    """One life of what exports the rings of one run. Raises `OSError` when it cannot be started."""

    def __init__(self, rings: Path, account: AccountFile, *, alone: bool = False) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                self._process = _join(rings, [theirs.fileno(), account.fileno()], alone=alone)
        except BaseException:
            self._line.close()
            raise
        self.pid = self._process.pid
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

    def announce_close(self, deadline: float, *, at_exit: bool) -> None:
        """Ask it to deliver what there is until `deadline` (monotonic seconds) and end: see `Close`."""
        with contextlib.suppress(OSError):
            data = msgspec.msgpack.encode(Close(deadline=deadline, at_exit=at_exit))
            self._line.send(data, platform.NO_SIGNAL)
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    def finish(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came in time. A late process that no other run needs is killed."""
        if self._await_end(max(timeout_s, 0.0)):
            return True
        self._process.kill_late()
        return False

    def release(self) -> None:
        """Let go of it; the process sees that."""
        self._process.leave()
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
        poll = select.poll()
        with contextlib.suppress(OSError, ValueError):
            poll.register(self._line, select.POLLIN)
            wait_ms = None if timeout_s is None else timeout_s * 1000
            if not self._ended.is_set() and not poll.poll(wait_ms):
                return False
        self._ended.set()
        return True


class _Shared:
    """A process that serves other trainers too."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def leave(self) -> None:
        """It sees that by itself."""

    def kill_late(self) -> None:
        """End it where it is stopped: it works for none of its trainers, and they all start another."""
        with contextlib.suppress(OSError, IndexError):
            process = platform.PROC / str(self.pid)
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "T" and _COMMAND[-1].encode() in (process / "cmdline").read_bytes():
                os.kill(self.pid, signal.SIGKILL)


class _Private:
    """A process of this process alone, as all of its runs see it."""

    def __init__(self) -> None:
        self._listener, theirs = platform.message_pair()
        try:
            with theirs:
                self._process = _started((), stdin=theirs.fileno(), env=exporter_env())
        except BaseException:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        self._runs = 0
        self.pid = self._process.pid

    def join(self, data: bytes, handles: list[int]) -> None:
        """Send one run; raises `OSError` where it is not taken."""
        socket.send_fds(self._listener, [data], handles, platform.NO_SIGNAL)
        self._runs += 1

    def leave(self) -> None:
        """One run has let go."""
        with _joining:
            self._runs -= 1

    def kill_late(self) -> None:
        """End it at once where only one run is left in it."""
        with _joining, contextlib.suppress(OSError):
            if self._runs == 1:
                self._listener.close()
                self._process.kill()

    def shut(self) -> None:
        """Send no more runs: it ends with the last that it has."""
        self._listener.close()


_joining = threading.RLock()
"""Held while runs come and go; a signal handler may start one too."""
_private: dict[tuple[object, ...], _Private] = {}
"""The one that takes runs of this process, by what its runs have in common."""
_children: list[subprocess.Popen[bytes]] = []
"""Processes that this one has started, shared or not."""
_refusals: set[str] = set()
"""Why no process is shared, as far as that was logged."""


def _started(arguments: tuple[str, ...], **options: Any) -> subprocess.Popen[bytes]:
    """An exporter process; raises `OSError` where there can be none."""
    if not sys.executable:
        raise FileNotFoundError("this interpreter does not know where its executable is")
    process = subprocess.Popen((sys.executable, *_COMMAND, *arguments), stdout=subprocess.DEVNULL, **options)
    _children[:] = [one for one in _children if one.returncode is None]
    _children.append(process)
    threading.Thread(target=process.wait, name="overwatch-reaper", daemon=True).start()
    return process


def _start_shared(stdin: int, stderr: int, arguments: tuple[str, ...], env: dict[str, str]) -> int:
    """Start the exporter of a meeting, away from this process's terminal and folder; its process id."""
    return _started(arguments, stdin=stdin, stderr=stderr, env=env, cwd=os.sep, start_new_session=True).pid


def _join(rings: Path, files: list[int], *, alone: bool) -> _Shared | _Private:
    """Send a run to the process that suits it, which is started where there is none."""
    alone = alone or _is_own()
    # With a handle on this process, where the system has such, the exporter sees how it ends.
    handle, errors = platform.own_handle(), _error_stream()
    try:
        data = msgspec.msgpack.encode(
            Arrival(rings=os.fsencode(rings), has_handle=handle is not None, has_errors=bool(errors))
        )
        sent = [*files, *([] if handle is None else [handle]), *errors]
        with _joining:
            if handle is not None and not alone and (shared := _join_shared(data, sent)) is not None:
                return shared
            return _join_private(data, sent, alone=alone)
    finally:
        if handle is not None:
            os.close(handle)


def _join_shared(data: bytes, files: list[int]) -> _Shared | None:
    """The process of this meeting; `None` where there can be none, which is logged once."""
    try:
        with contextlib.closing(meeting.here()) as place:
            return _Shared(place.join(data, files, _start_shared))
    except OSError as error:
        if str(error) not in _refusals:
            _refusals.add(str(error))
            log.warning("this process has an exporter of its own, since it can share none: %s", error)
        return None


def _join_private(data: bytes, files: list[int], *, alone: bool) -> _Private:
    key = (sys.executable, frozenset(common_env().items()))
    known = None if alone else _private.get(key)
    if known is not None:
        with contextlib.suppress(OSError):
            known.join(data, files)
            return known
    process = _Private()
    try:
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which the run's line shows
            process.join(data, files)
    except BaseException:
        process.shut()
        raise
    if alone:
        process.shut()
        return process
    _shut_private()
    _private[key] = process
    return process


def _shut_private() -> None:
    """Send no more runs to a process of this one."""
    for one in _private.values():
        one.shut()
    _private.clear()


def _error_stream() -> list[int]:
    """What is logged of a run belongs there, if it is open."""
    try:
        os.fstat(_STDERR)
    except OSError:
        return []
    return [_STDERR]


def _is_own() -> bool:
    word = os.environ.get(VARIABLE, "").strip().lower()
    if word not in ("", SHARED, OWN):
        log.warning("%s=%s is neither %s nor %s: its runs share an exporter",
                    VARIABLE, word[:64], SHARED, OWN)  # fmt: skip
    return word == OWN


def _forget() -> None:
    """This process ends, or is a forked child, which starts one of its own."""
    global _joining  # noqa: PLW0603 the lock may have been held by a thread that a child has not
    _joining = threading.RLock()
    _shut_private()
    for child in _children:
        child.returncode = child.returncode or 0
    _children.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(_forget)
